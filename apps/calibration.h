// What calibrate and tune share: observing a model on images.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/options.h"
#include "quant/precision_plan.h"

namespace pipit::apps {

/// A plan without tensors and images for `model`, whose graph is still as it was read.
PrecisionPlan empty_plan(const Model& model, const Preprocess& preprocess);

struct Corrections {
  bool equalise = false;         ///< quant/equalise.h
  bool bias_correction = false;  ///< quant/bias_correction.h
};

/// Runs `fused` (of fuse(), layers/fuse/passes.h) in fp32 on the CPU over `images` and sets the plan's tensors, with
/// scales by its method, and its images, named by their paths below `folder`. Of `options` the threads and kernels
/// count. Throws UnsupportedError, beginning with `model`, when the graph has no layer with weights that could run in
/// INT8.
void calibrate_on(PrecisionPlan& plan, const std::string& model, Graph fused, const Preprocess& preprocess,
                  const std::vector<std::filesystem::path>& images, const std::filesystem::path& folder,
                  const CommonOptions& options, const Corrections& corrections = {});

}  // namespace pipit::apps
