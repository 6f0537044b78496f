#include "apps/display/next_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/display/shell_word.h"
#include "apps/display/terminal.h"

namespace pipit::apps {

void print_next(bool quiet, std::initializer_list<std::string_view> words, std::string_view what) {
  if (quiet || isatty(STDERR_FILENO) != 1) return;
  std::string line = "pipit";
  for (const std::string_view word : words) line += " " + shell_word(word);
  print_error(fmt::format("next: {}   {}", line, what));
}

}  // namespace pipit::apps
