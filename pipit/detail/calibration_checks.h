// What may be wrong with the images of a calibration, found without labels.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/classification.h"
#include "models/model.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/preparation.h"

namespace pipit::internal::detail {

/// What was found, and the notes for the user that it is worth; docs/quantization.md has the rules.
struct CalibrationChecks {
  std::vector<std::string> notes;
  nlohmann::ordered_json json;
};

/// `done`: of calibrate_on(), `images` of whose images were calibrated on; any others are later ones. `output`: of a
/// classifier. `model`: with what it stores; `preparation`: of the images. `input`: the range of the first input, where
/// it was observed.
CalibrationChecks calibration_checks(const Calibrated& done, std::int64_t images,
                                     const std::optional<ClassOutput>& output, const Model& model,
                                     const Preparation& preparation, const TensorScale* input);

}  // namespace pipit::internal::detail
