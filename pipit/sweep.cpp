#include "pipit/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "engine/platform/machine_identity.h"
#include "engine/platform/thread_pool.h"
#include "layers/cpu_kernels.h"
#include "layers/passes/pipeline.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/importance.h"
#include "pipit/detail/load.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/json_lines.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/problem_of.h"
#include "pipit/sweeping/conv_grid.h"
#include "pipit/sweeping/conv_measurement.h"
#include "pipit/sweeping/conv_rows.h"
#include "pipit/sweeping/conv_summary.h"
#include "pipit/sweeping/sparsity_measurement.h"
#include "pipit/sweeping/sparsity_rows.h"
#include "pipit/sweeping/sweep_document.h"
#include "pipit/sweeping/sweep_file.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

using Json = nlohmann::ordered_json;

bool usual(const ConvPoint& p) {
  if (p.in > p.out) return false;
  if (p.size >= 256 && p.kernel >= 9) return false;
  return p.size < 512 || (p.kernel < 7 && p.batch < 16);
}

bool on_gpu(const SweepRun& run) {
  return run.device.kind == DeviceKind::cuda;
}

void check(const SweepRun& run, const std::vector<Precision>& precisions) {
  if (!(run.seconds >= 0 && run.seconds <= 3600))
    throw ArgumentError(fmt::format("seconds is {}; expected 0 to 3600", run.seconds));
  check_single_device(run.device);
  if (run.resume && run.results.empty()) throw ArgumentError("resume needs a file of results");
  if (precisions.empty()) throw ArgumentError("precisions is empty; give at least one");
  for (const Precision precision : precisions) {
    using enum Precision;
    check_enumerator("precision", precision, w4);
    if (precision != fp32 && precision != fp16 && precision != bf16 && precision != int8)
      throw ArgumentError(fmt::format("precision {} cannot be swept; expected fp32, fp16, bf16 or int8",
                                      precision_name(precision)));
  }
  require_device(run.device.kind);
}

int threads_of(const SweepRun& run) {
  return run.device.threads == 0 ? default_threads() : run.device.threads;
}

// For the first line of results: rows of another machine, instruction set or version do not go on.
Json machine_json(const SweepRun& run) {
  const int threads = threads_of(run);
  return {{"device", on_gpu(run) ? gpu_description(0) : cpu_description()},
          {"threads", threads},
          {"machine", machine_identity(run.device.kind, 0, threads)},
          {"pipit", version()}};
}

// The rows of SweepRun::results and those that come to it.
template <typename Row>
class SweptFile {
 public:
  SweptFile(const SweepRun& run, const Json& settings, Row (*from)(const Json&), Json (*to)(const Row&))
      : lines_(run.results.string(), settings, run.resume), to_(to) {
    for (std::size_t i = 0; i < lines_.found().size(); ++i) {
      try {
        Row row = from(lines_.found()[i]);
        const std::string key = key_of(row);
        if (!rows_.try_emplace(key, std::move(row)).second) fail_repeated(key);
        order_.push_back(key);
      } catch (const Error& e) {
        fail("{}: line {}: {}", run.results.string(), i + 2, e.what());
      }
    }
  }
  bool has(const Row& row) const { return rows_.contains(key_of(row)); }
  const Row& at(const std::string& key) const { return rows_.at(key); }
  // In the order in which they were measured.
  const std::vector<std::string>& keys() const { return order_; }
  void append(const Row& row, const std::function<void(const Row&)>& tell) {
    lines_.append(to_(row));
    order_.push_back(key_of(row));
    rows_[order_.back()] = row;
    if (tell) tell(row);
  }

 private:
  JsonLines lines_;
  Json (*to_)(const Row&);
  std::map<std::string, Row> rows_;
  std::vector<std::string> order_;
};

// No base twice.
std::vector<std::string> bases_of(const ConvSweepOptions& options) {
  if (options.bases.empty()) return {on_gpu(options.run) ? "fp16" : "fp32"};
  std::vector<std::string> all;
  for (const std::string& base : options.bases) {
    if (std::ranges::find(all, base) == all.end()) all.push_back(base);
  }
  return all;
}

