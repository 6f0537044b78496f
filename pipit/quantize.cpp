#include "pipit/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "layers/passes/pipeline.h"
#include "models/prepared_images.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/detail/rounded_weights.h"
#include "pipit/detail/stages.h"
#include "pipit/detail/walked_images.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"
#include "pipit/text.h"
#include "pipit/version.h"
#include "quant/equalize.h"
#include "quant/kept_layers.h"
#include "quant/quantize_graph.h"
#include "sparsity/layer_walk.h"

namespace pipit::tools {

using namespace internal;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

QdqForm form_for(QuantizeTarget target) {
  switch (target) {
    case QuantizeTarget::pipit:
      break;
    case QuantizeTarget::tensorrt:
      return {.activation = WrittenActivation::plain, .float_bias = true, .rounded_function = false};
    case QuantizeTarget::onnxruntime:
      return {.activation = WrittenActivation::leaky, .rounded_residual = true};
    case QuantizeTarget::openvino:
      return {.activation = WrittenActivation::plain, .float_bias = true, .rounded_moves = false};
  }
  return {};
}

bool is_int8(const QuantizeOptions& options) {
  return options.precision.kind() == Precision::int8;
}

Rounding rounding_of(const QuantizeOptions& options) {
  return options.rounding.value_or(options.images.empty() ? Rounding::nearest : Rounding::second_order);
}

void check_int8(const QuantizeOptions& options, const fs::path& plan) {
  if (plan.empty()) throw ArgumentError("precision int8 needs a plan with scales, which calibrate() writes");
  if (const Int8* const given = options.precision.int8();
      given != nullptr && !(given->plan.empty() && given->keep.empty()))
    throw ArgumentError(
        "Int8::plan and Int8::keep have no part in quantize(); give `plan` and QuantizeOptions::keep");
  if (options.weight_bits != 8 && options.weight_bits != 4)
    throw ArgumentError(fmt::format("weight_bits is {}; expected 8 or 4", options.weight_bits));
  if (options.weight_bits == 4 && options.target != QuantizeTarget::pipit)
    throw ArgumentError(fmt::format("weight_bits 4 is for target pipit, not {}; leave it at 8",
                                    quantize_target_name(options.target)));
  if (options.signed_activations && options.target == QuantizeTarget::openvino)
    throw ArgumentError(
        "OpenVINO computes a Concat of signed and non-negative i8 wrongly; leave activations unsigned for "
        "it");
}

void check_stored(const QuantizeOptions& options, const fs::path& plan) {
  const Precision kind = options.precision.kind();
  if (kind != Precision::w8 && kind != Precision::w4)
    throw ArgumentError(fmt::format("precision {}; expected int8, w8 or w4", precision_name(kind)));
  if (!plan.empty())
    throw ArgumentError(fmt::format("a plan is for precision int8, not {}", precision_name(kind)));
  if (!options.keep.empty() || options.target != QuantizeTarget::pipit || options.signed_activations ||
      options.weight_bits != 8)
    throw ArgumentError(
        fmt::format("keep, target, signed_activations and weight_bits are for precision int8, not {}",
                    precision_name(kind)));
}

void check(const QuantizeOptions& options, const fs::path& plan) {
  detail::check_enumerator("target", options.target, QuantizeTarget::openvino);
  if (options.rounding) detail::check_enumerator("rounding", *options.rounding, Rounding::second_order);
  is_int8(options) ? check_int8(options, plan) : check_stored(options, plan);
  if (options.limit < 0) throw ArgumentError(fmt::format("limit is {}; expected 0 or more", options.limit));
  const bool images = !options.images.empty();
  if (rounding_of(options) == Rounding::second_order && !images)
    throw ArgumentError("second-order rounding needs images that the model runs on");
  if (rounding_of(options) == Rounding::nearest && images)
    throw ArgumentError("images are for second-order rounding; nearest rounding looks at none");
  if (!images && (options.preprocess != PreprocessOptions{} || options.limit != 0 || options.strict))
    throw ArgumentError("preprocess, limit and strict are for images, and there are none");
}

// One run of quantize(), from the model that was read to the file.
class Quantizer {
 public:
  Quantizer(Model model, fs::path plan, const QuantizeOptions& options)
      : options_(options), plan_path_(std::move(plan)), model_(std::move(model)) {
    detail::need_floating_point(model_, "quantize");
    if (is_int8(options_)) plan_ = detail::read_plan_for(plan_path_, model_.graph);
    if (options_.weight_bits == 4 && !plan_.weights_per_channel)
      throw ArgumentError(
          fmt::format("{}: weights in 4 bits need scales per channel; calibrate without scales per tensor",
                      plan_path_.string()));
    need_metadata(model_, kPreprocessKey);
    if (!options_.images.empty()) list_images();
    if (is_int8(options_) && model_.preprocess)
      differences_ = detail::differences_from(plan_, *model_.preprocess);
    symbolic_batch_ = !model_.fixed_batch && !options_.load.shapes.batch;
    fused_ = fuse(std::move(model_.graph));
    if (options_.weight_bits == 4) {
      in_4_bits_ = worth_4_bits(fused_);
      if (in_4_bits_.empty()) add_notes({"all weights keep 8 bits: no layer has rows of 32 or more"});
    }
    if (is_int8(options_)) add_notes(keep_nodes(plan_, fused_, detail::kept_of(options_.keep)));
  }

