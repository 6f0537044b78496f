#include "apps/display/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/display/table.h"
#include "engine/base/statistics.h"
#include "pipit/detail/memory_use.h"

namespace pipit::internal::apps {

namespace {

constexpr double kMaxReferenceShare = 0.01;

// "ms", "p10", "p90".
std::vector<std::string> time_cells(const std::vector<double>& ms, double median_ms) {
  return {fmt::format("{:.4f}", median_ms), fmt::format("{:.4f}", quantile(ms, 0.1)),
          fmt::format("{:.4f}", quantile(ms, 0.9))};
}

std::string macs_cell(std::int64_t macs) {
  return macs > 0 ? with_prefix(static_cast<double>(macs)) : "";
}

std::string mebibytes_cell(std::size_t bytes) {
  return bytes > 0 ? fmt::format("{:.3f}", static_cast<double>(bytes) / 1048576.0) : "";
}

std::string rate_cell(std::int64_t macs, double ms) {
  return macs > 0 ? fmt::format("{:.1f}", gflops(macs, ms)) : "";
}

// What --top leaves out.
std::string rest_line(const std::vector<SortKey>& rows, const std::vector<std::size_t>& shown,
                      const Profile& profile, std::string_view what) {
  if (shown.size() == rows.size()) return {};
  double ms = 0;
  for (const SortKey& row : rows) ms += row.ms;
  for (const std::size_t r : shown) ms -= rows[r].ms;
  return fmt::format("... and {} more, {:.4f} ms, {:.1f}%\n",
                     counted(static_cast<std::int64_t>(rows.size() - shown.size()), what), ms,
                     100 * ms / profile.layers_ms);
}

// The floors of all layers beside the time that they take, and the convolutions alone.
std::string floor_summary(const std::vector<LayerRow>& rows, double ms, bool on_gpu) {
  const FloorSum sum(rows);
  std::string bounds;
  for (const auto& [bound, part] : sum.bounds)
    bounds += fmt::format("{}{} {:.0f} %", bounds.empty() ? "" : ", ", bound, 100 * part / sum.ms);
  std::string text = fmt::format("floor          {:9.4f} ms   {}; {} {:.1f} times as long\n", sum.ms, bounds,
                                 on_gpu ? "the graph takes" : "the layers take", ms / sum.ms);
  const Convolutions convolutions(rows);
  if (convolutions.macs == 0) return text;
  text += fmt::format("convolutions   {:9.4f} ms   {:.1f} GFLOP/s with padding, {:.1f}% of the peak",
                      convolutions.ms, gflops(convolutions.macs, convolutions.ms),
                      100 * convolutions.at_peak_ms / convolutions.ms);
  if (convolutions.in_tiles_ms > 0)
    text += fmt::format(", {:.1f}% of tiles in the first-level cache",
                        100 * convolutions.in_tiles_ms / convolutions.ms);
  return text + "\n";
}

// The rates that floors are made of.
std::string ceilings_line(const Ceilings& ceilings) {
  std::string arithmetic, memory;
  for (const Products products : {Products::fp32, Products::fp16, Products::bf16, Products::int8}) {
    if (const ArithmeticCeiling* best = ceilings.find(products)) {
      arithmetic += fmt::format("{}{} {:.4g}", arithmetic.empty() ? "" : ", ", products_name(products),
                                1e-9 * best->flops.best);
    }
  }
  for (const MemoryCeiling& level : ceilings.memory)
    memory += fmt::format("{}{} {:.4g}", memory.empty() ? "" : ", ", level.name, 1e-9 * level.read.best);
  return fmt::format("ceilings       {} GFLOP/s; reading {} GB/s; of {}\n", arithmetic, memory,
                     ceilings.measured_at);
}

}  // namespace

std::vector<std::size_t> shown_rows(const std::vector<SortKey>& rows, const TableView& view) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    switch (view.sort) {
      case LayerOrder::ms:
        return rows[a].ms > rows[b].ms;
      case LayerOrder::macs:
        return rows[a].macs > rows[b].macs;
      case LayerOrder::name:
        return rows[a].name < rows[b].name;
      case LayerOrder::order:
        break;
    }
    return false;
  });
  if (view.top > 0 && order.size() > static_cast<std::size_t>(view.top))
    order.resize(static_cast<std::size_t>(view.top));
  return order;
}

