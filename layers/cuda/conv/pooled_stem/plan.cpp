#include "layers/cuda/conv/pooled_stem/plan.h"

#include <cstring>
#include <vector>

namespace pipit::internal::cuda {

std::variant<PooledStemPlan, std::string> plan_pooled_stem(const PooledStemShape& shape, int workers) {
  if (shape.stride_h > 4 || shape.stride_w > 4) return "the convolution's stride is larger than 4";
  if (shape.pool_pad_h > 1 || shape.pool_pad_w > 1) return "the maximum's padding is larger than 1";
  PooledStemPlan plan;
  plan.shape = shape;
  // At least the middle of the last maxima must be there.
  if (2 * (shape.out_h - 1) - shape.pool_pad_h >= shape.mid_h ||
      2 * (shape.out_w - 1) - shape.pool_pad_w >= shape.mid_w)
    return "a window of the maximum lies in the padding";
  // Small batches: as many workers as there are rows.
  plan.step_rows = std::int64_t{shape.images} * shape.out_h <= 2 * workers ? 1 : 2;
  plan.steps = (shape.out_h + plan.step_rows - 1) / plan.step_rows;
  // Smaller ones: rows are shared, too, down to a few columns.
  constexpr int kMinColumns = 4;
  const std::int64_t for_a_row = workers / (std::int64_t{shape.images} * plan.steps);
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(for_a_row, 1, std::max(shape.out_w / kMinColumns, 1)));
  plan.out_columns = (shape.out_w + most - 1) / most;
  plan.parts = (shape.out_w + plan.out_columns - 1) / plan.out_columns;
  plan.mid_columns = std::min(2 * (plan.out_columns - 1) + 3, shape.mid_w);
  const auto rounded = [](std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; };
  plan.mid_pitch = static_cast<int>(rounded(plan.mid_columns, 8));
  // Up to three pixels before those that windows have.
  plan.pitch = static_cast<int>(rounded((plan.mid_columns - 1) * shape.stride_w + kPooledStemPixels + 3, 4));
  // A step's own rows, and those that the next one adds meanwhile: two of the convolution for one of the maximum.
  const int added = 2 * plan.step_rows;
  plan.mid_rows = 2 * (plan.step_rows - 1) + 3 + added;
  // The convolution's rows of a first step, with what they read; then those of the step after it.
  plan.image_rows =
      (2 * (plan.step_rows - 1) + 2) * shape.stride_h + kPooledStemTaps + added * shape.stride_h;
  const std::int64_t row_bytes = std::int64_t{kUnitChannels} * shape.element_bytes;
  const std::int64_t ring = kPooledStemUnits * kUnitRows * row_bytes;
  const std::int64_t pixels = ring + rounded(row_bytes * plan.mid_rows * plan.mid_pitch, 1024);
  const std::int64_t pixel_bytes =
      std::int64_t{plan.stored_rows()} * plan.pitch * kPooledStemChannels * shape.element_bytes;
  const std::int64_t table = pixels + pixel_bytes;
  const std::int64_t all = shape.from_bytes ? table + kPooledStemTableBytes : pixels + pixel_bytes;
  if (all > kPooledStemMaxShared) return "shared memory has no room for the rows";
  plan.ring = static_cast<int>(ring), plan.pixels = static_cast<int>(pixels);
  plan.table = shape.from_bytes ? static_cast<int>(table) : 0;
  plan.shared_bytes = static_cast<int>(all);
  return plan;
}

void pack_pooled_stem(const PooledStemShape& shape, int kernel_w, const std::byte* weights, std::byte* to) {
  const auto bytes = static_cast<std::size_t>(shape.element_bytes);
  constexpr int kDepth = kPooledStemUnits * kUnitChannels;
  std::vector<std::byte> rows(kUnitChannels * kDepth * bytes);  // [64][kDepth]
  for (int o = 0; o < kUnitChannels; ++o) {
    for (int y = 0; y < kPooledStemTaps; ++y) {
      for (int x = 0; x < kernel_w; ++x) {
        const int from = ((o * kPooledStemTaps + y) * kernel_w + x) * shape.channels;
        const int k = (y * kPooledStemPixels + x) * kPooledStemChannels;
        std::memcpy(rows.data() + static_cast<std::size_t>(o * kDepth + k) * bytes,
                    weights + static_cast<std::size_t>(from) * bytes,
                    static_cast<std::size_t>(shape.channels) * bytes);
      }
    }
  }
  for (int unit = 0; unit < kPooledStemUnits; ++unit)
    pack_unit(rows.data(), kDepth, 1, 0, unit * kUnitChannels, 0, true, shape.element_bytes,
              to + static_cast<std::size_t>(unit * kUnitRows * kUnitChannels) * bytes);
}

}  // namespace pipit::internal::cuda
