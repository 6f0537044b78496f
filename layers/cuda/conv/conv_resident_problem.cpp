#include "layers/cuda/conv/conv_resident_problem.h"

#include <fmt/format.h>

#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"

namespace pipit::cuda {

namespace {

}  // namespace

Refusal refuse_resident_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return refuse_resident(shape, blocks_with_weights(spec, shape));
}

std::vector<ResidentWay> resident_ways(const NodeSpec& spec, const ConvShape& shape) {
  std::vector<ResidentWay> ways;
  for (const ResidentPlan& plan : resident_plans(shape, blocks_with_weights(spec, shape))) {
    // A group alone was never faster than two.
    if (ways.empty() || plan.groups > 1) ways.push_back({plan, true});
    if (ways.size() == 1) ways.push_back({plan, false});
  }
  return ways;
}

std::vector<std::string> resident_variants(const NodeSpec& spec, const ConvShape& shape) {
  std::vector<std::string> names;
  for (const ResidentWay& way : resident_ways(spec, shape)) names.push_back(way.name());
  return names;
}

ResidentWay resident_way(const NodeSpec& spec, const ConvShape& shape) {
  const std::vector<ResidentWay> ways = resident_ways(spec, shape);
  if (spec.variant.empty()) return ways.front();
  for (const ResidentWay& way : ways) {
    if (way.name() == spec.variant) return way;
  }
  fail("there is no variant '{}'", spec.variant);
}

double resident_kept_share(const NodeSpec& spec, const ConvShape& shape) {
  return blocks_with_weights(spec, shape).share(resident_way(spec, shape).plan.columns);
}

Estimate resident_estimate(const NodeSpec& spec, const ConvShape& shape) {
  const ResidentWay way = resident_way(spec, shape);
  const int processors = processors_of(spec.gpu);
  const std::int64_t tiles = ceil_div(shape.rows(), kResidentRows),
                     column_tiles = ceil_div(shape.out_c, way.plan.columns);
  const std::int64_t workers = std::clamp<std::int64_t>(processors / column_tiles, 1, tiles);
  LaunchTerms terms;
  terms.steps = way.plan.steps;
  terms.rounds = static_cast<double>(ceil_div(tiles, workers) * ceil_div(column_tiles, processors));
  terms.blocks = static_cast<double>(tiles * column_tiles) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.again = 1e-6 * static_cast<double>(spec.inputs[0]->bytes()) * static_cast<double>(column_tiles - 1);
  terms.waits = way.overlap ? 0 : 1;
  return estimate_of(fmt::format("resident_gemm {} {}", shape.int8 ? "i8" : "f16", way.plan.name()), terms);
}

ResidentProblem::ResidentProblem(const NodeSpec& spec, const ConvShape& shape)
    : shape_(shape), depth_(blocks_with_weights(spec, shape)), way_(resident_way(spec, shape)) {
  const ResidentPlan& plan = way_.plan;
  const std::vector<int> places = resident_places(shape, depth_, plan);
  places_ = DeviceBuffer(places.data(), places.size() * sizeof(int));
  paired_ = places_are_paired(plan, places);
  std::vector<int> blocks;
  for (int tile = 0; tile * plan.columns < shape.out_c; ++tile)
    blocks.push_back(resident_blocks(shape, depth_, tile, plan.columns));
  blocks_ = blocks[0];
  if (std::any_of(blocks.begin(), blocks.end(), [&](int b) { return b != blocks_; }))
    tile_blocks_ = DeviceBuffer(blocks.data(), blocks.size() * sizeof(int));
  const std::int64_t tiles = ceil_div(shape.rows(), kResidentRows);
  const auto column_tiles = static_cast<std::int64_t>(blocks.size());
  workers_ = static_cast<int>(std::clamp<std::int64_t>(processors_of(spec.gpu) / column_tiles, 1, tiles));
}

ResidentArgs ResidentProblem::args() const {
  const ResidentPlan& plan = way_.plan;
  ResidentArgs args;
  args.conv = conv_gemm_args(shape_, depth_, {kResidentRows, plan.columns, 1});
  args.conv.overlap = way_.overlap;
  args.plan = plan;
  args.places = places_.as<const int>();
  args.tile_blocks = tile_blocks_.as<const int>();
  args.blocks = blocks_;
  args.paired = paired_;
  const auto tiles = static_cast<int>(ceil_div(shape_.rows(), kResidentRows));
  args.workers = workers_;
  args.least_tiles = tiles / workers_;
  args.more_tiles = tiles % workers_;
  args.ring = Divisor(plan.ring_rows);
  args.barriers = Divisor(2 * plan.ring_rows);
  return args;
}

CUtensorMap ResidentProblem::weights_map(const void* weights) const {
  const ResidentPlan& plan = way_.plan;
  constexpr int kStepBytes = kTileDepth * 2;
  return matrix_map(weights, std::int64_t{plan.steps} * kStepBytes,
                    ceil_div(shape_.out_c, plan.columns) * plan.columns, kStepBytes, plan.columns);
}

CUtensorMap ResidentProblem::x_map(const void* x) const {
  return row_map(x, shape_, way_.plan.pixel_bytes, way_.plan.box_pixels);
}

}  // namespace pipit::cuda
