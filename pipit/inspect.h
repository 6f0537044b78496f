/// @file
/// A model as it will run: layers, kernels and why they were chosen, memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"
#include "pipit/scores.h"

namespace pipit::tools {

/// A kernel that was asked to run a layer, and refused.
struct RefusedKernel {
  std::string kernel;  ///< its name
  std::string why;     ///< what it cannot
};

/// What a kernel was expected to take.
struct EstimatedKernel {
  std::string kernel;  ///< its name
  double time = 0;  ///< microseconds on a GPU; on the CPU what Winograd takes, in the time of the direct sums
};

/// Layers that one kernel could run together, compared with their kernels one by one.
struct EstimatedChain {
  std::string kernel;      ///< its name
  std::size_t layers = 0;  ///< how many, the first one included
  double time = 0;         ///< in the unit of EstimatedKernel
  double one_by_one = 0;   ///< of the kernels that run them otherwise
};

/// A kernel that was timed.
struct TimedKernel {
  std::string kernel;   ///< its name
  std::string variant;  ///< empty where it has none
  double ms = 0;        ///< of one run
  std::string problem;  ///< why there is no time; else empty
};

/// A layer, with what its kernel computes besides.
struct InspectedLayer {
  std::string name;                ///< of the layer in the model
  std::string type;                ///< Conv, Gemm, Pool, ...
  std::string kernel;              ///< what runs it
  std::string variant;             ///< of the kernel; empty where it has none
  std::string geometry;            ///< for people: "3x3 s2 p1 +relu"
  Shape input;                     ///< of its first input
  Shape output;                    ///< of its first output
  std::int64_t parameters = 0;     ///< of all nodes that the kernel computes
  std::int64_t macs = 0;           ///< multiply-accumulates
  double kept = 1;                 ///< the share of these that its kernel does: below 1 it leaves out zeros
  std::string chosen;              ///< by "order", "preference", "measurement" or "cache"
  std::string note;                ///< why nothing was timed although it was asked for; else empty
  std::vector<TimedKernel> timed;  ///< in the order of preference
  std::vector<EstimatedKernel> estimated;  ///< the smallest first
  std::vector<EstimatedChain> chains;      ///< that begin with this layer
  std::vector<RefusedKernel> refused;      ///< in the order in which they were asked
};

/// How a graph was rewritten.
struct Rewrite {
  std::string name;  ///< of the rewrite (docs/rewrites.md)
  int changes = 0;   ///< how often it was applied
};

/// What a model is and how it will run.
struct InspectedModel {
  std::string name;                    ///< as given
  std::vector<TensorInfo> inputs;      ///< of the graph that runs
  std::vector<TensorInfo> outputs;     ///< likewise
  std::string widened;                 ///< what the file has in 16 bits and runs in f32; empty: nothing
  std::vector<std::string> labels;     ///< from the model's metadata; may be empty
  std::string labels_from;             ///< where they are from when not from pipit's own entries
  std::optional<ScoreKind> scores;     ///< where output 0 is that of a classifier
  std::string scores_note;             ///< what a user should know of them; else empty
  std::string heads_note;              ///< they are of several softmaxes side by side; else empty
  std::string preprocessing;           ///< that the model stores, in words; empty: none
  std::string preprocessing_from;      ///< where it is from when not from pipit's own entries
  std::vector<Rewrite> rewrites;       ///< all that were tried, in order
  std::vector<std::string> notes;      ///< what a user should know of its metadata and rewrites
  std::vector<InspectedLayer> layers;  ///< in the order in which they run
  std::size_t nodes = 0;               ///< of the graph that runs
  int view_nodes = 0;                  ///< of these only name their input's memory
  std::int64_t parameters = 0;         ///< of all nodes
  std::size_t parameter_bytes = 0;     ///< in the graph; kernels may keep less or more
  std::int64_t macs = 0;               ///< of a run
  int int8_layers = 0;                 ///< that compute with 8-bit integers
  int conversions = 0;                 ///< between these and floating point
  std::int64_t int8_macs = 0;          ///< of int8_layers
  bool is_cut = false;                 ///< a batch goes through the layers in parts
  std::string micro_batch_text;        ///< how many samples go together, and why
  std::size_t arena_bytes = 0;         ///< for values between the layers
  std::size_t peak_live_bytes = 0;     ///< the largest set of them that must exist at once
  std::size_t activation_bytes = 0;    ///< if every value had memory of its own
  std::string json;                    ///< all of it, as `pipit inspect --json` writes it (docs/json.md)
};

/// What inspect() tells.
struct InspectOptions {
  bool why =
      false;  ///< the JSON has kernels that refused, and estimates (`pipit inspect --why`); the struct always
};

/// Describes a compiled model as its first device runs it. May be called from any thread.
PIPIT_API InspectedModel inspect(const CompiledModel& model, const InspectOptions& options = {});

}  // namespace pipit::tools
