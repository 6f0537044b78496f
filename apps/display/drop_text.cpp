#include "apps/display/drop_text.h"

#include <fmt/format.h>

#include <cmath>

namespace pipit::internal::apps {

namespace {

// The text of a share, in points that never read -0.00.
std::string points_text(double share) {
  return fmt::format("{:.2f}", std::round(1e4 * share) / 100 + 0.0);
}

}  // namespace

std::string drop_text(const PairedAnswers& answers) {
  const DropInterval interval = drop_interval(answers, 0.95);
  return fmt::format("{} [{}, {}]", points_text(paired_drop(answers)), points_text(interval.low),
                     points_text(interval.high));
}

std::string expected_drop_text(const DropEstimate& drop) {
  return fmt::format("{} ± {}", points_text(drop.mean), points_text(drop.standard_error));
}

nlohmann::ordered_json drop_json(const PairedAnswers& answers, double base_top1) {
  const DropInterval interval = drop_interval(answers, 0.95);
  return {{"images", answers.images},
          {"base_top1", base_top1},
          {"top1", base_top1 - paired_drop(answers)},
          {"drop_points", 100 * paired_drop(answers)},
          {"drop_points_interval95", {100 * interval.low, 100 * interval.high}},
          {"only_base_right", answers.only_first},
          {"only_model_right", answers.only_second}};
}

nlohmann::ordered_json verdict_json(const JudgedDrop& drop) {
  return {{"verdict", verdict_name(drop.verdict)},
          {"images_needed", drop.images > 0 ? nlohmann::ordered_json(drop.images) : nlohmann::ordered_json()},
          {"passed", drop.within}};
}

std::string promise_line(double max_drop_points, const JudgedDrop& drop, int width) {
  return fmt::format("{:<{}}at most {:g} points: {}\n", "promise", width, max_drop_points,
                     verdict_text(drop));
}

}  // namespace pipit::internal::apps
