// Measures a model with more and more of its layers in floating point: accuracy and time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/classification.h"
#include "pipit/accuracy.h"
#include "pipit/detail/calibration.h"
#include "pipit/measuring/error_shares.h"
#include "quant/mixed_search.h"

namespace pipit::internal::detail {

using tools::JudgeBy;

/// The answers of the model in fp32 and what is right, for all images. An answer is the class of the largest score, or
/// yes or no; with JudgeBy::model, of tags all of them.
class Judge {
 public:
  /// `labels`: one per image; not read for JudgeBy::model.
  Judge(JudgeBy judge_by, const ClassOutput& output, const std::vector<int>& labels,
        const ImageOutputs& fp32);

  double fp32_top1() const;
  PairedAnswers compare(const ImageOutputs& outputs) const;
  /// With labels expected_drop(), its width taken from `int8`, the outputs of INT8 throughout. What fp32 says itself
  /// INT8 can only lose: there the measured drop.
  DropEstimate drop(const ImageOutputs& outputs, const ImageOutputs& int8) const;

 private:
  using Answers = std::vector<std::vector<int>>;  // of each image
  Answers answers(const ImageOutputs& outputs) const;
  std::vector<float> margins(const ImageOutputs& outputs) const;
  JudgeBy judge_by_;
  ClassOutput output_;
  Answers right_;
  Answers fp32_;
  std::vector<float> fp32_margins_;
};

/// What the share of answers that are right is called: "top-1", "accuracy" (of yes or no) or, by what a model
/// itself says, "agreement with " and `base`.
std::string measure_name(JudgeBy judge_by, const ClassOutput& output, const std::string& base);

struct Ladder {
  std::vector<std::string> order;  ///< layers, the one best kept in floating point first
  std::vector<MixedStep> steps;    ///< the first in INT8 throughout, the last with no layer in INT8
};

/// What was measured: orders of layers, each with steps that keep more and more of them.
struct Search {
  std::vector<std::string> order_names;
  std::vector<Ladder> ladders;
  double int8_ms = 0;
  double fp32_ms = 0;
  /// The whole model in bf16: with `with_bf16`, or if it is the last step.
  std::optional<MixedStep> bf16;

  std::set<std::string> kept(const MixedStep& step) const;
  /// All steps, those of later ladders that are in the first one too left out; with `pareto` set.
  std::vector<MixedStep> all_steps() const;
  /// choose_step() in every ladder, the fastest of those. Nothing where layers are kept in 16 bits and not even all of
  /// them are good enough.
  std::optional<MixedStep> choose(double max_drop, double confidence) const;
};

/// Orders the layers and followers of `model` twice: by the noise that each causes at the output (of `some` images),
/// and by how much less the top-1 of `images` is expected to drop when it is kept, each per millisecond that keeping it
/// costs (its step's medians over profiled runs in both precisions). Then runs both ladders over `images` and times
/// their steps on the first batch in turns with the all-INT8 model, so that a machine that becomes slower meanwhile
/// makes no step look slower. `with_bf16`: the whole model in bf16 is a step, too.
Search search_mixed(const MixedModel& model, PreparedImages& some, PreparedImages& images, const Judge& judge,
                    bool with_bf16, const ImagesDone& judging, const ImagesDone& climbing);

}  // namespace pipit::internal::detail