  void round() {
    if (options_.images.empty()) return;
    detail::RoundingRun run;
    run.images = read_images();
    run.threads = options_.load.device.threads;
    run.progress = [&](std::int64_t done, std::int64_t total) {
      detail::report_stage(options_.progress, "rounding", done, total);
    };
    naming(model_.name, [&] {
      if (is_int8(options_)) {
        rounded_ = detail::rounded_int8_weights(equalize(fused_, plan_.equalized), plan_, in_4_bits_,
                                                std::move(run), losses_);
      } else {
        stored_ = detail::rounded_stored_weights(fused_, store_, std::move(run), losses_);
      }
    });
    if (losses_.empty())
      add_notes({"no layer was rounded on the images: none is quantized and small enough"});
  }

  detail::QuantizedFile file() {
    if (!is_int8(options_))
      return detail::stored_file(model_.name, fused_, store_, std::move(model_.metadata), symbolic_batch_,
                                 options_.load.device.threads, std::move(stored_));
    const detail::FileForm form = {.activations = is_signed() ? DType::i8 : DType::u8,
                                   .symbolic_batch = symbolic_batch_,
                                   .in_4_bits = in_4_bits_,
                                   .qdq = form_for(options_.target)};
    return detail::quantized_file(model_.name, fused_, plan_, std::move(model_.metadata), form,
                                  std::move(rounded_));
  }

  QuantizedFile result(const detail::QuantizedFile& file, const fs::path& output) const {
    QuantizedFile result;
    (is_int8(options_) ? result.int8_layers : result.stored_layers) = file.quantized;
    result.float_layers = file.kept;
    result.bytes = std::ssize(file.bytes);
    result.rounding = rounding_of(options_);
    result.images = images_;
    result.excluded = detail::excluded_images(left_out_, unreadable_);
    for (const detail::RoundingLoss& loss : losses_)
      result.rounded.push_back({loss.node, loss.nearest, loss.rounded});
    if (!differences_.empty()) result.notes.push_back(detail::differences_note(plan_path_, differences_));
    result.notes.insert(result.notes.end(), notes_.begin(), notes_.end());
    if (!losses_.empty() && std::ssize(losses_) < file.quantized)
      result.notes.push_back(
          fmt::format("{} of {} layers keep the nearest integers: they have more than {} inputs per output",
                      file.quantized - std::ssize(losses_), file.quantized, most_depth()));
    result.notes.insert(result.notes.end(), file.notes.begin(), file.notes.end());
    Json json = {{"pipit", version()},
                 {"command", "quantize"},
                 {"model", model_.name},
                 {"output", output.string()},
                 {"precision", options_.precision.name()},
                 {"rounding", rounding_name(result.rounding)}};
    if (is_int8(options_)) {
      json["preprocess_differences"] = differences_;
      json["target"] = quantize_target_name(options_.target);
      json["activations"] = is_signed() ? "s8" : "u8";
      json["weight_bits"] = options_.weight_bits;
      json["int8_nodes"] = file.quantized;
    } else {
      json["stored_nodes"] = file.quantized;
    }
    json["kept_nodes"] = file.kept;
    json["bytes"] = file.bytes.size();
    if (!options_.images.empty()) {
      json["images"] = images_;
      json.update(detail::excluded_json(left_out_, unreadable_));
      json["layers"] = Json::array();
      for (const RoundedLayer& layer : result.rounded)
        json["layers"].push_back(
            {{"name", layer.name}, {"nearest", layer.nearest}, {"rounded", layer.rounded}});
    }
    result.json = detail::json_text(json);
    return result;
  }

 private:
  bool is_signed() const {
    return options_.signed_activations || options_.target == QuantizeTarget::tensorrt;
  }

  void add_notes(const std::vector<std::string>& notes) {
    notes_.insert(notes_.end(), notes.begin(), notes.end());
  }

  // Which images there are, and how they are prepared; needs the graph as it was read.
  void list_images() {
    detail::ImageList list = detail::list_given(options_.images, options_.strict);
    left_out_ = list.files.left_out;
    paths_ = std::move(list.files.paths);
    detail::Preparation preparation = detail::prepare_files(model_, options_.preprocess, paths_);
    const bool as_planned = options_.preprocess == PreprocessOptions{} && !plan_.preprocess.empty() &&
                            preparation.source != detail::Preparation::Source::arrays;
    if (as_planned) {
      preparation.preprocess = preprocess_from_json(plan_.preprocess);
    } else {
      add_notes(detail::notes_on(model_, preparation, true, false, {}, 0));
      if (is_int8(options_) && preparation.source != detail::Preparation::Source::arrays)
        add_notes(differing(preparation.preprocess));
    }
    preprocess_ = preparation.preprocess;
  }

