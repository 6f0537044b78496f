// A quantization plan in the calibration formats of other engines.
#pragma once

#include <string>
#include <vector>

#include "quant/quantization_plan.h"
#include "quant/weight_scale.h"

namespace pipit::internal {

/// TensorRT's calibration cache: a header line with the release that reads it ("10.3.0") and the class of calibrator,
/// IInt8EntropyCalibrator2, which trtexec has; then one "tensor: scale" a line, the scale as the eight hexadecimal
/// digits of its 32 bits (IInt8Calibrator::writeCalibrationCache). Throws ArgumentError for a release of another form
/// and from 11 on, which has no calibrators.
std::string to_trt_cache(const QuantizationPlan& plan, const std::string& release);

/// ncnn's calibration table: a line "layer_param_0 s..." with 127 / largest weight per output channel for every
/// layer with weights, then a line "layer s" with 127 / threshold of its input (ncnn2table). Layers are named after
/// the graph's nodes; inputs that the plan has no scale for are left out with their layer.
std::string to_ncnn_table(const QuantizationPlan& plan, const Graph& graph,
                          const std::vector<WeightScales>& weights);

}  // namespace pipit::internal
