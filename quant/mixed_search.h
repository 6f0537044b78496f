// The arithmetic of choosing which layers stay in floating point.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quant/paired_answers.h"

namespace pipit::internal {

/// A drop as the search sees it: a mean and its standard error, as shares of the images.
struct DropEstimate {
  double mean = 0;
  double standard_error = 0;
};
/// paired_drop() itself, with the standard error of drop_interval().
DropEstimate measured_drop(const PairedAnswers& answers);

/// The drop that is to be expected on more images, from margins: per image the score of the right class less the best
/// other score. Where INT8 moves a margin across 0 the answer changes, so with few images the measured drop hangs on
/// the few near ties. Here an image counts as right by 1 / (1 + exp(-margin / width)), which near ties do in part and
/// the others nearly in full: the estimate has a third of the standard error and the same meaning, as long as `width`
/// is small against the spread of the margins. Throws Error for lists of different lengths, without images, or a
/// width that is not positive.
DropEstimate expected_drop(std::span<const float> fp32_margins, std::span<const float> margins, double width);

/// A width for expected_drop(): twice the root mean square difference of the margins, but at most a quarter of the
/// standard deviation of fp32's, since changes as large as the margins themselves are no near ties; and above 0.
double margin_width(std::span<const float> fp32_margins, std::span<const float> int8_margins);

/// What keeping one layer in floating point brings and costs.
struct LayerCost {
  std::string layer;
  double benefit = 0;   ///< in whatever unit; of no use where it is not positive
  double extra_ms = 0;  ///< its time in floating point less that in INT8; at most 0 where INT8 is no faster
};
/// The order in which layers are best kept: those of use that cost nothing, then by benefit per millisecond (the greedy
/// order of the knapsack problem, Dantzig 1957), then those of no use; equals as they were. That layers are judged
/// one at a time is the sensitivity analysis of Wu et al. 2020 ("Integer quantization for deep learning inference",
/// partial quantization), which orders by sensitivity alone.
std::vector<std::string> keeping_order(std::vector<LayerCost> costs);

/// One model in mixed precision.
struct MixedStep {
  int order = 0;  ///< which order of layers
  int kept = 0;   ///< this many layers from its start
  double ms = 0;
  PairedAnswers answers;  ///< against fp32
  DropEstimate drop;
  bool pareto = false;  ///< no other step is as fast with a smaller mean drop, or as good and faster
};
/// Sets `pareto`.
void mark_pareto(std::vector<MixedStep>& steps);

/// The index of the first step that is good enough; their number when not even the last one is. `steps`: of one order,
/// by rising `kept`, the last one all that there are. A step is good enough when its drop and those of all later steps,
/// which keep more, are at most `max_drop` (one that drops little by luck does not count), each with the one-sided
/// upper end of its interval at `confidence` (0.5: the mean), and when the 95 % interval of the drop measured on the
/// answers does not lie above `max_drop` as a whole.
int first_good_step(const std::vector<MixedStep>& steps, double max_drop, double confidence);

/// The index of the step to take: the fastest that is good enough, and of those within 1 % of it the one that keeps
/// least; -1 where none is good enough.
int choose_step(const std::vector<MixedStep>& steps, double max_drop, double confidence);

/// Numbers of kept layers from 0 to `layers`, at most about 20: all up to 6, then ever fewer.
std::vector<int> kept_counts(int layers);

}  // namespace pipit::internal
