#include "pipit/measuring/drop_json.h"

namespace pipit::internal::detail {

tools::Drop drop_of(const PairedAnswers& answers, double base) {
  const DropInterval interval = drop_interval(answers, 0.95);
  return {answers.images,
          base,
          answers.only_first,
          answers.only_second,
          100 * paired_drop(answers),
          100 * interval.low,
          100 * interval.high};
}

tools::JudgedDrop judged(const PairedAnswers& answers, double max_points) {
  const JudgedDrop drop = judge_drop(answers, max_points / 100);
  const tools::Verdict verdict = drop.verdict == DropVerdict::proven   ? tools::Verdict::proven
                                 : drop.verdict == DropVerdict::broken ? tools::Verdict::broken
                                                                       : tools::Verdict::not_proven;
  return {max_points, verdict, drop.within, drop.images, verdict_text(drop)};
}

nlohmann::ordered_json drop_json(const tools::Drop& drop) {
  const double lost = paired_drop({drop.images, drop.only_base_right, drop.only_model_right});
  return {{"images", drop.images},
          {"base_top1", drop.base},
          {"top1", drop.base - lost},
          {"drop_points", drop.points},
          {"drop_points_interval95", {drop.low, drop.high}},
          {"only_base_right", drop.only_base_right},
          {"only_model_right", drop.only_model_right}};
}

nlohmann::ordered_json verdict_json(const tools::JudgedDrop& drop) {
  const std::int64_t needed = drop.images_needed;
  return {{"verdict", verdict_name(drop.verdict)},
          {"images_needed", needed > 0 ? nlohmann::ordered_json(needed) : nlohmann::ordered_json()},
          {"passed", drop.within}};
}

}  // namespace pipit::internal::detail
