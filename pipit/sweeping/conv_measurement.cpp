#include "pipit/sweeping/conv_measurement.h"

#include <numeric>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/platform/host_memory.h"
#include "pipit/measuring/problem_of.h"
#include "pipit/sweeping/layer_times.h"
#include "pipit/sweeping/sampled_reference.h"

namespace pipit::internal::detail {

namespace {

constexpr std::size_t kSampledPixels = 256;

// Of a base that is none of a library.
Precision precision_named(std::string_view name) {
  for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::int8}) {
    if (precision_name(precision) == name) return precision;
  }
  return Precision::fp32;
}

// Adds the time of its life to one of ConvSweepSeconds.
class Spent {
 public:
  explicit Spent(double& seconds) : seconds_(seconds) {}
  ~Spent() { seconds_ += milliseconds_since(begin_) / 1e3; }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  double& seconds_;
  Clock::time_point begin_ = Clock::now();
};

// parse_layer(), where there is memory for the input and, in f32 at most, the inputs and outputs of two runs.
SparseLayer layer_of(const tools::ConvPoint& point) {
  SparseLayer layer = parse_layer(point.name());
  const double bytes = 4.0 * static_cast<double>(3 * layer.x.elements() + 2 * layer.output().elements());
  if (bytes > static_cast<double>(available_host_memory()))
    fail("out of memory: needs {:.0f} MiB, the machine has {:.0f} left", bytes / 0x1p20,
         static_cast<double>(available_host_memory()) / 0x1p20);
  return layer;
}

std::vector<std::int64_t> all_of(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

}  // namespace

bool is_peer(std::string_view base) {
  return base == kCudnnBase || base == kCudnnBestBase;
}

// The libraries' plans for one layer and base.
struct ConvMeasurement::Peers {
  std::vector<PeerConv> found;
  std::string problem;  // of a layout; the other one's plans are left where it is that the library has none
  bool failed = false;  // it is another one
};

// What the rows of one layer share.
struct ConvMeasurement::Layer {
  SparseLayer layer;
  LayerInput& x;
  SampledReference reference;
  LayerRanges ranges;
  std::vector<std::int64_t> inputs, outputs;
  // By precision and kernel, and by base; in the order in which they take turns.
  std::vector<std::unique_ptr<RepeatedRun>> runs;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  std::map<std::pair<std::string, std::string>, std::string> problems;
  std::vector<TurnTimes> times;
};

ConvMeasurement::ConvMeasurement(ConvSweepTarget target)
    : target_(std::move(target)), machine_(target_.device, target_.threads) {
  for (const std::string& base : target_.bases) {
    if (!is_peer(base)) continue;
    if (const std::string problem = cudnn_problem(); !problem.empty()) fail("--base {}: {}", base, problem);
  }
}

ConvMeasurement::~ConvMeasurement() = default;

void ConvMeasurement::prepare(const std::vector<tools::ConvPoint>& points) {
  const Spent spent(seconds_.plans);
  prepared_.clear();
  struct Task {
    const tools::ConvPoint* point;
    PeerCall call;
    Layout layout;
    Peers* peers;  // of both layouts
    Peers made;
  };
  std::vector<Task> tasks;
  for (const tools::ConvPoint& point : points) {
    for (const std::string& base : target_.bases) {
      if (!is_peer(base)) continue;
      const PeerCall call = base == kCudnnBase ? PeerCall::framework : PeerCall::best;
      Peers& peers = prepared_[point.name() + '|' + base];
      for (const Layout layout : {Layout::channels_last, Layout::row_major})
        tasks.push_back({&point, call, layout, &peers, {}});
    }
  }
  machine_.pool->parallel_for(std::ssize(tasks), [&](std::int64_t i, int /*worker*/) {
    Task& task = tasks[static_cast<std::size_t>(i)];
    task.made.problem = problem_of(
        [&] {
          SparseLayer layer = parse_layer(task.point->name());
          const auto weights = std::make_shared<const Tensor>(std::move(layer.weights.weights));
          task.made.found = cudnn_convolutions({layer.attributes, layer.x, weights, layer.weights.bias},
                                               task.call, task.layout, 0);
        },
        task.made.failed);
  });
  for (Task& task : tasks) {
    for (PeerConv& peer : task.made.found) task.peers->found.push_back(std::move(peer));
    if (task.peers->failed || task.made.problem.empty()) continue;
    task.peers->problem = task.made.problem;
    task.peers->failed = task.made.failed;
  }
}

const std::vector<PeerConv>& ConvMeasurement::peers(const tools::ConvPoint& point, std::string_view base) {
  const Peers& peers = prepared_.at(point.name() + '|' + std::string(base));
  if (peers.failed) fail("{}", peers.problem);
  if (peers.found.empty()) fail_unsupported("{}", peers.problem);
  return peers.found;
}

// To draw the largest takes longer than to measure with them: it is kept for layers of the same shape.
LayerInput& ConvMeasurement::input_of(const Shape& shape) {
  if (!shape_ || *shape_ != shape) {
    shape_.reset();
    input_.reset();
    input_ = std::make_unique<LayerInput>(network_values(shape, target_.threads), target_.threads);
    shape_ = shape;
  }
  return *input_;
}

