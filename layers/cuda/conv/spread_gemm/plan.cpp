#include "layers/cuda/conv/spread_gemm/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace pipit::internal::cuda {

namespace {

// Tiles of more positions than this are not looked at one by one: such layers are not for this kernel.
constexpr std::int64_t kMaxTiles = 4096;

int taps_of(const ConvShape& s) {
  return s.kernel_h * s.kernel_w;
}

SpreadPixels held_of(const ConvShape& s) {
  // Padding after the last pixel is a position without one.
  const bool of_positions = taps_of(s) == 1 && s.pad_h == 0 && s.pad_w == 0 &&
                            (s.out_h - 1) * s.stride_h < s.in_h && (s.out_w - 1) * s.stride_w < s.in_w;
  if (!of_positions) return SpreadPixels::rows;
  return s.out_h == s.in_h && s.out_w == s.in_w ? SpreadPixels::positions : SpreadPixels::gathered;
}

int pixels_of(const ConvShape& s) {
  if (held_of(s) != SpreadPixels::rows) return kSpreadRows;
  const Divisor positions(s.out_h * s.out_w), width(s.out_w);
  const auto rows = static_cast<int>(s.rows());
  int most = 0;
  for (int first = 0; first < rows; first += kSpreadRows) {
    const SpreadRows r = spread_rows(s, positions, width, first, std::min(first + kSpreadRows, rows) - 1);
    most = std::max(most, r.last - r.first + 1);
  }
  return most * s.in_w;
}

SpreadPlan plan_of(const ConvShape& s, int slices) {
  SpreadPlan plan;
  plan.held = held_of(s);
  plan.slices = slices;
  const int steps = static_cast<int>(ceil_div(s.in_c * 2, kSpreadStepBytes));
  const int of_slice = static_cast<int>(ceil_div(steps, slices));
  plan.slice_bytes = of_slice * kSpreadStepBytes;
  plan.steps = static_cast<int>(ceil_div(of_slice * taps_of(s), kSpreadGroups)) * kSpreadGroups;
  plan.pixels = pixels_of(s);
  // An odd number of 16 bytes: eight pixels that are read at once lie in different banks.
  plan.pitch = plan.slice_bytes + 16;
  while ((16 << plan.lane_bits) < plan.slice_bytes) ++plan.lane_bits;
  return plan;
}

bool fits(const SpreadPlan& plan) {
  return plan.steps <= kSpreadMaxSteps && 1 << plan.lane_bits <= kSpreadThreads &&
         std::int64_t{plan.pixels} * plan.pitch + plan.steps * (kSpreadStepWeights + 8) <= kSpreadShared &&
         plan.shared_bytes() <= kSpreadShared - kSpreadReserved;
}

std::int64_t tiles_of(const ConvShape& s) {
  return ceil_div(s.rows(), kSpreadRows) * ceil_div(s.out_c, kSpreadColumns);
}

}  // namespace

std::string SpreadPlan::name() const {
  return fmt::format("{}x{}/{}", kSpreadRows, kSpreadColumns, slices);
}

std::optional<std::string> refuse_spread(const ConvShape& shape) {
  if (shape.in_c % 8 != 0)
    return fmt::format("a pixel's channels must be a multiple of 16 bytes, not {}", shape.in_c * 2);
  if (ceil_div(shape.rows(), kSpreadRows) > kMaxTiles)
    return fmt::format("{} output positions are too many", shape.rows());
  if (shape.rows() * shape.out_c > std::numeric_limits<int>::max())
    return "the output is too large for 32-bit offsets";
  if (taps_of(shape) > kSpreadMaxSteps)
    return fmt::format("a window of {} taps is too large", taps_of(shape));
  if (spread_plans(shape, 1).empty()) return "shared memory has no room for weights and pixels of a tile";
  return std::nullopt;
}

std::vector<SpreadPlan> spread_plans(const ConvShape& shape, int processors) {
  std::vector<SpreadPlan> plans;
  const std::int64_t steps = ceil_div(shape.in_c * 2, kSpreadStepBytes);
  for (int slices = 1; slices <= kSpreadMaxSlices && (slices == 1 || slices <= steps); slices *= 2) {
    if (SpreadPlan plan = plan_of(shape, slices); fits(plan)) plans.push_back(plan);
  }
  // As many blocks as there are multiprocessors; a few steps for each group are enough, since exchanging a cluster's
  // sums costs as much as several steps, and more for wider clusters (fitted on an H100 to clusters of four and eight
  // for 480 to 672 bytes at 14x14).
  const auto cost = [&](const SpreadPlan& plan) {
    const std::int64_t waves = ceil_div(tiles_of(shape) * plan.slices, processors);
    return static_cast<double>(waves) * (8 + plan.steps) + (plan.slices > 1 ? 6 + plan.slices : 0);
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const SpreadPlan& a, const SpreadPlan& b) { return cost(a) < cost(b); });
  return plans;
}

std::vector<std::byte> pack_spread(const ConvShape& s, const SpreadPlan& plan, int element_bytes,
                                   const std::byte* weights) {
  const int in_c = s.in_c * 2 / element_bytes, taps = taps_of(s);
  const int of_slice = plan.slice_bytes / kSpreadStepBytes, of_step = kSpreadStepBytes / element_bytes;
  const auto tiles = static_cast<int>(ceil_div(s.out_c, kSpreadColumns));
  const std::size_t block_bytes = static_cast<std::size_t>(plan.steps) * kSpreadStepWeights;
  std::vector<std::byte> packed(block_bytes * static_cast<std::size_t>(tiles * plan.slices));
  const auto bytes = static_cast<std::size_t>(element_bytes);
  for (int tile = 0; tile < tiles; ++tile) {
    for (int row = 0; row < kSpreadColumns; ++row) {
      const int output = tile * kSpreadColumns + packed_channel(row);
      if (output >= s.out_c) continue;
      for (int c = 0; c < in_c; ++c) {
        const int step = c / of_step, slice = step / of_slice, byte = c % of_step * element_bytes;
        std::byte* block = packed.data() + block_bytes * static_cast<std::size_t>(tile * plan.slices + slice);
        for (int tap = 0; tap < taps; ++tap) {
          const int at = (tap * of_slice + step % of_slice) * kSpreadStepWeights +
                         byte / 16 * (kSpreadStepWeights / 2) + row * 16 + byte % 16;
          const std::size_t from = (static_cast<std::size_t>(output) * static_cast<std::size_t>(in_c) +
                                    static_cast<std::size_t>(c)) *
                                       static_cast<std::size_t>(taps) +
                                   static_cast<std::size_t>(tap);
          std::memcpy(block + at, weights + from * bytes, bytes);
        }
      }
    }
  }
  return packed;
}

}  // namespace pipit::internal::cuda
