#include "apps/int8.h"

#include <fmt/format.h>

#include "apps/table.h"
#include "apps/terminal.h"
#include "engine/error.h"
#include "quant/hash.h"
#include "quant/keep.h"
#include "quant/quantize_graph.h"

namespace pipit::apps {

namespace {

Preprocess preprocess_of(const PrecisionPlan& plan, const std::string& path) {
  try {
    return preprocess_from_json(plan.preprocess);
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
}

}  // namespace

PrecisionPlan load_precision_plan(const std::string& path, const Graph& graph) {
  PrecisionPlan plan = read_precision_plan(path);
  preprocess_of(plan, path);  // nothing that is wrong passes
  const std::string hash = hash_model(graph);
  if (plan.model_hash != hash) {
    fail("{} was calibrated for another model ({}, hash {}; this one's is {}); calibrate this one", path,
         plan.model, plan.model_hash, hash);
  }
  return plan;
}

std::vector<std::string> compare_preprocess(const PrecisionPlan& plan, const std::string& path,
                                            const Preprocess& preprocess, bool quiet) {
  const std::vector<std::string> differences = preprocess_differences(preprocess, preprocess_of(plan, path));
  if (!differences.empty() && !quiet) {
    print_error(
        fmt::format("note: images are prepared in another way than those that {} was calibrated on, and its "
                    "ranges may not fit: {}",
                    path, fmt::join(differences, ", ")));
  }
  return differences;
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
            const bool gpu = device == DeviceKind::cuda;
            Quantized quantised = quantize_graph(fused, own, {.activations = gpu ? DType::i8 : DType::u8});
            if (quantised.kept > 0 && !quiet) {
              print_error(fmt::format(
                  "note: {} not in INT8: the plan keeps {} in floating point or has no scale for {}",
                  counted(quantised.kept, "convolution or fully connected layer is",
                          "convolutions or fully connected layers are"),
                  quantised.kept == 1 ? "it" : "them", quantised.kept == 1 ? "it" : "them"));
            }
            return Rewritten{std::move(quantised.graph), quantised.quantised, {}};
          }};
}

}  // namespace pipit::apps
