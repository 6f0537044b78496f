// What a user may type next.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace pipit::internal::apps {

/// "pipit: next: pipit diff model.onnx 'my photos'   what INT8 costs each layer" on stderr, where that is a terminal
/// and not `quiet`: scripts need no advice. Words are quoted as a shell wants it. Where that does not fit the terminal
/// the command stands below, in a line of its own. Empty words are left out.
void print_next(bool quiet, std::initializer_list<std::string_view> words, std::string_view what);

}  // namespace pipit::internal::apps
