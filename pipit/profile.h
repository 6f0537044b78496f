/// @file
/// Where the time of a model goes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"

namespace pipit::tools {

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
};

/// Where the time of a model goes. Medians over runs, in milliseconds.
struct ModelProfile {
  int runs = 0;                   ///< that were timed
  std::vector<LayerTime> layers;  ///< in the order in which they run
  double layers_ms = 0;           ///< the sum of a run's layers
  double end_to_end_ms = 0;       ///< a run; on a GPU with copies in and out
  double residual_ms = 0;         ///< what no layer explains
  double graph_ms = 0;            ///< on a GPU: device time of one replay of the captured graph; 0 on a CPU
};

/// How a profile is taken.
struct ProfileOptions {
  int runs = 50;    ///< timed runs, at least 1
  int warmup = 10;  ///< runs before them
  int device = 0;   ///< as CompiledModel::session()
};

/// Times every layer of a model on `inputs`, one array for each of its inputs as ModelSession::run() takes them; on
/// none at all: on standard normal numbers, always the same. Throws what ModelSession::run() does, and Error when runs
/// < 1.
PIPIT_API ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs = {},
                               const ProfileOptions& options = {});

}  // namespace pipit::tools
