// Observing a model on images: what calibrate and tune share.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile.h"
#include "engine/runtime/session.h"
#include "models/image/folder.h"
#include "models/model.h"
#include "pipit/detail/image_names.h"
#include "pipit/progress.h"
#include "quant/calibration.h"
#include "quant/observed_images.h"
#include "quant/quantization_plan.h"
#include "quant/stored_statistics.h"

namespace pipit::internal::detail {

/// Called as images are done, in any thread, one call at a time.
using ImagesDone = std::function<void(std::int64_t done, std::int64_t total)>;

/// What tells `progress` of the stage of that name; does nothing where that is empty. `progress` has to outlive it.
/// Throws Stopped (pipit/detail/stages.h) if `progress` throws.
ImagesDone stage_report(const tools::StageProgress& progress, const std::string& stage);

/// Throws UnsupportedError, beginning with the model's name, where it is quantized already; `act`: what to do instead
/// with the model that it was made from.
void need_floating_point(const Model& model, std::string_view act);

/// A plan without tensors and images for `model`, whose graph is still as it was read.
QuantizationPlan empty_plan(const Model& model, const Preprocess& preprocess);

/// A session in which a CalibrationObserver sees every value of `fused` (of fuse(), layers/passes/passes.h), in fp32 on
/// the CPU. Of `planning` the threads and kernels count, and kernels are chosen by their order: those chosen by timing
/// may round differently from run to run. Adds what a user should know to `notes`. Throws UnsupportedError, beginning
/// with `model`, when the graph has no layer with weights that could run in INT8.
Session calibration_session(const std::string& model, Graph fused, PlanOptions planning,
                            std::vector<std::string>& notes);

/// Divides the channels of `fused` as the plan then says (quant/equalize.h); a note where there is nothing to do.
Graph equalized(QuantizationPlan& plan, const Graph& fused, std::vector<std::string>& notes);

/// The plan's tensors, with their histograms and without scales.
void set_observed(QuantizationPlan& plan, const CalibrationObserver& observer);

/// What a user should know of the images and scales of a plan: few images, copies, what is clipped.
std::vector<std::string> calibration_notes(const QuantizationPlan& plan);

struct Corrections {
  bool equalize = false;         ///< quant/equalize.h
  bool bias_correction = false;  ///< quant/bias_correction.h
};

struct Calibrated {
  std::vector<std::string> notes;           ///< what a user should know besides
  std::vector<UnreadableImage> unreadable;  ///< images that were excluded because they cannot be used
  std::vector<TensorPeaks> peaks;           ///< of the images, and then of `later`
  InputLikeness likeness;                   ///< of the first input of the images, where it is f32
  std::vector<std::int64_t> best;           ///< the index of the largest value of the first output, per image
  std::optional<StatisticsDifference> statistics;  ///< from training, where ImageChecks::stored is there
};

/// What the images are compared with.
struct ImageChecks {
  std::vector<std::filesystem::path> later = {};  ///< images; those that cannot be used are left out
  std::optional<StoredStatistics> stored = {};    ///< of the model as it was read
};

/// Runs `fused` in a calibration_session() over `images` and sets the plan's tensors, with scales by its method, and
/// its images with their names and hashes, sorted. Throws what calibration_session() does, and Error where no image can
/// be used, or one is there twice, with `strict` for the first that cannot.
Calibrated calibrate_on(QuantizationPlan& plan, const std::string& model, Graph fused,
                        const Preprocess& preprocess, const std::vector<std::filesystem::path>& images,
                        const ImageNames& names, PlanOptions planning, const Corrections& corrections,
                        const ImagesDone& progress, bool strict, const ImageChecks& checks = {});

}  // namespace pipit::internal::detail
