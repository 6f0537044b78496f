#include "engine/base/json_problem.h"

namespace pipit::internal {

std::string json_problem(std::string_view what) {
  constexpr std::string_view kName = "[json.exception.";
  constexpr std::string_view kParse = "parse error at ";
  constexpr std::size_t kMax = 200;
  if (what.starts_with(kName)) {
    const std::size_t end = what.find("] ");
    if (end != what.npos) what.remove_prefix(end + 2);
  }
  if (what.starts_with(kParse)) what.remove_prefix(kParse.size());
  std::string text(what.substr(0, kMax));
  return what.size() > kMax ? text + "..." : text;
}

}  // namespace pipit::internal
