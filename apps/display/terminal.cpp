#include "apps/display/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace pipit::apps {

namespace {

bool status_is_shown = false;  // progress is drawn by one thread, which writes messages as well

}  // namespace

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string first_lines(std::string_view text, int count) {
  std::size_t end = 0;
  for (int line = 0; line < count; ++line) {
    end = text.find('\n', end);
    if (end == std::string_view::npos) return std::string(text);
    ++end;
  }
  const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n') + 1;
  return fmt::format("{}  ... and {} more", text.substr(0, end), more);
}

void print_error(std::string_view message) noexcept {
  show_status_line("");
  try {
    write_stderr(fmt::format("pipit: {}\n", first_lines(printable_lines(message))));
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

}  // namespace pipit::apps
