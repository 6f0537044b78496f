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

ExtraPass int8_pass(PrecisionPlan plan, std::vector<PrecisionPlan::Kept> keep, bool quiet, DeviceKind device,
                    std::shared_ptr<std::set<std::string>> keep_f32) {
  for (TensorScale& tensor : plan.tensors) tensor.histogram.reset();  // large, and only calibration needs it
  return {"quantise", [plan = std::move(plan), keep = std::move(keep), quiet, device,
                       keep_f32 = std::move(keep_f32)](const Graph& fused) {
            PrecisionPlan own = plan;
            keep_nodes(own, fused, keep);
            for (const PrecisionPlan::Kept& kept : own.keep) {
              if (keep_f32 && kept.precision == "fp32") keep_f32->insert(kept.node);
            }
            const DType activations = device == DeviceKind::cuda ? DType::i8 : DType::u8;
            Quantized quantised = quantize_graph(fused, own, {activations});
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
