// What kernels of units do with a row of positions, with loops in their place: on the CPU, needs no GPU.
#pragma once

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "tests/cuda/chain/random_chain.h"

namespace pipit::test {

/// What becomes of a sum: any function of small numbers serves.
inline int finish(int sum, int residual) {
  return (sum * 7 + residual) % 9 - 1;
}

/// Random ones of a convolution.
struct UnitWeights {
  int in_c = 0, out_c = 0, taps = 1;
  std::vector<int> values;  ///< [out_c][taps][in_c]
  std::vector<int> bias;

  UnitWeights(int in, int out, int window, std::mt19937& random) : in_c(in), out_c(out), taps(window) {
    values.resize(static_cast<std::size_t>(out_c * taps * in_c));
    bias.resize(static_cast<std::size_t>(out_c));
    for (int& v : values) v = draw(random, -4, 4);
    for (int& v : bias) v = draw(random, -40, 40);
  }
  /// As elements of type E.
  template <typename E>
  std::vector<E> elements() const {
    return {values.begin(), values.end()};
  }
};

/// The last value of a chain, by plain loops. x: [positions][in_c].
inline std::vector<int> plain(const cuda::ConvChainShape& shape, const std::vector<UnitWeights>& weights,
                              const std::vector<int>& x_of_chain) {
  std::vector<std::vector<int>> values{x_of_chain};
  const int rows = shape.images * shape.height, width = shape.width;
  for (std::size_t n = 0; n < shape.convs.size(); ++n) {
    const cuda::ChainConv& conv = shape.convs[n];
    const UnitWeights& w = weights[n];
    const std::vector<int>& x = values[static_cast<std::size_t>(conv.x)];
    std::vector<int> y(static_cast<std::size_t>(rows * width * conv.out_c));
    for (int p = 0; p < rows * width; ++p) {
      const int h = p / width % shape.height, at = p % width;
      for (int o = 0; o < conv.out_c; ++o) {
        int sum = w.bias[static_cast<std::size_t>(o)];
        for (int t = 0; t < w.taps; ++t) {
          const int dy = w.taps == 9 ? t / 3 - 1 : 0, dx = w.taps == 9 ? t % 3 - 1 : 0;
          if (h + dy < 0 || h + dy >= shape.height || at + dx < 0 || at + dx >= width) continue;
          for (int k = 0; k < conv.in_c; ++k)
            sum += x[static_cast<std::size_t>((p + dy * width + dx) * conv.in_c + k)] *
                   w.values[static_cast<std::size_t>((o * w.taps + t) * conv.in_c + k)];
        }
        const std::size_t to = static_cast<std::size_t>(p * conv.out_c + o);
        y[to] = finish(sum, conv.residual < 0 ? 0 : values[static_cast<std::size_t>(conv.residual)][to]);
      }
    }
    values.push_back(std::move(y));
  }
  return values.back();
}

/// Weights of a unit of outputs as they lie in shared memory, without the swizzle: [columns][channels].
template <typename E>
std::vector<E> as_products_see_it(const std::byte* unit, int channels) {
  std::vector<E> elements(static_cast<std::size_t>(cuda::kUnitChannels * channels));
  const int row_bytes = channels * static_cast<int>(sizeof(E));
  for (int i = 0; i < cuda::kUnitChannels * channels; ++i) {
    const int byte = i % channels * static_cast<int>(sizeof(E));
    std::memcpy(&elements[static_cast<std::size_t>(i)],
                unit + cuda::swizzled_byte(i / channels, byte, row_bytes), sizeof(E));
  }
  return elements;
}

/// 64 constants as lanes read them, packed by pack_unit_constants().
template <typename E>
std::array<int, cuda::kUnitChannels> packed_constants(const int* values, bool stored) {
  std::array<int, cuda::kUnitChannels> packed{};
  cuda::pack_unit_constants(reinterpret_cast<const std::byte*>(values), stored, sizeof(E),
                            reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

/// A row's sums of a unit: 16 of each of four lanes. They begin with the biases that lanes read.
using UnitRow = std::array<std::array<int, 16>, 4>;
inline UnitRow start(const std::array<int, cuda::kUnitChannels>& constants) {
  UnitRow sums;
  for (std::size_t lane = 0; lane < 4; ++lane) {
    for (std::size_t index = 0; index < 16; ++index)
      sums[lane][index] = constants[index / 4 * 16 + lane * 4 + index % 4];
  }
  return sums;
}
/// += a row of elements * a unit of weights, as an m64n64 accumulator holds it (PTX ISA).
template <typename E>
void multiply(UnitRow& sums, const int* left, const E* unit, int channels) {
  for (int lane = 0; lane < 4; ++lane) {
    for (int index = 0; index < 16; ++index) {
      const E* weights = unit + (index / 2 * 8 + lane * 2 + index % 2) * channels;
      int sum = 0;
      for (int k = 0; k < channels; ++k) sum += left[k] * weights[k];
      sums[static_cast<std::size_t>(lane)][static_cast<std::size_t>(index)] += sum;
    }
  }
}
/// The channel at which a lane stores its sum: 16 bytes at a time, those of four lanes one behind the other.
template <typename E>
int stored_at(int lane, int index) {
  constexpr int kNeighbours = 16 / sizeof(E);
  return index / kNeighbours * 4 * kNeighbours + lane * kNeighbours + index % kNeighbours;
}
/// The place in the depth of the next product of what a lane has in a register (PTX ISA, A of m64k16 and m64k32).
template <typename E>
int operand_at(int lane, int index) {
  constexpr int kHeld = 4 / sizeof(E);  // by a register
  const int word = index / kHeld;
  return (word / 2 * 2 + word % 2) * 4 * kHeld + lane * kHeld + index % kHeld;
}

}  // namespace pipit::test
