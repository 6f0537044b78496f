#include "quant/drop_verdict.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxImages = std::int64_t{1} << 30;

// The fewest images at which the same shares of answers would be within the limit for certain; 0 for more than there
// are anywhere.
std::int64_t images_to_prove(const PairedAnswers& answers, double limit, double confidence) {
  const auto proves = [&](std::int64_t images) {
    const double times = static_cast<double>(images) / static_cast<double>(answers.images);
    const PairedAnswers more{images, std::llround(times * static_cast<double>(answers.only_first)),
                             std::llround(times * static_cast<double>(answers.only_second))};
    return drop_interval(more, confidence).high <= limit;
  };
  std::int64_t low = answers.images;
  std::int64_t high = 2 * low;
  while (high < kMaxImages && !proves(high)) high *= 2;
  if (high >= kMaxImages) return 0;
  while (low + 1 < high) {
    const std::int64_t middle = low + (high - low) / 2;
    (proves(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

JudgedDrop judge_drop(const PairedAnswers& answers, double limit, double confidence) {
  if (!(limit >= 0)) fail("a limit of {}: expected 0 or more", limit);
  const double drop = paired_drop(answers);
  const DropInterval interval = drop_interval(answers, confidence);
  JudgedDrop judged;
  judged.within = drop <= limit;
  if (interval.high <= limit) {
    judged.verdict = DropVerdict::proven;
  } else if (interval.low > limit) {
    judged.verdict = DropVerdict::broken;
  } else if (drop < limit) {
    judged.images = images_to_prove(answers, limit, confidence);
  }
  return judged;
}

std::string_view verdict_name(DropVerdict verdict) {
  switch (verdict) {
    case DropVerdict::proven:
      return "proven";
    case DropVerdict::broken:
      return "broken";
    case DropVerdict::unproven:
      break;
  }
  return "not proven";
}

std::string verdict_text(const JudgedDrop& drop) {
  std::string text = fmt::format("{} there", verdict_name(drop.verdict));
  if (drop.verdict != DropVerdict::unproven) return text;
  if (!drop.within) return text + ", and measured above";
  if (drop.images == 0) return text + ": measured at the limit itself";
  return text + fmt::format(": measured within, about {} images there would prove it", drop.images);
}

}  // namespace pipit::internal
