// A profile, a sweep, or both as one page for a browser.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pipit::internal::detail {

/// The document of `profile --json`, which may have that of `sweep --json` as its "sweep", or the latter alone, as
/// one HTML file that loads nothing: the parts of page/ and the document, without the single times of layers and
/// rows, and with at most 1000 of runs. Nothing in the document can end the block that it stands in; the page writes
/// what it shows of it as text.
std::string html_report(const nlohmann::ordered_json& document);

}  // namespace pipit::internal::detail
