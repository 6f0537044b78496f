// Files that hold JSON documents one behind the other, and what those of measurements share.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/parse_json.h"

namespace pipit::apps {

/// Calls `take` with one document of `content` after the other; at least once. Throws Error as parse_json().
void for_each_document(std::string_view content, int most_levels,
                       const std::function<void(const JsonDocument&)>& take);

/// The first of them.
JsonDocument first_document(std::string_view content, int most_levels);

/// The member of an object, text, and the times "samples_ms". All throw Error, with the key, for what is not there or
/// something else.
const JsonDocument& member_of(const JsonDocument& json, const char* key);
std::string text_of(const JsonDocument& json, const char* key);
std::vector<double> samples_ms_of(const JsonDocument& json);

}  // namespace pipit::apps
