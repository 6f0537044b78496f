#include "apps/display/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/display/terminal.h"

namespace pipit::apps {

Progress::Progress(std::string what, std::int64_t total, bool quiet)
    : what_(std::move(what)), total_(total), shown_(!quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) write_stderr("\r\033[K");
}

void Progress::update(std::int64_t done, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (done < total_ && now - last_ < std::chrono::milliseconds(100))) return;
  last_ = now;
  constexpr int kBarWidth = 30;
  const int filled = total_ > 0 ? static_cast<int>(kBarWidth * done / total_) : kBarWidth;
  write_stderr(fmt::format("\r\033[K{} [{:#<{}}{:.<{}}] {}/{} {}", what_, "", filled, "", kBarWidth - filled,
                           done, total_, note));
}

}  // namespace pipit::apps
