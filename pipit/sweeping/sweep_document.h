// What `pipit sweep --json` found, for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pipit::internal::detail {

/// The document of the file, of `sweep conv` or `sweep sparsity`, its rows read and its summaries made again. Throws
/// Error, beginning with the path, for other files and other versions.
nlohmann::ordered_json read_sweep_document(const std::string& path);

}  // namespace pipit::internal::detail
