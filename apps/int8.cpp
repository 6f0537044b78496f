#include "apps/int8.h"

#include <fmt/format.h>

#include "apps/terminal.h"
#include "engine/error.h"
#include "quant/hash.h"

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

}  // namespace pipit::apps