void check(const ConvSweepOptions& options) {
  for (const std::string& base : options.bases) {
    if (is_peer(base)) {
      if (!on_gpu(options.run)) throw ArgumentError(base + " runs on a GPU; set the device to cuda");
    } else if (base != "fp32" && base != "fp16" && base != "bf16" && base != "int8") {
      throw ArgumentError(fmt::format("unknown base '{}'; expected fp32, fp16, bf16, int8, {} or {}", base,
                                      kCudnnBase, kCudnnBestBase));
    }
  }
  const ConvGrid& grid = options.grid;
  for (const auto* extents : {&grid.batch, &grid.in, &grid.out, &grid.size, &grid.kernel, &grid.stride}) {
    const std::int64_t most = extents == &grid.kernel || extents == &grid.stride ? 255 : 65536;
    for (const std::int64_t extent : *extents) {
      if (extent < 1 || extent > most)
        throw ArgumentError(fmt::format("extent is {}; expected 1 to {}", extent, most));
    }
  }
  if (options.backends.empty()) throw ArgumentError("backends is empty; give at least one");
  check(options.run, options.precisions);
}

// A list for each layer: what its rows share is made once. No row twice: means would count it twice.
std::vector<std::vector<ConvRow>> rows_of(const ConvSweepOptions& options,
                                          const std::vector<ConvPoint>& points) {
  std::vector<std::vector<ConvRow>> layers;
  for (const ConvPoint& point : points) {
    std::vector<ConvRow>& rows = layers.emplace_back();
    for (const Precision precision : options.precisions) {
      for (const std::string& backend : options.backends) {
        ConvRow row;
        row.point = point;
        row.precision = precision;
        row.backend = backend;
        const auto same = [&](const ConvRow& other) { return key_of(other) == key_of(row); };
        if (std::ranges::none_of(rows, same)) rows.push_back(std::move(row));
      }
    }
  }
  return layers;
}

// The rows of each layer that `file` does not have, each on the disk as soon as it is there.
void measure_missing(std::vector<std::vector<ConvRow>> layers, const ConvSweepOptions& options,
                     SweptFile<ConvRow>& file, ConvSweep& result) {
  const std::int64_t total = std::ssize(layers);
  for (std::vector<ConvRow>& rows : layers)
    std::erase_if(rows, [&](const ConvRow& row) { return file.has(row); });
  std::erase_if(layers, [](const std::vector<ConvRow>& rows) { return rows.empty(); });
  if (layers.empty()) return;
  const SweepRun& run = options.run;
  ConvSweepTarget target{run.device.kind, run.device.threads, result.bases, run.seconds, {}};
  if (options.floor) target.ceilings = machine_ceilings(run.device.kind, 0, threads_of(run), run.note);
  ConvMeasurement sweep(std::move(target));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<ConvRow>& rows = layers[l];
    if (run.progress)
      run.progress(total - std::ssize(layers) + static_cast<std::int64_t>(l), total, rows[0].point.name());
    if (l % ConvMeasurement::kTogether == 0) {
      std::vector<ConvPoint> next;
      const auto together =
          std::span(layers).subspan(l, std::min(ConvMeasurement::kTogether, layers.size() - l));
      for (const std::vector<ConvRow>& layer : together) next.push_back(layer[0].point);
      sweep.prepare(next);
    }
    sweep.measure(rows, result.failed);
    for (const ConvRow& row : rows) file.append(row, options.row);
  }
  result.seconds = sweep.seconds();
}

void check(const SparsitySweepOptions& options) {
  if (!options.model.empty() && !options.layers.empty())
    throw ArgumentError("both a model and layers are given; give one of them");
  const auto need = [](const char* what, std::int64_t value, std::initializer_list<std::int64_t> all) {
    if (std::ranges::find(all, value) == all.end())
      throw ArgumentError(fmt::format("{} {}; expected one of {}", what, value, fmt::join(all, ", ")));
  };
  for (const double keep : options.keeps) {
    if (!(keep >= 0.05 && keep <= 1))
      throw ArgumentError(fmt::format("keep is {}; expected 0.05 to 1", keep));
  }
  need("channels of a group:", options.group, {0, 1, 2, 4, 8, 16});
  if (options.panel) need("outputs of a panel:", *options.panel, {16, 32});
  need("outputs of a block:", options.block, {4, 8, 16, 32});
  for (const std::string& layer : options.layers) check_layer(layer);
  check(options.run, options.precisions);
  for (const SparsityMode mode : options.modes) check_enumerator("mode", mode, SparsityMode::input_panel);
  check_enumerator("importance", options.importance, Importance::second_order);
}

