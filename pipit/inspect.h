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

/// A kernel that refused a layer.
struct RefusedKernel {
  std::string kernel;  ///< its name
  std::string why;     ///< the reason
};

/// The estimated time of a kernel.
struct EstimatedKernel {
  std::string kernel;  ///< its name
  double time = 0;     ///< on a GPU in microseconds; on the CPU that of Winograd relative to the direct sums
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

/// A layer, with the nodes fused into its kernel.
struct InspectedLayer {
  std::string name;                        ///< of the layer in the model
  std::string type;                        ///< Conv, Gemm, Pool, ...
  std::string kernel;                      ///< what runs it
  std::string variant;                     ///< of the kernel; empty where it has none
  std::string geometry;                    ///< in words: "3x3 s2 p1 +relu"
  Shape input;                             ///< of its first input
  Shape output;                            ///< of its first output
  std::int64_t parameters = 0;             ///< of all nodes that the kernel computes
  std::int64_t macs = 0;                   ///< multiply-accumulates
  double kept = 1;                         ///< the share of macs that its kernel does: below 1 it skips zeros
  std::string chosen;                      ///< by "order", "preference", "measurement" or "cache"
  std::string note;                        ///< why nothing was timed although requested; else empty
  std::vector<TimedKernel> timed;          ///< in the order of preference
  std::vector<EstimatedKernel> estimated;  ///< the smallest first
  std::vector<EstimatedChain> chains;      ///< that begin with this layer
  std::vector<RefusedKernel> refused;      ///< in the order in which they were tried
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
  std::string widened;                 ///< what is stored in 16 bits and runs in f32; empty: nothing
  std::vector<std::string> labels;     ///< from the model's metadata; may be empty
  std::string labels_from;             ///< their origin if not pipit's own entries
  std::optional<ScoreKind> scores;     ///< if output 0 is that of a classifier
  std::string scores_note;             ///< a note about the scores; else empty
  std::string heads_note;              ///< a note if several softmaxes lie side by side; else empty
  std::string preprocessing;           ///< as the model stores it, in words; empty: none
  std::string preprocessing_from;      ///< its origin if not pipit's own entries
  std::vector<Rewrite> rewrites;       ///< all that were tried, in order
  std::vector<std::string> notes;      ///< notes about its metadata and rewrites
  std::vector<InspectedLayer> layers;  ///< in the order in which they run
  std::size_t nodes = 0;               ///< of the graph that runs
  int view_nodes = 0;                  ///< nodes that are only views of their input's memory
  std::int64_t parameters = 0;         ///< of all nodes
  std::size_t parameter_bytes = 0;     ///< in the graph; kernels may store fewer or more
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

/// What the JSON of inspect() contains.
struct InspectOptions {
  bool why =
      false;  ///< also refusing kernels and estimates (`pipit inspect --why`), as the struct always does
};

/// Describes a compiled model as its first device runs it. May be called from any thread.
PIPIT_API InspectedModel inspect(const CompiledModel& model, const InspectOptions& options = {});

}  // namespace pipit::tools
