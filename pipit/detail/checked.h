// Checks of options that several functions of the public interface share.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "pipit/error.h"
#include "pipit/load_options.h"

namespace pipit::internal::detail {

/// Throws ArgumentError with the number of a value that is no enumerator: of enumerations that count from 0 to `last`.
template <typename E>
void check_enumerator(const char* name, E value, E last) {
  if (static_cast<int>(value) < 0 || static_cast<int>(value) > static_cast<int>(last))
    throw ArgumentError(fmt::format("{} is {}, which is no enumerator; expected 0 to {}", name,
                                    static_cast<int>(value), static_cast<int>(last)));
}
template <typename E>
void check_enumerator(const char* name, const std::optional<E>& value, E last) {
  if (value) check_enumerator(name, *value, last);
}

/// Throws ArgumentError for a value out of [least, most].
inline void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw ArgumentError(fmt::format("{} is {}; expected {} to {}", what, value, least, most));
}

/// Throws ArgumentError for enumerators and threads out of range.
inline void check_device(const DeviceOptions& device) {
  check_enumerator("device.kind", device.kind, DeviceKind::cuda);
  check_range("threads", device.threads, 0, 1024);
}

/// The same for work that runs on the CPU or GPU 0 alone.
inline void check_single_device(const DeviceOptions& device) {
  check_device(device);
  if (!device.gpus.empty() || device.allow_fallback)
    throw ArgumentError("device.gpus and device.allow_fallback have no effect here: of GPUs GPU 0 is used");
}

}  // namespace pipit::internal::detail
