// Sweeps as tables for spreadsheets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pipit::internal::detail {

/// A row for each of the document's, which ConvSweep::json or SparsitySweep::json is; of convolutions with a group of
/// columns for each base. Throws Error for another document.
std::string sweep_csv(const nlohmann::ordered_json& document);

}  // namespace pipit::internal::detail
