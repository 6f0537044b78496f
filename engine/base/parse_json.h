// JSON that others wrote: text -> document, in time that is linear in the text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pipit::internal {

/// Members keep the order of the text.
using JsonDocument = nlohmann::ordered_json;

/// The document `text`. What is nested deeper than `most_levels` (1: a list or an object of plain values) is refused
/// where it begins, before it takes memory. Throws Error with line and column of what is not JSON, for too many levels,
/// and for a member that an object has twice, of which the library would drop one.
JsonDocument parse_json(std::string_view text, int most_levels);

/// `json` as one short line for a message.
std::string shown(const JsonDocument& json);

}  // namespace pipit::internal
