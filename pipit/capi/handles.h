// What the handles of pipit/pipit_c.h hold, and how its functions turn exceptions into statuses.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipit/async_runner.h"
#include "pipit/bench.h"
#include "pipit/calibrate.h"
#include "pipit/classifier.h"
#include "pipit/compiled_model.h"
#include "pipit/diff.h"
#include "pipit/evaluate.h"
#include "pipit/pipit_c.h"
#include "pipit/profile.h"
#include "pipit/progress.h"
#include "pipit/prune.h"
#include "pipit/quantize.h"
#include "pipit/sweep.h"
#include "pipit/tune.h"
#include "pipit/verify.h"

struct pipit_status {
  pipit_code code = PIPIT_ERROR;
  std::string message;
  std::vector<std::string> reasons;
};

namespace pipit::internal::capi {

/// Ends the work after a progress callback has returned another number than 0: PIPIT_CANCELLED.
struct Cancelled : std::exception {
  const char* what() const noexcept override { return "cancelled by the progress callback"; }
};
/// The callback of pipit_options_set_progress().
struct Progress {
  pipit_progress call = nullptr;
  void* user = nullptr;

  /// Calls it, if there is one. Throws Cancelled if it ends the work.
  void advance(const char* stage, std::int64_t part, std::int64_t total) const {
    if (call != nullptr && call(user, stage, part, total) != 0) throw Cancelled();
  }

  /// For work of several stages.
  tools::StageProgress of_stages() const {
    tools::StageProgress stages;
    stages.update = [*this](const std::string& stage, std::int64_t part, std::int64_t total) {
      advance(stage.c_str(), part, total);
    };
    return stages;
  }
};

/// Options of tools, but for those of models and images. A minimal library has none.
struct ToolOptions {
#ifndef PIPIT_MINIMAL
  tools::CalibrateOptions calibrate;
  bool signed_activations = false;
  int weight_bits = 8;
  std::optional<tools::Rounding> rounding;          // of pipit_quantize()
  std::vector<std::filesystem::path> round_images;  // likewise
  tools::QuantizeTarget target = {};
  tools::ProfileOptions profile;
  tools::BenchOptions bench;
  tools::EvaluateOptions evaluate;
  tools::PruneOptions prune;
  tools::TuneOptions tune;
  tools::DiffOptions diff;
  tools::VerifyOptions verify;
  tools::ConvSweepOptions conv;
  tools::SparsitySweepOptions sparsity;
  bool kept_ceilings = false;
#endif
};

}  // namespace pipit::internal::capi

struct pipit_options : pipit::internal::capi::ToolOptions {
  pipit::LoadOptions load;  // but for its precision, whose options may come in any order
  pipit::Precision precision = pipit::Precision::fp32;
  bool has_precision = false;  // it was set
  pipit::Int8 int8;
  std::optional<pipit::Int8Dynamic> int8_dynamic;
  std::optional<pipit::W4> w4;
  pipit::PreprocessOptions preprocess;
  std::string labels;
  std::optional<pipit::ScoreKind> scores;
  double threshold = pipit::ClassifierOptions{}.threshold;
  pipit::internal::capi::Progress progress;
};

struct pipit_model {
  pipit::CompiledModel model;
};

struct pipit_session {
  pipit::CompiledModel model;
  pipit::ModelSession session;
  std::vector<pipit::ArrayView> inputs;          // of the run
  std::vector<pipit::MutableArrayView> outputs;  // likewise
  std::vector<pipit::DeviceArray> device_inputs, device_outputs;
};

struct pipit_runner {
  pipit::AsyncRunner runner;
};

struct pipit_classifier {
  pipit::Classifier classifier;
  std::string preprocessing;
};

struct pipit_predictions {
  std::vector<pipit::Prediction> all;
};

namespace pipit::internal::capi {

/// The precision with its options. Throws ArgumentError for options of another one.
ModelPrecision model_precision(const pipit_options& all);
/// How a model is loaded, with that precision.
LoadOptions load_options(const pipit_options& all);
/// The same with what is for images.
ClassifierOptions classifier_options(const pipit_options& all);

/// Forgets what an earlier call has set.
void clear(pipit_status** status) noexcept;
/// Sets `status` to the exception that is being handled and returns its code.
pipit_code report(pipit_status** status) noexcept;

/// Runs `act`, and returns what it made; NULL after an exception.
template <typename Act>
auto made(pipit_status** status, Act act) noexcept -> decltype(act()) {
  try {
    auto* result = act();
    clear(status);
    return result;
  } catch (...) {
    report(status);
    return nullptr;
  }
}

/// Runs `act`, which returns nothing.
template <typename Act>
pipit_code done(pipit_status** status, Act act) noexcept {
  try {
    act();
    clear(status);
    return PIPIT_OK;
  } catch (...) {
    return report(status);
  }
}

/// Throws ArgumentError where `argument`, called `name`, is NULL.
void need(const void* argument, const char* name);
/// The names or paths of a list. Throws ArgumentError where the list, called `list`, or one of them, called `one`, is
/// NULL.
template <typename Text>
std::vector<Text> needed_all(const char* const* texts, std::size_t count, const char* list, const char* one) {
  need(texts, list);
  std::vector<Text> all;
  for (std::size_t i = 0; i < count; ++i) {
    need(texts[i], one);
    all.emplace_back(texts[i]);
  }
  return all;
}

/// Those of a caller who gave none, too.
inline const pipit_options& given(const pipit_options* options) {
  static const pipit_options defaults;
  return options != nullptr ? *options : defaults;
}

/// A copy that pipit_string_free() frees.
char* new_string(const std::string& text);

/// Lines of text; does nothing where `notes` is NULL.
void set_notes(char** notes, const std::vector<std::string>& lines);

/// What is in the list; NULL beyond its end.
template <typename List>
const char* text_at(const List& list, std::size_t index) noexcept {
  return index < list.size() ? list[index].c_str() : nullptr;
}

/// Sets `tensor` to a value of the model that has no data yet.
void describe(const TensorInfo& info, pipit_tensor& tensor) noexcept;
/// Whose memory a tensor may lie in.
enum class MemoryKind { host, gpu };
/// The array that `tensor` is. Throws ArgumentError, calling it `what`, where it is not `info`, dense and in such
/// memory.
ArrayView array_of(const pipit_tensor& tensor, const TensorInfo& info, const char* what,
                   MemoryKind memory = MemoryKind::host);
/// The same of one for every input of a model.
void arrays_of(const pipit_tensor* tensors, std::size_t count, std::span<const TensorInfo> infos,
               const char* what, std::vector<ArrayView>& arrays);

}  // namespace pipit::internal::capi
