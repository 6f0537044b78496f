#include "layers/cpu/tile/picked_steps.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pipit::internal {

namespace {

float weight_at(const WeightView& weights, std::int64_t output, std::int64_t k) {
  return weights.data[output * weights.output_stride + k / weights.inner_count * weights.outer_stride +
                      k % weights.inner_count * weights.inner_stride];
}

// Calls body(block, first of its own steps): those that overlap belong to the previous block.
template <typename Body>
void for_each_block(std::span<const std::int32_t> blocks, int lanes, const Body& body) {
  std::int32_t end = 0;
  for (const std::int32_t block : blocks) {
    body(block, std::max(block, end));
    end = block + lanes;
  }
}

}  // namespace

std::vector<std::int32_t> pick_blocks(std::span<const std::int32_t> segments, std::int64_t run, int lanes) {
  constexpr std::int32_t kStep = 4;
  std::vector<std::int32_t> blocks;
  const auto length = static_cast<std::int32_t>(run);
  const auto count = static_cast<std::int32_t>(segments.size());
  for (std::int32_t first = 0; first < count;) {
    std::int32_t last = first + 1;
    while (last < count && segments[static_cast<std::size_t>(last)] ==
                               segments[static_cast<std::size_t>(last - 1)] + length * kStep) {
      ++last;
    }
    const std::int32_t begin = first * length;
    const std::int32_t end = last * length;
    if (end - begin < lanes) return {};
    for (std::int32_t block = begin; block < end; block += lanes)
      blocks.push_back(std::min(block, end - lanes));
    first = last;
  }
  return blocks;
}

std::optional<std::vector<std::int32_t>> picked_steps(const TilePanels& panels, std::int64_t p,
                                                      const WeightView& weights,
                                                      std::span<const std::int32_t> blocks) {
  std::vector<std::int32_t> steps;
  bool finite = true;
  for_each_block(blocks, panels.lanes, [&](std::int32_t block, std::int32_t own) {
    std::int64_t most = 0;
    for (std::int64_t o = 0; o < panels.columns(p); ++o) {
      std::int64_t found = 0;
      for (std::int32_t k = own; k < block + panels.lanes; ++k) {
        const float weight = weight_at(weights, p * panels.panel + o, k);
        finite = finite && std::isfinite(weight);
        found += weight != 0 ? 1 : 0;
      }
      most = std::max(most, found);
    }
    steps.insert(steps.end(), static_cast<std::size_t>(most), block);
  });
  if (!finite) return std::nullopt;
  return steps;
}

void pack_picked_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                       std::span<const std::int32_t> steps, std::byte* to) {
  auto* rows = reinterpret_cast<float*>(to);
  const std::int64_t width = panels.step_bytes(p) / 4;
  std::fill_n(rows, std::ssize(steps) * width, 0.0F);
  std::vector<std::int32_t> blocks(steps.begin(), steps.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  for_each_block(blocks, panels.lanes, [&](std::int32_t block, std::int32_t own) {
    for (std::int64_t o = 0; o < panels.columns(p); ++o) {
      float* row = rows + o;
      for (std::int32_t k = own; k < block + panels.lanes; ++k) {
        const float weight = weight_at(weights, p * panels.panel + o, k);
        if (weight == 0) continue;
        *row = with_index(weight, static_cast<std::uint32_t>(k - block),
                          static_cast<std::uint32_t>(panels.lanes));
        row += width;
      }
    }
    rows += std::count(steps.begin(), steps.end(), block) * width;
  });
}

float with_index(float weight, std::uint32_t index, std::uint32_t lanes) {
  constexpr std::uint32_t kSign = 0x80000000U;
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  const auto bits = std::bit_cast<std::uint32_t>(weight);
  const std::uint32_t magnitude = bits & ~kSign;
  std::uint32_t near = (magnitude & ~(lanes - 1)) | index;
  if (near > magnitude + lanes / 2 && near >= lanes) {
    near -= lanes;
  } else if (magnitude > near + lanes / 2 && near + lanes < kInfinity) {
    near += lanes;
  }
  return std::bit_cast<float>((bits & kSign) | near);
}

bool many_zeros(const TilePanels& panels, std::int64_t groups, const WeightView& weights) {
  constexpr std::int64_t kStride = 13;  // no divisor of what kernels and channels are multiples of
  constexpr double kMin = 0.25;
  std::int64_t looked = 0;
  std::int64_t zeros = 0;
  const std::int64_t all = groups * panels.outputs * panels.steps;
  for (std::int64_t i = 0; i < all; i += kStride, ++looked) {
    const float weight = weight_at(weights, i / panels.steps, i % panels.steps);
    zeros += weight == 0 ? 1 : 0;
  }
  return static_cast<double>(zeros) >= kMin * static_cast<double>(looked);
}

}  // namespace pipit::internal
