#include "layers/cuda/conv/narrow_gemm/plan.h"

#include <cstring>

namespace pipit::internal::cuda {

int NarrowShape::pairs() const {
  int count = 0;
  for (int column = 0; column < outputs;) {
    const int pairs = pairs_from(column);
    count += pairs, column += pairs * kNarrowPairColumns;
  }
  return count;
}

std::vector<std::int8_t> narrow_window_weights(std::span<const std::int8_t> weights, int outputs,
                                               int channels, int height, int width) {
  std::vector<std::int8_t> rows(static_cast<std::size_t>(outputs * kNarrowWindowBytes));
  auto from = weights.begin();
  for (int o = 0; o < outputs; ++o) {
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x)
          rows[static_cast<std::size_t>(o * kNarrowWindowBytes + narrow_window_byte(y, x, c))] = *from++;
      }
    }
  }
  return rows;
}

std::vector<std::byte> pack_narrow(const NarrowShape& shape, std::span<const std::int8_t> weights,
                                   std::span<const std::int32_t> bias, std::span<const float> multipliers) {
  std::vector<std::byte> packed(static_cast<std::size_t>(shape.shared_bytes()));
  std::byte* to = packed.data();
  const auto put = [](std::byte* at, const void* value) { std::memcpy(at, value, 4); };
  for (int first = 0; first < shape.outputs;) {
    const int pairs = shape.pairs_from(first);
    for (int pair = 0; pair < pairs; ++pair, to += shape.pair_bytes()) {
      for (int product = 0; product < 2; ++product) {
        for (int column = 0; column < 8; ++column) {
          const int channel = narrow_channel(first, pairs, pair, product, column);
          if (channel >= shape.outputs) continue;
          const auto c = static_cast<std::size_t>(channel);
          const int lane = column / 2, which = column % 2;
          put(to + product * 64 + lane * 16 + which * 4, &bias[c]);
          put(to + product * 64 + lane * 16 + which * 4 + 8, &bias[c]);
          put(to + 128 + lane * 16 + product * 8 + which * 4, &multipliers[c]);
          for (int k = 0; k < shape.steps() * kNarrowStepBytes; ++k) {
            const int byte = k / kNarrowStepBytes * kNarrowStepBytes + narrow_byte(k % kNarrowStepBytes);
            if (byte >= shape.channels) continue;
            // m16n8k32's right operand: lane 4 column + k % 16 / 4 has four of k, and as many from 16 on.
            const int of_step = k % kNarrowStepBytes, reader = column * 4 + of_step % 16 / 4;
            to[kNarrowConstantBytes + (k / kNarrowStepBytes * 32 + reader) * 16 + product * 8 +
               of_step / 16 * 4 + of_step % 4] =
                static_cast<std::byte>(
                    weights[c * static_cast<std::size_t>(shape.channels) + static_cast<std::size_t>(byte)]);
          }
        }
      }
    }
    first += pairs * kNarrowPairColumns;
  }
  return packed;
}

}  // namespace pipit::internal::cuda
