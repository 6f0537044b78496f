#include "apps/display/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/display/terminal.h"

namespace pipit::internal::apps {

namespace {

// "40 s", "3 min", "2 h 5 min"
std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::ceil(seconds));
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  return minutes < 90 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

// The remaining time is not shown before this much time, and this much of the whole, has passed.
constexpr double kMinSeconds = 1;
constexpr double kMinDone = 0.01;

}  // namespace

Progress::Progress(std::string what, std::int64_t total, bool quiet)
    : what_(std::move(what)), all_{1, 0}, total_(total), shown_(!quiet && isatty(STDERR_FILENO) == 1) {}

Progress::Progress(std::string what, std::vector<Stage> plan, bool quiet)
    : what_(std::move(what)), plan_(std::move(plan)), shown_(!quiet && isatty(STDERR_FILENO) == 1) {
  for (const Stage& stage : plan_) all_.add(stage);
}

Progress::~Progress() {
  if (shown_) show_status_line("");
}

ProgressReport Progress::stage(const std::string& name) {
  return [this, name, entered = std::optional<Entered>()](std::int64_t done, std::int64_t total) mutable {
    if (!entered) entered = enter(name);
    const double of_stage = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
    draw({entered->before.shares + entered->own.shares * of_stage,
          entered->before.seconds + entered->own.seconds * of_stage},
         fmt::format("{} {}/{}", name, done, total));
  };
}

Progress::Entered Progress::enter(const std::string& name) {
  const auto from = plan_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto found = std::find_if(from, plan_.end(), [&](const Stage& stage) { return stage.name == name; });
  if (found == plan_.end()) return {before_, {}};
  for (auto left_out = from; left_out != found; ++left_out) before_.add(*left_out);
  at_ = static_cast<std::size_t>(found - plan_.begin()) + 1;
  const Entered entered{before_, {found->share, found->seconds}};
  before_.add(*found);
  return entered;
}

void Progress::update(std::int64_t done, const std::string& note) {
  draw({total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0, 0},
       fmt::format("{}/{}{}{}", done, total_, note.empty() ? "" : " ", note));
}

void Progress::draw(const Work& done, const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  const bool last = done.shares >= all_.shares && done.seconds >= all_.seconds;
  if (!shown_ || (!last && now - last_ < std::chrono::milliseconds(100))) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  // Shares that lie ahead take as long as those that were done.
  const double shares_took = std::max(seconds - done.seconds, 0.0);
  double remaining = std::max(all_.seconds - done.seconds, 0.0);
  if (done.shares > 0) remaining += shares_took * (all_.shares / done.shares - 1);
  const bool known = done.shares > 0 || all_.shares == 0;
  if (last)
    done_ = 1;
  else if (known && seconds > 0)
    done_ = std::max(done_, seconds / (seconds + remaining));
  constexpr int kBarWidth = 30;
  const int filled = static_cast<int>(kBarWidth * std::clamp(done_, 0.0, 1.0));
  std::string left;
  if (seconds >= kMinSeconds && done_ >= kMinDone && done_ < 1)
    left = fmt::format(", about {} left", duration_text(remaining));
  show_status_line(
      fmt::format("{} [{:#<{}}{:.<{}}] {}{}", what_, "", filled, "", kBarWidth - filled, text, left));
}

}  // namespace pipit::internal::apps
