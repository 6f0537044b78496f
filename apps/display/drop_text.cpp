#include "apps/display/drop_text.h"

#include <fmt/format.h>

#include <cmath>

namespace pipit::internal::apps {

namespace {

// Never -0.00.
std::string points_text(double points) {
  return fmt::format("{:.2f}", std::round(100 * points) / 100 + 0.0);
}

}  // namespace

std::string drop_text(const tools::Drop& drop) {
  return fmt::format("{} [{}, {}]", points_text(drop.points), points_text(drop.low), points_text(drop.high));
}

std::string expected_drop_text(double points, double standard_error) {
  return fmt::format("{} ± {}", points_text(points), points_text(standard_error));
}

std::string promise_line(const tools::JudgedDrop& drop, int width) {
  return fmt::format("{:<{}}at most {:g} points: {}{}\n", "promise", width, drop.max_points,
                     drop.within ? "" : "missed, ", drop.text);
}

}  // namespace pipit::internal::apps
