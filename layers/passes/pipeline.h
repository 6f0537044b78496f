// The order of the passes: every rewrite between a graph as it was read and the graph that is planned.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/passes/passes.h"

namespace pipit::internal {

/// What a graph is made for.
struct PassTarget {
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::fp32;
  /// The values will be compared with the model's: none gets more channels.
  bool keep_every_value = false;
  /// Makes a fused graph compute in integers, or store its weights in fewer bits (quant/; compile/ supplies it). It may
  /// add to `kept`. None: the graph keeps its arithmetic.
  std::function<Rewritten(Graph, PassTarget&)> quantize = {};
  KeptNodes kept = {};
};

/// When a pass runs.
enum class PassStage : std::uint8_t {
  model,  ///< for every model, whatever runs it: the graph that is calibrated, quantized, pruned and written to files
  target,  ///< for one device and precision, just before the graph is planned: no file and no plan of scales sees it
};

struct Pass {
  const char* name;  ///< as `pipit inspect` reports it
  Rewritten (*run)(Graph&&, PassTarget&);
  PassStage stage;
  bool (*when)(const Graph&, const PassTarget&);  ///< null: always
};

/// All passes in the order in which they run.
std::span<const Pass> passes();

/// What a pass did.
struct PassReport {
  std::string pass;
  int changes = 0;
  std::vector<std::string> notes = {};
};

/// The passes of PassStage::model.
Graph fuse(Graph graph, std::vector<PassReport>* report = nullptr);

/// The passes of PassStage::target, for a graph that fuse() made: fusing that again could change it further.
Graph lower(Graph fused, PassTarget target = {}, std::vector<PassReport>* report = nullptr);

/// All passes.
Graph optimize(Graph graph, PassTarget target = {}, std::vector<PassReport>* report = nullptr);

}  // namespace pipit::internal
