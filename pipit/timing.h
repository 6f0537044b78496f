/// @file
/// Settings and data for timing models.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"

namespace pipit::tools {

/// Settings and data of bench() and profile_model(): every combination of the lists, precisions outermost, then
/// batches, then threads. An empty list stands for the value of `load`.
struct TimingOptions {
  LoadOptions load = {};                        ///< how models are read and compiled
  std::vector<ModelPrecision> precisions = {};  ///< instead of LoadOptions::precision
  std::vector<std::int64_t> batches = {};       ///< instead of RunShapes::batch
  std::vector<int> threads = {};                ///< instead of DeviceOptions::threads
  /// FILE or NAME=FILE for inputs: a .npy file with the shape of the input or of one sample, which is repeated through
  /// the batch, or an image, which is prepared as by a Classifier. Inputs without a file get random numbers, always the
  /// same.
  std::vector<std::string> inputs = {};
  /// The model gets images as bytes, NxHxWx3 or NxHxWx1, and normalizes them on the device.
  bool image_bytes = false;
  /// Called with each note for the user, one sentence. May be empty.
  std::function<void(const std::string& note)> note = {};
};

}  // namespace pipit::tools