std::string layer_table(const std::vector<LayerRow>& rows, const Profile& profile, const TableView& view) {
  using enum Table::Align;
  std::vector<Table::Column> columns{{"#", right, 6},       {"layer", left, 0, true}, {"type", left, 5},
                                     {"kernel", left, 2},   {"input", left, 10},      {"output", left, 9},
                                     {"geometry", left, 8}, {"MACs", right, 4},       {"ms", right},
                                     {"p10", right, 7},     {"p90", right, 1},        {"share", right},
                                     {"GFLOP/s", right, 3}};
  if (view.memory) columns.insert(columns.end(), {{"weights MiB", right}, {"workspace MiB", right}});
  const bool floors = !rows.empty() && rows[0].floor;
  if (floors)
    columns.insert(columns.end(),
                   {{"FLOP/B", right, 4}, {"floor us", right, 3}, {"of limit", right}, {"bound"}});
  Table table(std::move(columns));
  std::vector<SortKey> keys;
  for (const LayerRow& row : rows) keys.push_back({row.info.name, row.median_ms, row.info.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  for (const std::size_t r : shown) {
    const LayerRow& row = rows[r];
    const StepInfo& info = row.info;
    std::vector<std::string> cells{fmt::format("{}", info.index),
                                   info.name,
                                   info.type,
                                   info.kernel,
                                   info.input.str(),
                                   info.output.str(),
                                   info.geometry,
                                   macs_cell(info.macs)};
    for (std::string& cell : time_cells(row.ms, row.median_ms)) cells.push_back(std::move(cell));
    cells.push_back(fmt::format("{:.1f}%", 100 * row.median_ms / profile.layers_ms));
    cells.push_back(rate_cell(info.macs, row.median_ms));
    if (view.memory) {
      const detail::StepMemory memory = detail::step_memory(*row.step);
      cells.push_back(mebibytes_cell(memory.packed + memory.constants));
      cells.push_back(mebibytes_cell(memory.workspace));
    }
    if (floors) {
      const double intensity = info.work.intensity();
      cells.push_back(intensity > 0 ? fmt::format("{:.1f}", intensity) : "");
      cells.push_back(fmt::format("{:.2f}", 1e3 * row.floor->ms));
      cells.push_back(fmt::format("{:.1f}%", 100 * row.floor->share_of(row.median_ms)));
      cells.push_back(row.floor->bound);
    }
    table.add(std::move(cells));
  }
  return table.str(0, view.width) + rest_line(keys, shown, profile, "layer");
}

std::string group_table(const std::vector<LayerRow>& rows, const Profile& profile, GroupBy by,
                        const TableView& view) {
  using enum Table::Align;
  Table table({{by == GroupBy::type ? "type" : "kernel", left, 0, true},
               {"layers", right},
               {"MACs", right, 1},
               {"ms", right},
               {"p10", right, 3},
               {"p90", right, 2},
               {"share", right},
               {"GFLOP/s", right, 4}});
  const std::vector<LayerGroup> groups = layer_groups(rows, by);
  std::vector<SortKey> keys;
  for (const LayerGroup& group : groups) keys.push_back({group.name, group.median_ms, group.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  for (const std::size_t g : shown) {
    const LayerGroup& group = groups[g];
    std::vector<std::string> cells{group.name, fmt::format("{}", group.layers), macs_cell(group.macs)};
    for (std::string& cell : time_cells(group.ms, group.median_ms)) cells.push_back(std::move(cell));
    cells.push_back(fmt::format("{:.1f}%", 100 * group.median_ms / profile.layers_ms));
    cells.push_back(rate_cell(group.macs, group.median_ms));
    table.add(std::move(cells));
  }
  return table.str(0, view.width) + rest_line(keys, shown, profile, by == GroupBy::type ? "type" : "kernel");
}

std::string reference_note(const std::vector<LayerRow>& rows, const Profile& profile) {
  const ReferenceTime time(rows);
  if (time.ms <= kMaxReferenceShare * profile.layers_ms) return {};
  const StepInfo& info = time.slowest->info;
  return fmt::format(
      "note: {} on reference kernels, plain loops, {} {:.4f} of {:.4f} ms ({:.0f}%), most of it '{}' "
      "({}{}{}); "
      "'pipit inspect --why' says why no faster kernel takes it",
      time.steps == 1 ? "1 layer" : fmt::format("{} layers", time.steps), time.steps == 1 ? "takes" : "take",
      time.ms, profile.layers_ms, 100 * time.ms / profile.layers_ms, info.name, info.type,
      info.geometry.empty() ? "" : " ", info.geometry);
}

std::string describe(const MicroBatches& batches) {
  if (!batches.cut()) return "none: " + batches.why;
  return fmt::format("{} of {} samples at a time: {}", batches.size, batches.samples, batches.why);
}

std::string profile_summary(const std::vector<LayerRow>& rows, const ExecutionPlan& plan,
                            const Profile& profile, const Ceilings& ceilings) {
  std::int64_t total_macs = 0;
  for (const LayerRow& row : rows) total_macs += row.info.macs;
  std::string text = fmt::format(
      "sum of layers  {:9.4f} ms   {} MACs, {:.1f} GFLOP/s   (median of {} runs)\n", profile.layers_ms,
      with_prefix(static_cast<double>(total_macs)), gflops(total_macs, profile.layers_ms), profile.runs);
  if (const MicroBatches& batches = plan.micro_batches(); batches.cut()) {
    text += fmt::format("micro-batches  {:9} runs   {}; a layer's time is the sum of them\n", batches.count(),
                        describe(batches));
  }
  const bool on_gpu = profile.graph_ms > 0;
  if (on_gpu)
    text += fmt::format("graph          {:9.4f} ms   device time of one replay\n", profile.graph_ms);
  text += fmt::format("end to end     {:9.4f} ms   p10 {:.4f}, p90 {:.4f}{}\n", profile.end_to_end_ms,
                      quantile(profile.run_ms, 0.1), quantile(profile.run_ms, 0.9),
                      on_gpu ? "; with copies in and out" : "");
  if (!on_gpu) {
    text += fmt::format(
        "unexplained    {:9.4f} ms   {:.2f}% (of it about {:.4f} ms are the profiler's clock reads)\n",
        profile.residual_ms, 100 * profile.residual_ms / profile.end_to_end_ms, profile.overhead_ms);
  }
  if (!ceilings.known()) return text;
  return text + floor_summary(rows, on_gpu ? profile.graph_ms : profile.layers_ms, on_gpu) +
         ceilings_line(ceilings);
}

}  // namespace pipit::internal::apps
