#include "apps/display/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/display/terminal.h"

namespace pipit::apps {

namespace {

// "40 s", "3 min", "2 h 5 min"
std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::ceil(seconds));
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  return minutes < 90 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

// Nothing is said of what remains before so much time, and so much of the whole, has passed.
constexpr double kLeastSeconds = 1;
constexpr double kLeastDone = 0.01;

}  // namespace

Progress::Progress(std::string what, std::int64_t total, bool quiet)
    : what_(std::move(what)), total_(total), shown_(!quiet && isatty(STDERR_FILENO) == 1) {}

Progress::Progress(std::string what, std::vector<Stage> plan, bool quiet)
    : what_(std::move(what)), plan_(std::move(plan)), shown_(!quiet && isatty(STDERR_FILENO) == 1) {
  for (const Stage& stage : plan_) all_ += stage.share;
}

Progress::~Progress() {
  if (shown_) show_status_line("");
}

ProgressReport Progress::stage(const std::string& name) {
  return [this, name, entered = std::optional<Entered>()](std::int64_t done, std::int64_t total) mutable {
    if (!entered) entered = enter(name);
    const double of_stage = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
    draw((entered->before + entered->share * of_stage) / all_, fmt::format("{} {}/{}", name, done, total));
  };
}

Progress::Entered Progress::enter(const std::string& name) {
  const auto from = plan_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto found = std::find_if(from, plan_.end(), [&](const Stage& stage) { return stage.name == name; });
  if (found == plan_.end()) return {before_, 0};
  for (auto left_out = from; left_out != found; ++left_out) before_ += left_out->share;
  at_ = static_cast<std::size_t>(found - plan_.begin()) + 1;
  const Entered entered{before_, found->share};
  before_ += found->share;
  return entered;
}

void Progress::update(std::int64_t done, const std::string& note) {
  draw(total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0,
       fmt::format("{}/{}{}{}", done, total_, note.empty() ? "" : " ", note));
}

void Progress::draw(double done, const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (done < 1 && now - last_ < std::chrono::milliseconds(100))) return;
  last_ = now;
  constexpr int kBarWidth = 30;
  const int filled = static_cast<int>(kBarWidth * std::clamp(done, 0.0, 1.0));
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  std::string left;
  if (seconds >= kLeastSeconds && done >= kLeastDone && done < 1)
    left = fmt::format(", about {} left", duration_text(seconds * (1 - done) / done));
  show_status_line(
      fmt::format("{} [{:#<{}}{:.<{}}] {}{}", what_, "", filled, "", kBarWidth - filled, text, left));
}

}  // namespace pipit::apps
