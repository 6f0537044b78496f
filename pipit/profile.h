/// @file
/// Where the time of a model goes, compared with what the machine can do at best.
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

/// The least possible time of a layer (docs/floors.md).
struct LayerFloor {
  double ms = 0;      ///< the longest of its arithmetic, its bytes and, on a GPU, a launch
  std::string bound;  ///< the longest: "compute", "launch" or a level of memory; empty if all are 0
  double share = 0;   ///< share of the floor in the measured time
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
  std::vector<std::string> nodes;  ///< of the model: its own, and those fused into its kernel
  double flop_per_byte = 0;  ///< operations of its kernel, padding included, for each byte; 0: without either
  std::size_t weight_bytes = 0;     ///< packed and other constants that its kernel reads
  std::size_t workspace_bytes = 0;  ///< of the arena, while it runs
  std::optional<LayerFloor> floor;  ///< where ceilings are known
};

/// How layers are grouped.
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
    double ms = 0;      ///< of the layers that it limits
  };
  double ms = 0;                           ///< the sum
  std::vector<Bound> bounds;               ///< the largest first
  std::int64_t convolution_macs = 0;       ///< of all convolutions, padding included
  double convolutions_ms = 0;              ///< their measured time
  double convolutions_share_of_peak = 0;   ///< share of that: the time of their arithmetic at its ceiling
  double convolutions_share_of_tiles = 0;  ///< the same for tiles in the first-level cache; 0: not measured
  MachineCeilings ceilings;                ///< from which the floors are computed
};

/// Memory of a model and its process, in bytes. The layers with the largest use are named; empty: none.
struct MemoryUse {
  std::size_t weight_bytes = 0;  ///< of weights as the graph stores them; freed when a kernel has packed them
  std::size_t packed_bytes = 0;  ///< in the order in which kernels read them
  std::string most_packed;       ///< the layer
  std::size_t constant_bytes = 0;     ///< constants that kernels read as stored
  std::size_t arena_bytes = 0;        ///< activations and workspace of a run
  std::size_t peak_live_bytes = 0;    ///< the part of it that must exist at once
  std::string most_live;              ///< the layer at that point
  std::size_t workspace_bytes = 0;    ///< within the arena
  std::string most_workspace;         ///< the layer
  std::size_t rss_bytes = 0;          ///< of the process when the runs were done
  std::size_t peak_rss_bytes = 0;     ///< peak, including reading the model and planning
  std::size_t device_bytes = 0;       ///< on a GPU beyond its context
  std::size_t device_peak_bytes = 0;  ///< peak, while planning
};

/// Where the time of a model goes. Medians over runs, in milliseconds.
struct ModelProfile {
  int runs = 0;                   ///< that were timed
  std::vector<LayerTime> layers;  ///< in the order in which they run
  double layers_ms = 0;           ///< the sum of a run's layers
  double end_to_end_ms = 0;       ///< a run; on a GPU with copies in and out
  double residual_ms = 0;         ///< what no layer explains
  double graph_ms = 0;            ///< on a GPU: device time of one replay of the captured graph; 0 on a CPU
  std::string label;              ///< the setting if there are several: "int8, 2 threads"
  DeviceKind device = DeviceKind::cpu;    ///< where it ran
  Precision precision = Precision::fp32;  ///< precision of the computation
  int threads = 0;                        ///< of a run
  std::int64_t samples = 1;               ///< of a run
  std::vector<double> samples_ms;         ///< of whole runs; end_to_end_ms is their median
  double end_to_end_p10_ms = 0;           ///< eight of ten runs lie between this
  double end_to_end_p90_ms = 0;           ///< and this
  double overhead_ms = 0;                 ///< approximate overhead of the profiler in residual_ms
  std::int64_t micro_batches = 1;         ///< of a run; a layer's time is the sum of them
  std::string micro_batch_text;           ///< how many samples go together, and why
  double read_ms = 0;                     ///< reading the model
  double load_ms = 0;                     ///< planning it
  double first_run_ms = 0;                ///< the first run
  std::vector<LayerGroup>
      groups;  ///< with ProfileModelOptions::group_by, in the order in which they first run
  std::optional<FloorSummary> floors;  ///< where ceilings are known
  MemoryUse memory;                    ///< when the runs were done
  std::vector<std::string> notes;      ///< notes for the user
  std::string json;                    ///< all of it, as `pipit profile --json` writes it (docs/json.md)
};

/// How a profile is taken.
struct ProfileOptions {
  int runs = 50;                ///< timed runs, at least 1
  int warmup = 10;              ///< runs before them
  int device = 0;               ///< as CompiledModel::session()
  bool floors = false;          ///< also the floors of layers, from ceilings that are stored or measured now
  StageProgress progress = {};  ///< "running", in runs
};

/// Times every layer of a model on `inputs`, one array for each of its inputs as ModelSession::run() takes them; on
/// none at all: on random numbers, always the same. Throws what ModelSession::run() does, and ArgumentError for invalid
/// options.
PIPIT_API ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs = {},
                               const ProfileOptions& options = {});

/// How a model is profiled in one or several settings.
struct ProfileModelOptions {
  TimingOptions timing = {};             ///< settings and inputs
  int runs = 50;                         ///< timed runs, at least 1
  int warmup = 5;                        ///< runs before them
  bool floors = false;                   ///< as ProfileOptions
  std::optional<GroupBy> group_by = {};  ///< also group layers
  std::filesystem::path accuracy = {};   ///< JSON of evaluate(), which becomes part of this one. Empty: none
  StageProgress progress = {};           ///< a stage for each setting: "fp32, batch 1, 2 threads"
};

/// The same layers in several settings.
struct JoinedLayer {
  /// Times in one setting.
  struct Times {
    double median_ms = 0;  ///< of the runs
    double p10_ms = 0;     ///< eight of ten runs lie between this
    double p90_ms = 0;     ///< and this
    double speedup = 0;    ///< over the first setting, per sample; 0: not known
    std::string kernels;   ///< the kernels that ran them
  };
  std::string name;                         ///< of the first layer
  std::string type;                         ///< likewise
  std::int64_t macs = 0;                    ///< of all of them
  std::vector<std::string> nodes;           ///< of the model
  std::vector<std::optional<Times>> times;  ///< of each setting; unset if it has no such layer
};

/// What profile_model() found.
struct ProfileResult {
  std::string measured_at;             ///< UTC, 2026-11-23T12:30:00Z
  std::vector<Finding> environment;    ///< facts that affect times
  std::vector<ModelProfile> profiles;  ///< one for each setting; their `json` is empty
  /// Of several settings: rows of layers with nodes in common, in the order in which they run.
  std::vector<JoinedLayer> joined;
  std::vector<JoinedLayer> joined_totals;  ///< "sum of layers" and "end to end"
  std::vector<std::string> notes;          ///< notes about all settings
  std::string json;                        ///< all of it, as `pipit profile --json` writes it (docs/json.md)
};

/// Reads a model, an ONNX file or a name that `pipit models` lists, and times every layer of it in every setting.
/// Throws what CompiledModel and ModelSession do, Error for inputs that do not fit, and ArgumentError for invalid
/// options. Call it from one thread at a time: it uses all of its threads.
PIPIT_API ProfileResult profile_model(const std::string& model, const ProfileModelOptions& options = {});

}  // namespace pipit::tools
