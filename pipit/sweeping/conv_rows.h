// Rows of `pipit sweep conv` as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// What it is a row of.
std::string key_of(const tools::ConvRow& row);
nlohmann::ordered_json conv_row_json(const tools::ConvRow& row);
/// Throws Error for JSON that is none.
tools::ConvRow conv_row_from(const nlohmann::ordered_json& json);

}  // namespace pipit::internal::detail
