// Rows of `pipit sweep sparsity` as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// "dense" where nothing was removed.
std::string_view mode_name(const tools::SparsityRow& row);
/// What it is a row of.
std::string key_of(const tools::SparsityRow& row);
nlohmann::ordered_json sparsity_row_json(const tools::SparsityRow& row);
/// Throws Error for JSON that is none.
tools::SparsityRow sparsity_row_from(const nlohmann::ordered_json& json);

}  // namespace pipit::internal::detail
