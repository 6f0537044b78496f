#include "apps/int8.h"

#include "apps/terminal.h"
#include "engine/error.h"
#include "quant/hash.h"
#include "quant/keep.h"
#include "quant/quantize_graph.h"

namespace pipit::apps {

PrecisionPlan load_precision_plan(const std::string& path, const Graph& graph) {
  PrecisionPlan plan = read_precision_plan(path);
  const std::string hash = hash_model(graph);
  if (plan.model_hash != hash) {
    fail("{} was calibrated for another model ({}, hash {}; this one's is {}); calibrate this one", path,
         plan.model, plan.model_hash, hash);
  }
  return plan;
}

ExtraPass int8_pass(PrecisionPlan plan, std::vector<PrecisionPlan::Kept> keep, bool quiet) {
  for (TensorScale& tensor : plan.tensors) tensor.histogram.reset();  // large, and only calibration needs it
  return {"quantise", [plan = std::move(plan), keep = std::move(keep), quiet](const Graph& fused) {
            PrecisionPlan own = plan;
            keep_nodes(own, fused, keep);
            Quantized quantised = quantize_graph(fused, own);
            if (quantised.kept > 0 && !quiet) {
              print_error(fmt::format(
                  "note: {} convolutions or fully connected layers are not in INT8: the plan keeps them in "
                  "floating point or has no scale for them",
                  quantised.kept));
            }
            return Rewritten{std::move(quantised.graph), quantised.quantised, {}};
          }};
}

}  // namespace pipit::apps
