// Checks of options that several functions of the public interface share.
#pragma once

#include <fmt/core.h>

#include <cstdint>

#include "pipit/error.h"
#include "pipit/load_options.h"

namespace pipit::internal::detail {

/// Throws ArgumentError for a value out of [least, most].
inline void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw ArgumentError(fmt::format("{} is {}; expected {} to {}", what, value, least, most));
}

/// Throws ArgumentError for threads out of range.
inline void check_device(const DeviceOptions& device) {
  check_range("threads", device.threads, 0, 1024);
}

/// The same for work that runs on the CPU or GPU 0 alone.
inline void check_single_device(const DeviceOptions& device) {
  check_device(device);
  if (!device.gpus.empty() || device.allow_fallback)
    throw ArgumentError("device.gpus and device.allow_fallback have no effect here: of GPUs GPU 0 is used");
}

}  // namespace pipit::internal::detail
