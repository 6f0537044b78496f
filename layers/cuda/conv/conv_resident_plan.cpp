#include "layers/cuda/conv/conv_resident_plan.h"

#include <fmt/format.h>

namespace pipit::cuda {

namespace {

constexpr int kChunkBytes = 16;
constexpr int kMostBox = 256;  // pixels of one copy
constexpr int kAhead = 4;      // products whose places are read before it is known whether they exist

int pixel_bytes_of(const ConvShape& shape) {
  return shape.in_c * 2 <= 64 ? 64 : 128;
}

// Rows of the stream that the positions [first, first + count) read.
int rows_read(const ConvShape& shape, int in_rows, std::int64_t first, std::int64_t count) {
  const auto row_of = [&](std::int64_t position) {
    const std::int64_t image = position / (shape.out_h * shape.out_w);
    const std::int64_t rest = position % (shape.out_h * shape.out_w);
    return image * in_rows + rest / shape.out_w * shape.stride_h;
  };
  const std::int64_t last = std::min(first + count, shape.rows()) - 1;
  return static_cast<int>(row_of(last) - row_of(first)) + (shape.kernel_h - 1) * shape.dilation_h + 1;
}

// The most that so many tiles read together.
int rows_of_tiles(const ConvShape& shape, int in_rows, int count) {
  int most = 0;
  // Behind as many tiles as an image has positions everything repeats itself.
  const std::int64_t tiles =
      std::min(ceil_div(shape.rows(), kResidentRows), std::int64_t{shape.out_h} * shape.out_w);
  for (std::int64_t t = 0; t < tiles; ++t)
    most = std::max(most, rows_read(shape, in_rows, t * kResidentRows, std::int64_t{count} * kResidentRows));
  return most;
}

ResidentPlan plan_of(const ConvShape& shape, const KeptDepth& depth, int columns) {
  ResidentPlan plan;
  plan.columns = columns;
  plan.groups = most_resident_groups(columns);
  plan.pixel_bytes = pixel_bytes_of(shape);
  plan.planes = static_cast<int>(ceil_div(shape.in_c * 2, plan.pixel_bytes));
  plan.box_pixels = (shape.out_w - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation_w + 1;
  plan.pitch = static_cast<int>(ceil_div(plan.box_pixels, 8)) * 8;
  plan.in_rows = (shape.out_h - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  plan.steps = depth.most_steps(columns);
  plan.places = plan.steps * (kTileDepth / 16) + kAhead;
  const int fixed = plan.steps * columns * kTileDepth * 2 + plan.places * 2 * static_cast<int>(sizeof(int));
  const int left = kResidentShared - kResidentReserved - 1024 - fixed;  // 1024: to begin at a multiple of it
  plan.ring_rows = left > 0 ? std::min(left / plan.row_bytes(), kResidentMostRing) : 0;
  plan.shared_bytes = fixed + plan.ring_rows * plan.row_bytes() + 1024;
  return plan;
}

}  // namespace

std::string ResidentPlan::name() const {
  return fmt::format("{}/{}", columns, groups);
}

std::optional<std::string> refuse_resident(const ConvShape& shape, const KeptDepth& depth) {
  if (shape.out_c % 8 != 0) return "outputs must be a multiple of 8";
  const ResidentPlan narrow = plan_of(shape, depth, 64);
  if (narrow.box_pixels > kMostBox)
    return fmt::format("rows of {} pixels; at most {} are copied at once", narrow.box_pixels, kMostBox);
  // Only the rows and pixels that windows begin at would be needed.
  if (shape.stride_h > (shape.kernel_h - 1) * shape.dilation_h + 1 ||
      shape.stride_w > (shape.kernel_w - 1) * shape.dilation_w + 1)
    return "windows leave out pixels of x";
  const int rows = rows_of_tiles(shape, narrow.in_rows, 1);
  if (narrow.steps > kResidentMostSteps || narrow.ring_rows < rows)
    return fmt::format(
        "the weights of 64 outputs ({} KiB) and {} rows of x ({} KiB) do not fit into shared memory",
        narrow.steps * 64 * kTileDepth * 2 >> 10, rows, rows * narrow.row_bytes() >> 10);
  return std::nullopt;
}

std::vector<ResidentPlan> resident_plans(const ConvShape& shape, const KeptDepth& depth) {
  std::vector<ResidentPlan> plans;
  if (refuse_resident(shape, depth)) return plans;
  for (const int columns : {128, 64}) {
    ResidentPlan plan = plan_of(shape, depth, columns);
    if (columns == 128 && (shape.out_c <= 64 || plan.steps > kResidentMostSteps ||
                           plan.ring_rows < rows_of_tiles(shape, plan.in_rows, 1)))
      continue;
    for (; plan.groups >= 1; --plan.groups) {
      // From a group's tile to its next lie less than two rounds of the ring: its rows have two barriers.
      if (rows_of_tiles(shape, plan.in_rows, plan.groups + 1) <= 2 * plan.ring_rows) plans.push_back(plan);
    }
  }
  return plans;
}

int resident_blocks(const ConvShape& shape, const KeptDepth& depth, int tile, int columns) {
  if (depth.all()) return static_cast<int>(shape.depth() / block_units(shape));
  return static_cast<int>(depth.blocks(tile, columns).size());
}

std::vector<int> resident_places(const ConvShape& shape, const KeptDepth& depth, const ResidentPlan& plan) {
  const int per_tap = shape.in_c / block_units(shape);
  const int per_plane = plan.pixel_bytes / kChunkBytes;
  const auto tiles = static_cast<std::size_t>(ceil_div(shape.out_c, plan.columns));
  const auto half = static_cast<std::size_t>(plan.places);
  std::vector<int> all(tiles * half * 2);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    std::size_t i = 0;
    for (const int block : depth.blocks(static_cast<int>(tile), plan.columns)) {
      const int down = block / per_tap / shape.kernel_w * shape.dilation_h;
      const int right = block / per_tap % shape.kernel_w * shape.dilation_w;
      const int chunk = block % per_tap;
      all[(tile * 2 + i % 2) * half + i / 2] = down * plan.row_bytes() +
                                               chunk / per_plane * plan.plane_bytes() +
                                               right * plan.pixel_bytes + chunk % per_plane * kChunkBytes;
      ++i;
    }
  }
  return all;
}

bool places_are_paired(const ResidentPlan& plan, const std::vector<int>& places) {
  for (std::size_t half = 0; half < places.size(); half += static_cast<std::size_t>(plan.places)) {
    for (std::size_t i = half; i + 1 < half + static_cast<std::size_t>(plan.places); i += 2) {
      const bool filler = places[i] == 0 && places[i + 1] == 0;
      if (!filler && (places[i] % 64 >= 32 || places[i + 1] != places[i] + 32)) return false;
    }
  }
  return true;
}

}  // namespace pipit::cuda
