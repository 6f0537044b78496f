#include "apps/display/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/display/table.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

using tools::ModelProfile;

struct SortKey {
  std::string name;
  double ms = 0;
  std::int64_t macs = 0;
};

// "ms", "p10", "p90".
template <typename Timed>
void add_times(std::vector<std::string>& cells, const Timed& timed) {
  for (const double ms : {timed.median_ms, timed.p10_ms, timed.p90_ms})
    cells.push_back(fmt::format("{:.4f}", ms));
}

double gflops(std::int64_t macs, double ms) {
  return ms > 0 ? 2e-6 * static_cast<double>(macs) / ms : 0;
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
                      const ModelProfile& profile, std::string_view what) {
  if (shown.size() == rows.size()) return {};
  double ms = 0;
  for (const SortKey& row : rows) ms += row.ms;
  for (const std::size_t r : shown) ms -= rows[r].ms;
  return fmt::format("... and {} more, {:.4f} ms, {:.1f}%\n",
                     counted(static_cast<std::int64_t>(rows.size() - shown.size()), what), ms,
                     100 * ms / profile.layers_ms);
}

// The floors of all layers beside the time that they take, and the convolutions alone.
std::string floor_summary(const tools::FloorSummary& floors, double ms, bool on_gpu) {
  std::string bounds;
  for (const tools::FloorSummary::Bound& part : floors.bounds)
    bounds += fmt::format("{}{} {:.0f} %", bounds.empty() ? "" : ", ", part.bound, 100 * part.ms / floors.ms);
  std::string text = fmt::format("floor          {:9.4f} ms   {}; {} {:.1f} times as long\n", floors.ms,
                                 bounds, on_gpu ? "the graph takes" : "the layers take", ms / floors.ms);
  if (floors.convolution_macs == 0) return text;
  text += fmt::format("convolutions   {:9.4f} ms   {:.1f} GFLOP/s with padding, {:.1f}% of the peak",
                      floors.convolutions_ms, gflops(floors.convolution_macs, floors.convolutions_ms),
                      100 * floors.convolutions_share_of_peak);
  if (floors.convolutions_share_of_tiles > 0)
    text +=
        fmt::format(", {:.1f}% of tiles in the first-level cache", 100 * floors.convolutions_share_of_tiles);
  return text + "\n";
}

// The rates that floors are made of.
std::string ceilings_line(const tools::MachineCeilings& ceilings) {
  std::string arithmetic, memory;
  for (const char* products : {"fp32", "fp16", "bf16", "int8"}) {
    if (const double best = ceilings.flops(products); best > 0)
      arithmetic += fmt::format("{}{} {:.4g}", arithmetic.empty() ? "" : ", ", products, 1e-9 * best);
  }
  for (const tools::MemoryCeiling& level : ceilings.memory)
    memory += fmt::format("{}{} {:.4g}", memory.empty() ? "" : ", ", level.name, 1e-9 * level.read.best);
  return fmt::format("ceilings       {} GFLOP/s; reading {} GB/s; of {}\n", arithmetic, memory,
                     ceilings.measured_at);
}

// The positions of the rows that are shown, in their order.
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

// What stands over the columns of a setting: its label, or where all labels do not fit a number, with a list of them.
struct Titles {
  std::vector<std::string> of;
  std::string list;
};

Titles titles_of(const std::vector<ModelProfile>& profiles, int width) {
  constexpr std::size_t kName = 20, kRatio = 6, kRest = 5;  // "x", " ms" and gaps
  std::size_t all = kName;
  Titles titles;
  for (const ModelProfile& profile : profiles) {
    titles.of.push_back(profile.label);
    all += profile.label.size() + kRatio + kRest;
  }
  if (width == 0 || all <= static_cast<std::size_t>(width)) return titles;
  for (std::size_t p = 0; p < profiles.size(); ++p) {
    titles.of[p] = fmt::format("{}:", p + 1);
    titles.list += fmt::format("{} {}\n", titles.of[p], profiles[p].label);
  }
  return titles;
}

std::vector<std::string> joined_cells(const tools::JoinedLayer& layer) {
  std::vector<std::string> cells = {layer.name, layer.type};
  bool first = true;
  for (const auto& times : layer.times) {
    if (times) {
      add_times(cells, *times);
    } else {
      cells.insert(cells.end(), 3, "");
    }
    if (!first) cells.push_back(times && times->speedup > 0 ? fmt::format("{:.2f}", times->speedup) : "");
    first = false;
  }
  for (const auto& times : layer.times) cells.push_back(times ? times->kernels : "");
  return cells;
}

}  // namespace