// The layers of the model, or those that are named, or without both two that are typical of convolutional networks.
std::vector<SparseLayer> layers_of(const SparsitySweepOptions& options) {
  std::vector<SparseLayer> layers;
  if (!options.model.empty()) {
    Model model = read_model(options.model, options.load);
    if (is_quantized(model.graph))
      fail_unsupported(
          "{} is quantized; give the floating-point model that it was made from, and --precision int8",
          model.name);
    layers = convolutions_of(fuse(std::move(model.graph)));
    if (layers.empty())
      fail_unsupported("{}: no convolution of one group, with constant weights and at least 8 input channels",
                       model.name);
    return layers;
  }
  const std::vector<std::string> defaults = {"16x64x56x56:128x3x3", "4x64x128x128:128x3x3"};
  for (const std::string& spec : options.layers.empty() ? defaults : options.layers)
    layers.push_back(parse_layer(spec));
  return layers;
}

// What is swept, precisions inside of layers, so that a dense run is made once.
std::vector<SparsityRow> rows_of(const SparsitySweepOptions& options, const SparseLayer& layer) {
  std::vector<SparsityRow> rows;
  for (const Precision precision : options.precisions) {
    SparsityRow row;
    row.layer = layer.name;
    row.precision = precision;
    if (std::ranges::find(options.keeps, 1.0) != options.keeps.end()) rows.push_back(row);
    for (const SparsityMode mode : options.modes) {
      for (const double keep : options.keeps) {
        if (keep == 1) continue;
        row.mode = mode;
        row.keep = keep;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

Json settings_of(const SparsitySweepOptions& options) {
  Json settings = {{"pipit_sweep", kSparsitySweepVersion}};
  settings.update(machine_json(options.run));
  settings.update({{"importance", importance_name(importance_of(options.importance))},
                   {"group", options.group},
                   {"panel", options.panel.value_or(cpu_panel_outputs())},
                   {"block", options.block},
                   {"refit", options.refit}});
  return settings;
}

}  // namespace

std::string ConvPoint::name() const {
  return fmt::format("{}x{}x{}x{}:{}x{}x{}{}", batch, in, size, size, out, kernel, kernel,
                     stride == 1 ? "" : fmt::format(":s{}", stride));
}

double ConvPoint::macs() const {
  const std::int64_t side = (size + kernel / 2 * 2 - kernel) / stride + 1;
  return static_cast<double>(batch * in * out * kernel * kernel) * static_cast<double>(side * side);
}

std::vector<ConvPoint> ConvGrid::points() const {
  std::vector<ConvPoint> points;
  std::set<std::string> names;
  for (const std::int64_t n : batch) {
    for (const std::int64_t i : in) {
      for (const std::int64_t o : out) {
        for (const std::int64_t h : size) {
          for (const std::int64_t k : kernel) {
            for (const std::int64_t s : stride) {
              const ConvPoint point{n, i, o, h, k, s};
              if ((all || usual(point)) && names.insert(point.name()).second) points.push_back(point);
            }
          }
        }
      }
    }
  }
  return points;
}

const ConvBase* ConvRow::find(std::string_view name) const {
  const auto found = std::ranges::find(against, name, &ConvBase::base);
  return found == against.end() || !found->problem.empty() ? nullptr : &*found;
}

std::string_view sparsity_mode_name(SparsityMode mode) {
  switch (mode) {
    case SparsityMode::k_panel:
      return "k-panel";
    case SparsityMode::channel:
      return "channel";
    case SparsityMode::block:
      return "block";
    case SparsityMode::input:
      return "input";
    case SparsityMode::input_panel:
      return "input-panel";
    case SparsityMode::k:
      break;
  }
  return "k";
}

void check_layer(const std::string& layer) {
  try {
    Shape weights;
    parse_geometry(layer, weights);
  } catch (const Error& e) {
    throw ArgumentError(e.what());
  }
}

ConvSweep sweep_convolutions(const ConvSweepOptions& options) {
  const ScopedFloatMode mode;
  check(options);
  const std::vector<ConvPoint> points = options.grid.points();
  if (points.empty() && options.grid.all) throw ArgumentError("a list of the grid is empty");
  if (points.empty())
    throw ArgumentError(
        "the usual rule leaves out every combination of the grid; set ConvGrid::all to keep them");
  const std::vector<std::vector<ConvRow>> layers =
      rows_of(options, by_input(sample(points, options.sample, options.seed)));
  ConvSweep result;
  result.bases = bases_of(options);
  Json settings = {{"pipit_sweep_conv", kConvSweepVersion}};
  settings.update(machine_json(options.run));
  result.device = settings["device"];
  result.threads = settings["threads"];
  settings["bases"] = result.bases;
  settings["floor"] = options.floor;
  SweptFile<ConvRow> file(options.run, settings, conv_row_from, conv_row_json);
  measure_missing(layers, options, file, result);
  for (const std::vector<ConvRow>& rows : layers) {
    for (const ConvRow& row : rows) result.rows.push_back(file.at(key_of(row)));
  }
  result.summaries = summaries_of(result.rows, result.bases);
  Json json = {{"pipit", version()}, {"command", "sweep conv"}};
  json.update(settings);
  json["combinations"] = points.size();
  json["sample"] = layers.size();
  json["summaries"] = summaries_json(result.summaries);
  json["rows"] = Json::array();
  for (const ConvRow& row : result.rows) json["rows"].push_back(conv_row_json(row));
  result.json = json_text(json);
  return result;
}

SparsitySweep sweep_sparsity(const SparsitySweepOptions& options) {
  const ScopedFloatMode mode;
  check(options);
  const SweepRun& run = options.run;
  const std::vector<SparseLayer> layers = layers_of(options);
  const Json settings = settings_of(options);
  SweptFile<SparsityRow> file(run, settings, sparsity_row_from, sparsity_row_json);
  std::vector<std::vector<SparsityRow>> planned;
  std::int64_t total = 0;
  for (const SparseLayer& layer : layers) {
    planned.push_back(rows_of(options, layer));
    total += std::ssize(planned.back());
  }
  SparsitySweep result;
  std::set<std::string> wanted;
  const LayerMachine machine(run.device.kind, run.device.threads);
  std::int64_t done = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::unique_ptr<SparsityMeasurement> measuring;
    std::string general;  // what keeps all rows of the layer
    for (SparsityRow& row : planned[l]) {
      const std::string key = key_of(row);
      wanted.insert(key);
      if (run.progress) run.progress(done, total, printable(key));
      ++done;
      if (file.has(row)) continue;
      if (!measuring && general.empty()) {
        const auto make = [&] {
          measuring = std::make_unique<SparsityMeasurement>(layers[l], options, machine);
        };
        general = problem_of(make, result.failed);
      }
      row.problem = general.empty() ? problem_of([&] { measuring->measure(row); }, result.failed) : general;
      file.append(row, options.row);
    }
  }
  for (const std::string& key : file.keys()) {
    if (wanted.contains(key)) result.rows.push_back(file.at(key));
  }
  result.device = settings["device"];
  result.threads = settings["threads"];
  Json json = {{"pipit", version()}, {"command", "sweep sparsity"}};
  json.update(settings);
  json["rows"] = Json::array();
  for (const SparsityRow& row : result.rows) json["rows"].push_back(sparsity_row_json(row));
  result.json = json_text(json);
  return result;
}

std::string read_sweep_document(const std::filesystem::path& file) {
  return json_text(internal::detail::read_sweep_document(file.string()));
}

}  // namespace pipit::tools
