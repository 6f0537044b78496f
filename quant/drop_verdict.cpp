#include "quant/drop_verdict.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/error.h"

namespace pipit {

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
    const double times = (interval.high - drop) / (limit - drop);
    const double images = std::ceil(static_cast<double>(answers.images) * times * times);
    if (images < 1e9) judged.images = static_cast<std::int64_t>(images);
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

}  // namespace pipit
