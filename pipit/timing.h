/// @file
/// In what settings and on what data models are timed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"

namespace pipit::tools {

/// What bench() and profile_model() run: every combination of the lists, precisions outermost, then batches, then
/// threads. An empty list has the one value of `load`.
struct TimingOptions {
  /// How models are read and compiled. Options that are for one precision (plan, keep, group_size) are used in that one
  /// alone.
  LoadOptions load;
  std::vector<Precision> precisions;  ///< instead of LoadOptions::precision
  std::vector<std::int64_t> batches;  ///< instead of LoadOptions::batch
  std::vector<int> threads;           ///< instead of LoadOptions::threads
  /// FILE or NAME=FILE for inputs: a .npy file of the input's shape or of one sample, which is repeated through the
  /// batch, or an image, prepared as a Classifier does. Other inputs, and all where this is empty: random numbers,
  /// always the same.
  std::vector<std::string> inputs;
  /// The model gets images as bytes, NxHxWx3 or NxHxWx1, and normalizes them on the device.
  bool image_bytes = false;
  /// Called with what a user should know, one sentence each time. May be empty.
  std::function<void(const std::string& note)> note;
};

}  // namespace pipit::tools
