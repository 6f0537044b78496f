// The accuracy that `pipit evaluate --json` found, for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pipit::internal::detail {

/// The file's model, precision, images, top-1 and top-5 (not for yes or no) with their intervals, and what it was
/// compared with. Throws Error, beginning with the path, for other files.
nlohmann::ordered_json read_accuracy(const std::string& path);

}  // namespace pipit::internal::detail
