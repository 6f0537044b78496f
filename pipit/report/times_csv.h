// The documents of `bench --json` and `compare --json` as tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pipit::internal::detail {

/// A line of titles and one for each row.
std::string bench_csv(const nlohmann::ordered_json& document);
/// A line of titles, and for each comparison of whole runs one, followed by one for each of its layers.
std::string compare_csv(const nlohmann::ordered_json& document);

}  // namespace pipit::internal::detail
