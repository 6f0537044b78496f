// What a user should know, on stderr.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace pipit::internal::apps {

/// Writes them to stderr.
void print_notes(const std::vector<std::string>& notes);
/// Writes one to stderr, for the library's options; nothing if `quiet`.
std::function<void(const std::string&)> note_printer(bool quiet);

}  // namespace pipit::internal::apps
