#include "apps/display/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "apps/display/table.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

bool status_is_shown = false;  // progress is drawn by one thread, which writes messages as well

// Lines end in a newline.
std::string fitted(std::string_view text, int width) {
  constexpr std::size_t kPrefix = std::string_view("pipit: ").size();
  std::string lines;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(end)) {
    end = text.find('\n') + 1;
    const std::string_view line = text.substr(0, end);
    lines += line.starts_with(' ') ? std::string(line) : wrapped(line, kPrefix, width);
  }
  return lines;
}

}  // namespace

int terminal_width(int file) {
  winsize size{};
  if (isatty(file) == 0 || ioctl(file, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

void print_error(std::string_view message) noexcept {
  show_status_line("");
  try {
    write_stderr(
        fitted("pipit: " + first_lines(printable_lines(message)) + "\n", terminal_width(STDERR_FILENO)));
  } catch (...) {  // no memory for the copy: better the bare fact than an abort
    std::fputs("pipit: out of memory\n", stderr);
  }
}

void show_status_line(const std::string& line) noexcept {
  if (line.empty() && !status_is_shown) return;
  std::fputs("\r\033[K", stderr);
  write_stderr(line);
  status_is_shown = !line.empty();
}

void write_stderr(const std::string& text) noexcept {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace pipit::internal::apps
