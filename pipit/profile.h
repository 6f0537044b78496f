/// @file
/// Where the time of a model goes, and how far that is from what the machine could do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"
#include "pipit/machine.h"
#include "pipit/progress.h"
#include "pipit/timing.h"

namespace pipit::tools {

/// What a layer takes at least (docs/floors.md).
struct LayerFloor {
  double ms = 0;      ///< the longest of its arithmetic, its bytes and, on a GPU, a launch
  std::string bound;  ///< which of them: "compute", "launch" or a level of memory; empty: nothing takes time
  double share = 0;   ///< of the measured time: what nothing could save
};

/// One kernel call of a run: a layer, with what its kernel computes besides.
struct LayerTime {
  std::string name;        ///< of the layer in the model
  std::string type;        ///< Conv, Gemm, Pool, ...
  std::string kernel;      ///< what ran it; "cpu:NAME" for a layer of a GPU's model that runs on the CPU
  std::string geometry;    ///< for people: "3x3 s2 p1 +relu"
  Shape input;             ///< of its first input
  Shape output;            ///< of its first output
  std::int64_t macs = 0;   ///< multiply-accumulates
  std::int64_t bytes = 0;  ///< inputs, outputs and weights, each once: what must move at least
  double median_ms = 0;    ///< of the runs
  double p10_ms = 0;       ///< eight of ten runs lie between this
  double p90_ms = 0;       ///< and this
  std::vector<double> samples_ms;  ///< run by run; on a GPU what it adds to the captured graph
  std::vector<std::string> nodes;  ///< of the model: its own, and those that its kernel also computes
  double flop_per_byte = 0;  ///< operations of its kernel, padding included, for each byte; 0: without either
  std::size_t weight_bytes = 0;     ///< packed and other constants that its kernel reads
  std::size_t workspace_bytes = 0;  ///< of the arena, while it runs
  std::optional<LayerFloor> floor;  ///< where ceilings are known
};

/// By what layers are taken together.
enum class GroupBy : std::uint8_t { type, kernel };

/// Layers of one type, or of one kernel.
struct LayerGroup {
  std::string name;       ///< of the type or kernel
  int layers = 0;         ///< how many
  std::int64_t macs = 0;  ///< of all of them
  double median_ms = 0;   ///< of the sum of their times
  double p10_ms = 0;      ///< eight of ten runs lie between this
  double p90_ms = 0;      ///< and this
};

/// The floors of all layers.
struct FloorSummary {
  /// A part of the floor.
  struct Bound {
    std::string bound;  ///< as LayerFloor
    double ms = 0;      ///< of the layers that it binds
  };
  double ms = 0;                           ///< the sum
  std::vector<Bound> bounds;               ///< the largest first
  std::int64_t convolution_macs = 0;       ///< of all convolutions, padding included
  double convolutions_ms = 0;              ///< that they take
  double convolutions_share_of_peak = 0;   ///< of that the time of their arithmetic at its ceiling
  double convolutions_share_of_tiles = 0;  ///< the same of tiles in the first-level cache; 0: not measured
  MachineCeilings ceilings;                ///< that floors are made of
};

/// What a model and its process take of memory, in bytes. Layers that take the most are named; empty: none does.
struct MemoryUse {
  std::size_t weight_bytes =
      0;  ///< of the graph that runs, as it stores them; freed once a kernel has packed them
  std::size_t packed_bytes = 0;       ///< in the order in which kernels read them
  std::string most_packed;            ///< the layer
  std::size_t constant_bytes = 0;     ///< that kernels read as they are
  std::size_t arena_bytes = 0;        ///< activations and workspace of a run
  std::size_t peak_live_bytes = 0;    ///< of it must exist at once
  std::string most_live;              ///< the layer at which they do
  std::size_t workspace_bytes = 0;    ///< inside of the arena
  std::string most_workspace;         ///< the layer
  std::size_t rss_bytes = 0;          ///< of the process when the runs were done
  std::size_t peak_rss_bytes = 0;     ///< at worst, reading the model and planning included
  std::size_t device_bytes = 0;       ///< on a GPU beyond its context
  std::size_t device_peak_bytes = 0;  ///< at worst, while planning
};

/// Where the time of a model goes. Medians over runs, in milliseconds.
struct ModelProfile {
  int runs = 0;                   ///< that were timed
  std::vector<LayerTime> layers;  ///< in the order in which they run
  double layers_ms = 0;           ///< the sum of a run's layers
  double end_to_end_ms = 0;       ///< a run; on a GPU with copies in and out
  double residual_ms = 0;         ///< what no layer explains
  double graph_ms = 0;            ///< on a GPU: device time of one replay of the captured graph; 0 on a CPU
  std::string label;              ///< what sets it apart where there are several settings: "int8, 2 threads"
  DeviceKind device = DeviceKind::cpu;    ///< that it ran on
  Precision precision = Precision::fp32;  ///< that it computes in
  int threads = 0;                        ///< of a run
  std::int64_t samples = 1;               ///< of a run
  std::vector<double> samples_ms;         ///< what end_to_end_ms is the median of
  double end_to_end_p10_ms = 0;           ///< eight of ten runs lie between this
  double end_to_end_p90_ms = 0;           ///< and this
  double overhead_ms = 0;                 ///< of residual_ms about this is the profiler's own
  std::int64_t micro_batches = 1;         ///< of a run; a layer's time is the sum of them
  std::string micro_batch_text;           ///< how many samples go together, and why
  double read_ms = 0;                     ///< reading the model
  double load_ms = 0;                     ///< planning it
  double first_run_ms = 0;                ///< the first run
  std::vector<LayerGroup>
      groups;  ///< with ProfileModelOptions::group_by, in the order in which they first run
  std::optional<FloorSummary> floors;  ///< where ceilings are known
  MemoryUse memory;                    ///< when the runs were done
  std::vector<std::string> notes;      ///< what a user should know
  std::string json;                    ///< all of it, as `pipit profile --json` writes it (docs/json.md)
};

/// How a profile is taken.
struct ProfileOptions {
  int runs = 50;        ///< timed runs, at least 1
  int warmup = 10;      ///< runs before them
  int device = 0;       ///< as CompiledModel::session()
  bool floors = false;  ///< also what layers take at least, by ceilings that are kept or measured now
};

/// Times every layer of a model on `inputs`, one array for each of its inputs as ModelSession::run() takes them; on
/// none at all: on random numbers, always the same. Throws what ModelSession::run() does, and Error when runs < 1.
PIPIT_API ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs = {},
                               const ProfileOptions& options = {});

