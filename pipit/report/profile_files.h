// The document of `profile --json` in forms that other programs read. Each takes the whole document, of one setting or
// of several.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipit::internal::detail {

/// The results of one document: those of its list, or itself.
std::vector<nlohmann::ordered_json> results_of(const nlohmann::ordered_json& document);

/// A line of titles and one for each layer of each result (RFC 4180).
std::string profile_csv(const nlohmann::ordered_json& document);

/// Trace events (the JSON of chrome://tracing, which Perfetto reads), in microseconds: of each result one run as it
/// went, with its layers inside of it, inside of micro-batches where there are several, and what of the arena holds
/// something.
std::string chrome_trace(const nlohmann::ordered_json& document);

/// What trtexec --exportProfile writes: the number of runs, then every layer with the sum, mean and median of its
/// times in milliseconds and its percentage of all layers' sum. Of a document with one result.
std::string trtexec_profile(const nlohmann::ordered_json& document);

}  // namespace pipit::internal::detail