// Everything that takes turns. What cannot be made is a problem of its rows, or of the base.
void ConvMeasurement::run_all(Layer& layer, std::vector<tools::ConvRow>& rows, bool& failed) {
  const auto add = [&](const std::string& precision, const std::string& kernel, const auto& make) {
    const std::pair key(precision, kernel);
    if (layer.places.contains(key) || layer.problems.contains(key)) return;
    const Spent spent(seconds_.kernels);
    const std::string problem = problem_of([&] { layer.runs.push_back(make()); }, failed);
    if (problem.empty()) {
      layer.places[key] = layer.runs.size() - 1;
    } else {
      layer.problems[key] = problem;
    }
  };
  const auto add_own = [&](Precision precision, const std::string& kernel) {
    add(std::string(precision_name(precision)), kernel, [&] {
      return std::make_unique<LayerRun>(
          layer.layer, layer.layer.weights, layer.inputs, layer.outputs, layer.x, machine_,
          LayerTarget{precision, kernel == "auto" ? std::string() : kernel}, layer.ranges);
    });
  };
  for (const std::string& base : target_.bases) {
    if (!is_peer(base)) {
      add_own(precision_named(base), "auto");
      continue;
    }
    add(base, "auto", [&] {
      return std::make_unique<PeerRun>(peers(rows[0].point, base),
                                       layer.x.as(Precision::fp16, DeviceKind::cuda, 0), machine_);
    });
  }
  for (const tools::ConvRow& row : rows) add_own(row.precision, row.backend);
  const Spent spent(seconds_.turns);
  std::vector<RepeatedRun*> runs;
  for (const auto& run : layer.runs) runs.push_back(run.get());
  if (!runs.empty())
    layer.times = times_in_turns(runs, target_.seconds * static_cast<double>(rows.size()),
                                 machine_.device == DeviceKind::cuda);
}

void ConvMeasurement::measure(std::vector<tools::ConvRow>& rows, bool& failed) {
  std::unique_ptr<Layer> layer;
  const std::string general = problem_of(
      [&] {
        {
          const Spent spent(seconds_.inputs);
          SparseLayer dense = layer_of(rows[0].point);
          LayerInput& x = input_of(dense.x);
          SampledReference reference(dense, x.values(), kSampledPixels, *machine_.pool);
          const LayerRanges ranges{x.largest(), reference.largest()};
          layer = std::make_unique<Layer>(Layer{.layer = std::move(dense),
                                                .x = x,
                                                .reference = std::move(reference),
                                                .ranges = ranges,
                                                .inputs = all_of(rows[0].point.in),
                                                .outputs = all_of(rows[0].point.out)});
        }
        run_all(*layer, rows, failed);
      },
      failed);
  for (tools::ConvRow& row : rows) {
    row.problem = general;
    if (!general.empty()) continue;
    const std::pair key(std::string(precision_name(row.precision)), row.backend);
    if (const auto problem = layer->problems.find(key); problem != layer->problems.end()) {
      row.problem = problem->second;
      continue;
    }
    const std::size_t place = layer->places.at(key);
    LayerRun& own = static_cast<LayerRun&>(*layer->runs[place]);
    const TurnTimes& times = layer->times[place];
    row.runs = own.kernel();
    row.bytes = static_cast<std::int64_t>(own.bytes());
    row.arena_bytes = static_cast<std::int64_t>(own.arena_bytes());
    row.times = swept_times(times.ms);
    if (!times.cached_ms.empty()) row.cached_ms = quantile(times.cached_ms, 0.5);
    for (const std::string& base : target_.bases) {
      const std::pair of_base(base, std::string("auto"));
      if (of_base == key) continue;
      tools::ConvBase& against = row.against.emplace_back();
      against.base = base;
      if (const auto problem = layer->problems.find(of_base); problem != layer->problems.end()) {
        against.problem = problem->second;
        continue;
      }
      const std::size_t at = layer->places.at(of_base);
      const RepeatedRun& run = *layer->runs[at];
      against.runs = is_peer(base) ? static_cast<const PeerRun&>(run).name()
                                   : static_cast<const LayerRun&>(run).kernel();
      against.ms = quantile(layer->times[at].ms, 0.5);
      against.speedup = speedup_over_turns(layer->times[at].ms, times.ms);
      if (times.cached_ms.empty()) continue;
      against.cached_ms = quantile(layer->times[at].cached_ms, 0.5);
      against.cached_speedup = speedup_over_turns(layer->times[at].cached_ms, times.cached_ms);
    }
    const Spent spent(seconds_.errors);
    row.problem = problem_of(
        [&] {
          const SampledError error = layer->reference.error(own.results_at(layer->reference.elements()));
          row.mae = error.mae;
          row.max_error = error.max;
          row.relative_l2 = error.relative_l2;
          if (!target_.ceilings.known()) return;
          const StepFloor floor = own.floor(target_.ceilings);
          row.floor_ms = floor.ms;
          row.binds = floor.bound;
        },
        failed);
  }
}

}  // namespace pipit::internal::detail
