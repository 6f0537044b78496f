#include "layers/cpu/tile/kept_steps.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace pipit::internal {

namespace {

// A step for itself costs up to 2 % more than one of many (widened bytes on Zen 3, whose tiles wait for instructions
// rather than for multiplications; others nothing): TileCall::run of 1 has a loop of its own. Two or four together cost
// more than that, so nothing lies between.
constexpr double kLoneStep = 1.02;

}  // namespace

KeptSteps::KeptSteps(const TilePanels& panels, std::int64_t groups, std::int64_t run)
    : run_(static_cast<std::int32_t>(run)) {
  for (std::int64_t step = 0; step < panels.steps; step += run)
    starts_.push_back(static_cast<std::int32_t>(step));
  for (std::int64_t p = 0; p < groups * panels.count(); ++p)
    add(panels, p % panels.count(), 0, std::ssize(starts_));
}

KeptSteps::KeptSteps(const TilePanels& panels, std::int64_t groups, std::int64_t run,
                     std::span<const std::uint8_t> marks)
    : run_(static_cast<std::int32_t>(run)) {
  for (std::int64_t p = 0; p < groups * panels.count(); ++p) {
    const auto of_panel =
        marks.subspan(static_cast<std::size_t>(p * panels.steps), static_cast<std::size_t>(panels.steps));
    const std::int64_t first = std::ssize(starts_);
    for (std::int64_t step = 0; step < panels.steps; step += run) {
      const auto begin = of_panel.begin() + step;
      if (std::any_of(begin, begin + run, [](std::uint8_t mark) { return mark != 0; }))
        starts_.push_back(static_cast<std::int32_t>(step));
    }
    add_starts_behind(first, panels);
  }
  set_share(panels);
}

KeptSteps::KeptSteps(const TilePanels& panels, std::span<const std::vector<std::int32_t>> blocks_of_panels)
    : run_(1), picked_(true) {
  for (const std::vector<std::int32_t>& blocks : blocks_of_panels) {
    const std::int64_t first = std::ssize(starts_);
    starts_.insert(starts_.end(), blocks.begin(), blocks.end());
    add_starts_behind(first, panels);
  }
  set_share(panels);
}

// The next panel's. The list of the panel before serves as well where it is the same.
void KeptSteps::add_starts_behind(std::int64_t first, const TilePanels& panels) {
  const std::int64_t p = std::ssize(panels_);
  const std::int64_t count = std::ssize(starts_) - first;
  std::int64_t shared = first;
  if (p > 0 && at(p - 1).count == count &&
      std::equal(starts_.begin() + first, starts_.end(), starts_.begin() + at(p - 1).first)) {
    shared = at(p - 1).first;
    starts_.resize(static_cast<std::size_t>(first));
  }
  add(panels, p % panels.count(), shared, count);
}

void KeptSteps::set_share(const TilePanels& panels) {
  std::int64_t columns = 0;
  std::int64_t kept = 0;
  for (std::int64_t p = 0; p < std::ssize(panels_); ++p) {
    columns += panels.columns(p % panels.count());
    kept += at(p).count * run_ * panels.columns(p % panels.count());
  }
  if (columns * panels.steps > 0)
    share_ = static_cast<double>(kept) / static_cast<double>(columns * panels.steps);
}

void KeptSteps::add(const TilePanels& panels, std::int64_t in_group, std::int64_t first, std::int64_t count) {
  const std::int64_t bytes = count * run_ * panels.step_bytes(in_group);
  panels_.push_back({first, count, bytes_, bytes});
  bytes_ += bytes;
}

PanelSteps KeptSteps::steps(std::int64_t panel) const {
  const Panel& of = at(panel);
  return {std::span(starts_).subspan(static_cast<std::size_t>(of.first), static_cast<std::size_t>(of.count)),
          run_};
}

double KeptSteps::mean_runs() const {
  std::int64_t runs = 0;
  for (const Panel& panel : panels_) runs += panel.count;
  return panels_.empty() ? 0 : static_cast<double>(runs) / static_cast<double>(panels_.size());
}

template <typename T>
void mark_steps(const TilePanels& panels, std::int64_t p, const WeightsOf<T>& weights, std::uint8_t* marks) {
  const std::int64_t inner_steps = ceil_div(weights.inner_count, panels.step);
  const T* filter = weights.data;
  for (std::int64_t o = 0; o < panels.columns(p); ++o, filter += weights.output_stride) {
    for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
      const T* from = filter + outer * weights.outer_stride;
      std::uint8_t* const to = marks + outer * inner_steps;
      for (std::int64_t inner = 0; inner < weights.inner_count; ++inner)
        to[inner / panels.step] |= static_cast<std::uint8_t>(from[inner * weights.inner_stride] != T{0});
    }
    // In a dense layer after the first output.
    if (std::find(marks, marks + panels.steps, 0) == marks + panels.steps) break;
  }
}

template void mark_steps(const TilePanels&, std::int64_t, const WeightsOf<std::int8_t>&, std::uint8_t*);

template <typename T>
std::vector<std::uint8_t> steps_with_weights(const TilePanels& panels, std::int64_t groups,
                                             WeightsOf<T> weights) {
  std::vector<std::uint8_t> marks(static_cast<std::size_t>(groups * panels.count() * panels.steps), 0);
  std::uint8_t* of_panel = marks.data();
  const T* const data = weights.data;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t p = 0; p < panels.count(); ++p, of_panel += panels.steps) {
      weights.data = data + (g * panels.outputs + p * panels.panel) * weights.output_stride;
      mark_steps(panels, p, weights, of_panel);
    }
  }
  return marks;
}

template std::vector<std::uint8_t> steps_with_weights(const TilePanels&, std::int64_t, WeightsOf<float>);
template std::vector<std::uint8_t> steps_with_weights(const TilePanels&, std::int64_t,
                                                      WeightsOf<std::int8_t>);

KeptSteps kept_steps(const TilePanels& panels, std::int64_t groups, std::int64_t segment,
                     std::span<const std::uint8_t> marks) {
  if (std::find(marks.begin(), marks.end(), 0) == marks.end()) return {panels, groups, segment};
  KeptSteps whole(panels, groups, segment, marks);
  KeptSteps lone(panels, groups, 1, marks);
  return kLoneStep * lone.share() < whole.share() ? lone : whole;
}

KeptForTiles kept_for_tiles(const TileKernels& dense, const TileKernels& below, const TilePanels& panels,
                            std::int64_t groups, std::int64_t segment, std::span<const std::uint8_t> marks) {
  KeptSteps few = kept_steps(panels, groups, segment, marks);
  if (dense.isa != Isa::amx || few.share() == 1) return {dense, std::move(few)};
  // Blocks as long as AMX multiplies at a time.
  KeptSteps blocks(panels, groups, amx_steps(segment), marks);
  const double steps_below = kLoneStep * few.mean_runs() * few.run();
  if (amx_cost(blocks.mean_runs(), blocks.run()) <= steps_below) return {dense, std::move(blocks)};
  return {below, std::move(few)};
}

}  // namespace pipit::internal
