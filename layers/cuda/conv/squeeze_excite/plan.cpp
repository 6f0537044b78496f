#include "layers/cuda/conv/squeeze_excite/plan.h"

#include <algorithm>
#include <cstring>

#include "engine/base/ceil_div.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kConstantBytes = 8;
constexpr int kSliceVectors = 8;

int whole(std::int64_t size, int step) {
  return static_cast<int>(round_up(size, step));
}

}  // namespace

SqueezePlan lay_out_squeeze_excite(const SqueezeShape& shape, int blocks) {
  constexpr int kWord = 4, kAligned = 16, kTable = 256;
  SqueezePlan plan;
  plan.shape = shape, plan.blocks = blocks;
  plan.vectors = shape.channels / kSqueezeVector;
  // As many slices as leave each a few sectors of memory of a position: more slices send less.
  while (plan.slices < blocks && plan.vectors >= 2 * plan.slices * kSliceVectors) plan.slices *= 2;
  plan.slice_vectors = static_cast<int>(ceil_div(plan.vectors, plan.slices));
  const auto of_a_block = [&](int all) { return static_cast<int>(ceil_div(all, blocks)); };
  const int parts = blocks / plan.slices;
  plan.rows =
      std::min(kSqueezeThreads / plan.slice_vectors, static_cast<int>(ceil_div(shape.positions, parts)));
  plan.squeezed_share = of_a_block(shape.squeezed), plan.gate_share = of_a_block(shape.gates);
  plan.depth = whole(shape.squeezed, 4 * kSqueezeGateLanes);
  const auto weights = [&](int outputs, int depth) {
    return whole(std::int64_t{outputs} * depth * shape.element_bytes, kAligned);
  };
  plan.gate_weights_at = weights(plan.squeezed_share, shape.channels);
  plan.constants_at = plan.gate_weights_at + weights(plan.gate_share, plan.depth);
  plan.tables_at =
      plan.constants_at + whole((plan.squeezed_share + plan.gate_share) * kConstantBytes, kAligned);
  plan.weight_bytes = plan.tables_at + (shape.element_bytes == 1 ? 2 * kTable : 0);
  plan.sums_at = plan.weight_bytes;
  plan.received_at = plan.sums_at + plan.rows * plan.slice_vectors * kSqueezeVector * kWord;
  plan.means_at = plan.received_at + parts * shape.channels * kWord;
  plan.squeezed_at = plan.means_at + shape.channels * kWord;
  plan.shared_bytes = plan.squeezed_at + plan.depth * kWord;
  return plan;
}

std::variant<SqueezePlan, std::string> plan_squeeze_excite(const SqueezeShape& shape, int processors) {
  constexpr int kMaxChannels = kSqueezeThreads * kSqueezeVector;
  if (shape.channels % kSqueezeVector != 0 || shape.channels > kMaxChannels || shape.gates > kMaxChannels ||
      shape.squeezed > kMaxChannels)
    return "channels must be a multiple of 8, and no layer wider than 4096";
  // As wide as there are multiprocessors for, or two where these have room for twice as many blocks, and while every
  // thread keeps two vectors to read: measured with EfficientNet-B0 at batch 1 to 128 (docs/benchmarks/gpu.md).
  constexpr int kFewVectors = 4;
  const std::int64_t vectors = std::int64_t{shape.positions} * (shape.channels / kSqueezeVector);
  const auto has_room = [&](int blocks) {
    return std::int64_t{shape.images} * blocks <= std::int64_t{processors} * (blocks == 2 ? 2 : 1);
  };
  int blocks = 1;
  while (blocks < kSqueezeMaxBlocks && has_room(blocks * 2) &&
         vectors >= std::int64_t{kFewVectors} * kSqueezeThreads * blocks)
    blocks *= 2;
  SqueezePlan plan = lay_out_squeeze_excite(shape, blocks);
  while (plan.shared_bytes > kSqueezeShared && plan.blocks < kSqueezeMaxBlocks)
    plan = lay_out_squeeze_excite(shape, plan.blocks * 2);
  if (plan.shared_bytes > kSqueezeShared) return "shared memory has no room for the weights";
  return plan;
}

std::vector<std::byte> pack_squeeze_excite(const SqueezePlan& plan, const SqueezeLayer& first,
                                           const SqueezeLayer& second) {
  const int bytes = plan.weight_bytes, element = plan.shape.element_bytes;
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.blocks) * static_cast<std::size_t>(bytes));
  for (int block = 0; block < plan.blocks; ++block) {
    std::byte* to = packed.data() + std::ptrdiff_t{block} * bytes;
    const auto layer = [&](const SqueezeLayer& from, int outputs, int share, int depth, int stride,
                           std::byte* weights, std::byte* constants) {
      const int begin = std::min(block * share, outputs), end = std::min(begin + share, outputs);
      for (int o = begin; o < end; ++o) {
        std::memcpy(weights + std::ptrdiff_t{o - begin} * stride * element,
                    from.weights.data() + std::ptrdiff_t{o} * depth * element,
                    static_cast<std::size_t>(depth) * static_cast<std::size_t>(element));
        std::byte* constant = constants + std::ptrdiff_t{o - begin} * kConstantBytes;
        std::memcpy(constant, from.biases.data() + std::ptrdiff_t{o} * 4, 4);
        if (!from.multipliers.empty())
          std::memcpy(constant + 4, from.multipliers.data() + std::ptrdiff_t{o} * 4, 4);
      }
    };
    const int share = plan.squeezed_share;
    std::byte* constants = to + plan.constants_at;
    layer(first, plan.shape.squeezed, share, plan.shape.channels, plan.shape.channels, to, constants);
    layer(second, plan.shape.gates, plan.gate_share, plan.shape.squeezed, plan.depth,
          to + plan.gate_weights_at, constants + std::ptrdiff_t{share} * kConstantBytes);
    if (element == 2) continue;
    std::memcpy(to + plan.tables_at, first.table.data(), 256);
    std::memcpy(to + plan.tables_at + 256, second.table.data(), 256);
  }
  return packed;
}

}  // namespace pipit::internal::cuda