std::string layer_table(const ModelProfile& profile, const TableView& view) {
  using enum Table::Align;
  std::vector<Table::Column> columns{{"#", right, 6},       {"layer", left, 0, true}, {"type", left, 5},
                                     {"kernel", left, 2},   {"input", left, 10},      {"output", left, 9},
                                     {"geometry", left, 8}, {"MACs", right, 4},       {"ms", right},
                                     {"p10", right, 7},     {"p90", right, 1},        {"share", right},
                                     {"GFLOP/s", right, 3}};
  if (view.memory) columns.insert(columns.end(), {{"weights MiB", right}, {"workspace MiB", right}});
  const bool floors = !profile.layers.empty() && profile.layers[0].floor;
  if (floors)
    columns.insert(columns.end(),
                   {{"FLOP/B", right, 4}, {"floor us", right, 3}, {"of limit", right}, {"bound"}});
  Table table(std::move(columns));
  std::vector<SortKey> keys;
  for (const tools::LayerTime& layer : profile.layers)
    keys.push_back({layer.name, layer.median_ms, layer.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  for (const std::size_t r : shown) {
    const tools::LayerTime& layer = profile.layers[r];
    std::vector<std::string> cells{fmt::format("{}", r), layer.name,           layer.type,
                                   layer.kernel,         layer.input.str(),    layer.output.str(),
                                   layer.geometry,       macs_cell(layer.macs)};
    add_times(cells, layer);
    cells.push_back(fmt::format("{:.1f}%", 100 * layer.median_ms / profile.layers_ms));
    cells.push_back(rate_cell(layer.macs, layer.median_ms));
    if (view.memory) {
      cells.push_back(mebibytes_cell(layer.weight_bytes));
      cells.push_back(mebibytes_cell(layer.workspace_bytes));
    }
    if (floors) {
      cells.push_back(layer.flop_per_byte > 0 ? fmt::format("{:.1f}", layer.flop_per_byte) : "");
      cells.push_back(fmt::format("{:.2f}", 1e3 * layer.floor->ms));
      cells.push_back(fmt::format("{:.1f}%", 100 * layer.floor->share));
      cells.push_back(layer.floor->bound);
    }
    table.add(std::move(cells));
  }
  return table.str(0, view.width) + rest_line(keys, shown, profile, "layer");
}

std::string group_table(const ModelProfile& profile, tools::GroupBy by, const TableView& view) {
  using enum Table::Align;
  Table table({{by == tools::GroupBy::type ? "type" : "kernel", left, 0, true},
               {"layers", right},
               {"MACs", right, 1},
               {"ms", right},
               {"p10", right, 3},
               {"p90", right, 2},
               {"share", right},
               {"GFLOP/s", right, 4}});
  std::vector<SortKey> keys;
  for (const tools::LayerGroup& group : profile.groups)
    keys.push_back({group.name, group.median_ms, group.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  for (const std::size_t g : shown) {
    const tools::LayerGroup& group = profile.groups[g];
    std::vector<std::string> cells{group.name, fmt::format("{}", group.layers), macs_cell(group.macs)};
    add_times(cells, group);
    cells.push_back(fmt::format("{:.1f}%", 100 * group.median_ms / profile.layers_ms));
    cells.push_back(rate_cell(group.macs, group.median_ms));
    table.add(std::move(cells));
  }
  return table.str(0, view.width) +
         rest_line(keys, shown, profile, by == tools::GroupBy::type ? "type" : "kernel");
}

std::string joined_table(const tools::ProfileResult& result, const TableView& view) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"layer", left, 0, true}, {"type", left, 2}};
  const Titles titles = titles_of(result.profiles, view.width);
  for (std::size_t p = 0; p < titles.of.size(); ++p) {
    // Ratios stay: they are what several settings are run for.
    columns.push_back({titles.of[p] + " ms", right, p > 0 ? 1 : 0});
    columns.push_back({"p10", right, 4});
    columns.push_back({"p90", right, 3});
    if (p > 0) columns.push_back({titles.list.empty() ? "x" : titles.of[p] + " x", right});
  }
  for (const std::string& title : titles.of) columns.push_back({"kernel " + title, left, 5});
  Table table(std::move(columns));
  std::vector<SortKey> keys;
  for (const tools::JoinedLayer& layer : result.joined)
    keys.push_back({layer.name, layer.times[0] ? layer.times[0]->median_ms : 0, layer.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  for (const std::size_t r : shown) table.add(joined_cells(result.joined[r]));
  if (shown.size() < keys.size()) {
    const auto more = static_cast<std::int64_t>(keys.size() - shown.size());
    table.add({fmt::format("... and {} more", counted(more, "layer"))});
  }
  for (const tools::JoinedLayer& total : result.joined_totals) table.add(joined_cells(total));
  return titles.list + table.str(0, view.width);
}

std::string memory_table(const ModelProfile& profile, int width) {
  const tools::MemoryUse& use = profile.memory;
  const bool on_gpu = profile.device == DeviceKind::cuda;
  constexpr const char* kWhat = "what it is";
  Table table({{"memory"}, {"size", Table::Align::right}, {kWhat}});
  const auto add = [&](const char* name, std::size_t bytes, std::string what) {
    table.add({name, mebibytes(bytes), std::move(what)});
  };
  const auto less = [](std::size_t all, std::size_t part) { return all - std::min(all, part); };
  add("weights", use.weight_bytes,
      "of the graph that runs, as it stores them; freed once a kernel has packed them");
  add("packed", use.packed_bytes,
      use.most_packed.empty()
          ? "no kernel packs any"
          : fmt::format("in the order in which kernels read them; most of them '{}'", use.most_packed));
  add("constants", use.constant_bytes, "that kernels read as they are");
  add("arena", use.arena_bytes,
      profile.layers.empty()
          ? "nothing runs"
          : fmt::format("activations and workspace of a run; {} must exist at once, in '{}'",
                        mebibytes(use.peak_live_bytes), use.most_live));
  add("workspace", use.workspace_bytes,
      use.most_workspace.empty() ? "no kernel needs any"
                                 : fmt::format("inside the arena; '{}' needs the most", use.most_workspace));
  const std::size_t planned = use.packed_bytes + use.constant_bytes + use.arena_bytes;
  if (on_gpu) {
    add("device", use.device_bytes,
        fmt::format("held on the GPU beyond its context; {} of it code of kernels and what libraries took",
                    mebibytes(less(use.device_bytes, planned))));
    add("device peak", use.device_peak_bytes, "at worst, while planning");
  }
  add("process", use.rss_bytes,
      on_gpu
          ? "resident on the host when the runs were done"
          : fmt::format("resident when the runs were done; {} of it program, libraries, inputs and allocator",
                        mebibytes(less(use.rss_bytes, planned))));
  add("process peak", use.peak_rss_bytes, "at worst, reading the model and planning included");
  const std::string text = table.str();
  return wrapped(text, text.find(kWhat), width);
}

std::string profile_summary(const ModelProfile& profile) {
  std::int64_t total_macs = 0;
  for (const tools::LayerTime& layer : profile.layers) total_macs += layer.macs;
  std::string text = fmt::format(
      "sum of layers  {:9.4f} ms   {} MACs, {:.1f} GFLOP/s   (median of {} runs)\n", profile.layers_ms,
      with_prefix(static_cast<double>(total_macs)), gflops(total_macs, profile.layers_ms), profile.runs);
  if (profile.micro_batches > 1) {
    text += fmt::format("micro-batches  {:9} runs   {}; a layer's time is the sum of them\n",
                        profile.micro_batches, profile.micro_batch_text);
  }
  const bool on_gpu = profile.graph_ms > 0;
  if (on_gpu)
    text += fmt::format("graph          {:9.4f} ms   device time of one replay\n", profile.graph_ms);
  text += fmt::format("end to end     {:9.4f} ms   p10 {:.4f}, p90 {:.4f}{}\n", profile.end_to_end_ms,
                      profile.end_to_end_p10_ms, profile.end_to_end_p90_ms,
                      on_gpu ? "; with copies in and out" : "");
  if (!on_gpu) {
    text += fmt::format(
        "unexplained    {:9.4f} ms   {:.2f}% (of it about {:.4f} ms are the profiler's clock reads)\n",
        profile.residual_ms, 100 * profile.residual_ms / profile.end_to_end_ms, profile.overhead_ms);
  }
  if (!profile.floors) return text;
  return text + floor_summary(*profile.floors, on_gpu ? profile.graph_ms : profile.layers_ms, on_gpu) +
         ceilings_line(profile.floors->ceilings);
}

}  // namespace pipit::internal::apps
