// JSON on stdout.
#pragma once

#include <fmt/format.h>

#include "pipit/measuring/json.h"

namespace pipit::internal::apps {

inline void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}", detail::json_text(json));
}

}  // namespace pipit::internal::apps