/// How a model is profiled in one or several settings.
struct ProfileModelOptions {
  TimingOptions timing;             ///< settings and inputs
  int runs = 50;                    ///< timed runs, at least 1
  int warmup = 5;                   ///< runs before them
  bool floors = false;              ///< as ProfileOptions
  std::optional<GroupBy> group_by;  ///< also take layers together
  std::filesystem::path accuracy;   ///< JSON of evaluate(), which becomes part of this one. Empty: none
  StageProgress progress;           ///< a stage for each setting: "fp32, batch 1, 2 threads"
};

/// The same layers in several settings.
struct JoinedLayer {
  /// Times in one setting.
  struct Times {
    double median_ms = 0;  ///< of the runs
    double p10_ms = 0;     ///< eight of ten runs lie between this
    double p90_ms = 0;     ///< and this
    double speedup = 0;    ///< how many times as fast as in the first setting, for one sample; 0: not known
    std::string kernels;   ///< that ran them
  };
  std::string name;                         ///< of the first layer
  std::string type;                         ///< likewise
  std::int64_t macs = 0;                    ///< of all of them
  std::vector<std::string> nodes;           ///< of the model
  std::vector<std::optional<Times>> times;  ///< of each setting; unset where it has nothing of the kind
};

/// What profile_model() found.
struct ProfileResult {
  std::string measured_at;             ///< UTC, 2026-11-23T12:30:00Z
  std::vector<Finding> environment;    ///< that times depend on
  std::vector<ModelProfile> profiles;  ///< one for each setting; their `json` is empty
  /// Of several settings: rows of layers with nodes in common, in the order in which they run.
  std::vector<JoinedLayer> joined;
  std::vector<JoinedLayer> joined_totals;  ///< "sum of layers" and "end to end"
  std::vector<std::string> notes;          ///< what a user should know of all settings
  std::string json;                        ///< all of it, as `pipit profile --json` writes it (docs/json.md)
};

/// Reads a model, an ONNX file or a name that `pipit models` lists, and times every layer of it in every setting.
/// Throws what CompiledModel and ModelSession do, Error for inputs that do not fit, ArgumentError for options that
/// cannot be. One thread at a time: it takes all threads that it is given.
PIPIT_API ProfileResult profile_model(const std::string& model, const ProfileModelOptions& options = {});

}  // namespace pipit::tools
