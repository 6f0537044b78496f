// What the JSON library says of text that it cannot read, in words for people.
#pragma once

#include <string>
#include <string_view>

namespace pipit::internal {

/// `what` of one of the library's exceptions without the name and number of the exception and "parse error at":
/// "line 3, column 7: syntax error while parsing ...". What it quotes of the text is cut to a readable length.
std::string json_problem(std::string_view what);

}  // namespace pipit::internal
