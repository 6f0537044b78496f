#include "apps/display/next_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/display/terminal.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

void print_next(bool quiet, std::initializer_list<std::string_view> words, std::string_view what) {
  if (quiet || isatty(STDERR_FILENO) != 1) return;
  std::string line = "pipit";
  for (const std::string_view word : words) line += word.empty() ? "" : " " + shell_word(word);
  const std::string whole = fmt::format("next: {}   {}", line, what);
  const auto width = static_cast<std::size_t>(terminal_width(STDERR_FILENO));
  const std::size_t name = std::string_view("pipit: ").size();
  print_error(width == 0 || name + whole.size() <= width ? whole
                                                         : fmt::format("next: {}:\n  {}", what, line));
}

}  // namespace pipit::internal::apps
