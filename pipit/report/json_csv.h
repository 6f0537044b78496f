// Objects of a JSON document as rows of a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipit::internal::detail {

/// One cell: text as csv_name() has it, lists of extents as "1x3x224x224", numbers as in JSON, nothing for null and for
/// what is not there.
std::string csv_value(const nlohmann::ordered_json& row, const std::string& key);

/// A line of titles, the keys, and one for each row (RFC 4180).
std::string json_csv(const std::vector<nlohmann::ordered_json>& rows, const std::vector<std::string>& keys);

}  // namespace pipit::internal::detail