  std::vector<std::string> differing(const Preprocess& preprocess) const {
    const std::vector<std::string> differences = detail::differences_from(plan_, preprocess);
    if (differences.empty()) return {};
    return {detail::differences_note(plan_path_, differences)};
  }

  std::vector<Tensor> read_images() {
    const SampleInputs inputs(fused_);
    const std::int64_t found = std::ssize(paths_);
    const std::int64_t fit = walkable(inputs.samples);
    const std::int64_t wanted = std::min(options_.limit == 0 ? found : options_.limit, found);
    PreparedImages images(detail::spread(std::move(paths_), std::min(wanted, fit)), preprocess_, inputs,
                          shared_pool(options_.load.device.threads));
    if (!options_.strict) images.skip_unreadable();
    std::vector<Tensor> runs = detail::read_runs(images);
    unreadable_ = images.unreadable();
    images_ = std::ssize(runs) * inputs.samples;  // whole batches
    std::vector<std::string> notes;
    detail::add_image_notes(notes, left_out_, unreadable_, found);
    if (const std::int64_t rest = images.size() - std::ssize(unreadable_) - images_; rest > 0)
      notes.push_back(
          fmt::format("{} images are left out: they do not fill a batch of {}", rest, inputs.samples));
    add_notes(notes);
    if (wanted > fit)
      add_notes({fmt::format(
          "weights are rounded on {} of the images: what lies between the layers of more does not "
          "fit {}",
          fit, mebibytes(detail::kWalkBytes))});
    return runs;
  }

  std::int64_t walkable(std::int64_t batch) const {
    return naming(model_.name, [&] { return detail::walkable_images(fused_, batch); });
  }

  static WeightOnlyOptions stored_options(const ModelPrecision& precision) {
    const W4* const w4 = precision.w4();
    return {.bits = precision.kind() == Precision::w4 ? 4 : 8, .group_size = w4 != nullptr ? w4->group : 0};
  }

  const QuantizeOptions& options_;
  fs::path plan_path_;
  Model model_;                                                   // without its graph
  QuantizationPlan plan_;                                         // for int8
  WeightOnlyOptions store_ = stored_options(options_.precision);  // for w8 and w4
  Graph fused_;
  std::set<std::string> in_4_bits_;  // layers, for weight_bits 4
  bool symbolic_batch_ = false;
  std::vector<std::string> differences_;  // of what the model stores from the plan
  std::vector<std::string> notes_;
  LeftOut left_out_;
  std::vector<fs::path> paths_;
  Preprocess preprocess_;
  std::vector<UnreadableImage> unreadable_;
  std::int64_t images_ = 0;
  std::map<std::string, QuantizedWeights> rounded_;  // for int8
  std::map<std::string, StoredLayer> stored_;        // for w8 and w4
  std::vector<detail::RoundingLoss> losses_;
};

}  // namespace

std::string_view rounding_name(Rounding rounding) {
  return rounding == Rounding::nearest ? "nearest" : "second-order";
}

std::string_view quantize_target_name(QuantizeTarget target) {
  switch (target) {
    case QuantizeTarget::pipit:
      return "pipit";
    case QuantizeTarget::tensorrt:
      return "tensorrt";
    case QuantizeTarget::onnxruntime:
      return "onnxruntime";
    case QuantizeTarget::openvino:
      return "openvino";
  }
  return "?";
}

QuantizedFile quantize(const std::string& model, const fs::path& plan, const fs::path& output,
                       const QuantizeOptions& options) {
  const ScopedFloatMode mode;
  check(options, plan);
  std::vector<std::string> inputs{model, plan.string()};
  for (const fs::path& image : options.images) inputs.push_back(image.string());
  check_output_file(output, inputs);
  const bool rounds = !options.images.empty();
  std::vector<Stage> stages{{detail::kReading}};
  if (rounds) stages.push_back({"rounding", 20});
  stages.insert(stages.end(), {{"quantizing"}, {"writing"}});
  detail::plan_stages(options.progress, stages);
  const auto begin = [&](const char* stage) { detail::report_stage(options.progress, stage, 0, 1); };
  begin(detail::kReading);
  Quantizer quantizer(detail::read_model(model, options.load), plan, options);
  if (rounds) begin("rounding");
  quantizer.round();
  begin("quantizing");
  const detail::QuantizedFile file = quantizer.file();
  begin("writing");
  write_file(output, file.bytes);
  return quantizer.result(file, output);
}

}  // namespace pipit::tools
