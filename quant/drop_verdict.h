// What a measured drop says of a limit that was promised.
#pragma once

#include <cstdint>
#include <string>

#include "quant/paired_answers.h"

namespace pipit::internal {

/// proven: the whole interval lies within the limit; broken: none of it; unproven: the data does not tell.
enum class DropVerdict { proven, unproven, broken };

struct JudgedDrop {
  DropVerdict verdict = DropVerdict::unproven;
  bool within = false;  ///< whether the drop as it was measured is at most the limit
  /// About this many images would prove this drop to be within the limit; 0 where none would, or where it is proven.
  std::int64_t images = 0;
};

/// Holds paired_drop() and its interval at `confidence` in (0, 1) against `limit`, a share of the images that is not
/// negative. That number of images is the one at which the interval of the same shares of answers ends at the limit.
/// Throws Error without images.
JudgedDrop judge_drop(const PairedAnswers& answers, double limit, double confidence = 0.95);

/// "proven", "not proven" or "broken".
std::string_view verdict_name(DropVerdict verdict);

/// What a user is told of it: "proven there", "not proven there: measured within, about 1200 images there would prove
/// it", ...
std::string verdict_text(const JudgedDrop& drop);

}  // namespace pipit::internal
