#include "pipit/report/json_csv.h"

#include "pipit/report/csv.h"

namespace pipit::internal::detail {

std::string csv_value(const nlohmann::ordered_json& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return {};
  if (found->is_string()) return csv_name(found->get<std::string>());
  if (!found->is_array()) return found->dump();
  std::string extents;
  for (const auto& extent : *found) extents += (extents.empty() ? "" : "x") + extent.dump();
  return extents;
}

std::string json_csv(const std::vector<nlohmann::ordered_json>& rows, const std::vector<std::string>& keys) {
  std::string csv = csv_line(keys);
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& key : keys) cells.push_back(csv_value(row, key));
    csv += csv_line(cells);
  }
  return csv;
}

}  // namespace pipit::internal::detail
