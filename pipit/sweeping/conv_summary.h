// What the rows of `pipit sweep conv` come to: geometric means.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// A precision by the fastest of its kernels is held against all of `bases` but itself.
std::vector<tools::ConvSummary> summaries_of(const std::vector<tools::ConvRow>& rows,
                                             const std::vector<std::string>& bases);
nlohmann::ordered_json summaries_json(const std::vector<tools::ConvSummary>& summaries);

}  // namespace pipit::internal::detail
