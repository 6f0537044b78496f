// Files that hold one JSON document after the other, and what those of measurements share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/parse_json.h"

namespace pipit::internal::detail {

/// Calls `take` with one document of `content` after the other; at least once. Throws Error as parse_json() and `take`,
/// of documents that do not begin on the first line with the line on which they do.
void for_each_document(std::string_view content, int most_levels,
                       const std::function<void(const JsonDocument&)>& take);

/// The first of them.
JsonDocument first_document(std::string_view content, int most_levels);

/// Calls `take` with each element of the list that the member `key` is. What it throws begins with the element's
/// number, counted from 1: `"rows", number 3: ...`.
void for_each_entry(const JsonDocument& json, const char* key,
                    const std::function<void(const JsonDocument&)>& take);

/// The member of an object: as it is, text, a number that is positive, one that is not negative (both at most 1e15), a
/// whole number from 1 to 2^31 - 1, a number from 0 to 1, a list, an object, a number of bytes, two positive numbers in
/// their order. All throw Error, with the key, for what is not there or something else.
const JsonDocument& member_of(const JsonDocument& json, const char* key);
std::string text_of(const JsonDocument& json, const char* key);
double positive_of(const JsonDocument& json, const char* key);
double amount_of(const JsonDocument& json, const char* key);
std::int64_t count_of(const JsonDocument& json, const char* key);
double share_of(const JsonDocument& json, const char* key);
const JsonDocument& list_of(const JsonDocument& json, const char* key);
const JsonDocument& object_of(const JsonDocument& json, const char* key);
std::size_t bytes_of(const JsonDocument& json, const char* key);
std::pair<double, double> interval_of(const JsonDocument& json, const char* key);
/// The times "samples_ms", at least one: of something that takes time, and of layers, some of which take less than the
/// clock can tell.
std::vector<double> samples_ms_of(const JsonDocument& json);
std::vector<double> layer_samples_ms_of(const JsonDocument& json);
/// Throws Error where `value`, which the member `key` is, lies outside of the interval that another one is.
void check_within(const char* key, double value, const std::pair<double, double>& interval,
                  const std::string& interval_key);

}  // namespace pipit::internal::detail
