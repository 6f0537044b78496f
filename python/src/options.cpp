// The structs of options. python/pipit/_options.py sets their members from keyword arguments.
#include <algorithm>

#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

// The options of a precision as keyword arguments give them, in any order: of one precision or a list of them.
struct PrecisionOptions {
  Precision precision = Precision::fp32;
  std::vector<Precision> precisions;
  std::filesystem::path plan;
  std::vector<std::string> keep;
  std::optional<bool> per_sample_scales;
  std::optional<std::int64_t> group_size;

  ModelPrecision with_options(Precision kind) const {
    switch (kind) {
      case Precision::int8:
        return Int8{.plan = plan, .keep = keep};
      case Precision::int8_dynamic:
        return Int8Dynamic{.per_sample_scales = per_sample_scales.value_or(true)};
      case Precision::w4:
        return W4{.group = group_size.value_or(0)};
      default:
        return kind;
    }
  }
  // Throws ArgumentError for an option of another precision.
  void check() const {
    const std::vector<Precision> all = precisions.empty() ? std::vector{precision} : precisions;
    const auto only_for = [&](Precision other, bool given, const char* name) {
      if (!given || std::find(all.begin(), all.end(), other) != all.end()) return;
      throw ArgumentError(std::string(name) + "= is for precision='" + std::string(precision_name(other)) +
                          "', not '" + std::string(precision_name(all[0])) + "'");
    };
    only_for(Precision::int8, !plan.empty(), "plan");
    only_for(Precision::int8, !keep.empty(), "keep");
    only_for(Precision::int8_dynamic, per_sample_scales.has_value(), "per_sample_scales");
    only_for(Precision::w4, group_size.has_value(), "group_size");
  }
  ModelPrecision one() const {
    check();
    return with_options(precision);
  }
  std::vector<ModelPrecision> several() const {
    check();
    std::vector<ModelPrecision> all;
    for (const Precision kind : precisions) all.push_back(with_options(kind));
    return all;
  }
};

void bind_precision(nb::module_& module) {
  OptionFields<PrecisionOptions>(module, "PrecisionOptions", "A precision, or several, with options")
      .field("precision", &PrecisionOptions::precision)
      .field("precisions", &PrecisionOptions::precisions)
      .field("plan", &PrecisionOptions::plan)
      .field("keep", &PrecisionOptions::keep)
      .field("per_sample_scales", &PrecisionOptions::per_sample_scales)
      .field("group_size", &PrecisionOptions::group_size);
}

void bind_load(nb::module_& module) {
  OptionFields<LoadOptions>(module, "LoadOptions", "pipit::LoadOptions")
      .field("batch", &LoadOptions::shapes, &RunShapes::batch)
      .field("dimensions", &LoadOptions::shapes, &RunShapes::dimensions)
      .field("shapes", &LoadOptions::shapes, &RunShapes::inputs)
      .field("values", &LoadOptions::constants, &InputConstants::values)
      .field("arrays", &LoadOptions::constants, &InputConstants::arrays)
      .field("output", &LoadOptions::output)
      .field("device", &LoadOptions::device, &DeviceOptions::kind)
      .field("gpus", &LoadOptions::device, &DeviceOptions::gpus)
      .field("threads", &LoadOptions::device, &DeviceOptions::threads)
      .set("_set_precision", [](LoadOptions& o, const PrecisionOptions& p) { o.precision = p.one(); })
      .field("tuning", &LoadOptions::kernels, &KernelOptions::tuning)
      .field("tuning_cache", &LoadOptions::kernels, &KernelOptions::cache)
      .field("prefer_kernels", &LoadOptions::kernels, &KernelOptions::prefer)
      .field("exclude_kernels", &LoadOptions::kernels, &KernelOptions::exclude)
      .field("allow_fallback", &LoadOptions::device, &DeviceOptions::allow_fallback)
      .field("micro_batch", &LoadOptions::kernels, &KernelOptions::micro_batch);
}

void bind_images(nb::module_& module) {
  OptionFields<PreprocessOptions>(module, "PreprocessOptions", "pipit::PreprocessOptions")
      .field("preset", &PreprocessOptions::preset)
      .field("resize", &PreprocessOptions::resize)
      .field("crop", &PreprocessOptions::crop)
      .field("interpolation", &PreprocessOptions::interpolation)
      .field("mean", &PreprocessOptions::mean)
      .field("std", &PreprocessOptions::std)
      .field("bgr", &PreprocessOptions::bgr)
      .field("ignore_exif_orientation", &PreprocessOptions::ignore_exif_orientation);
  OptionFields<ClassifierOptions>(module, "ClassifierOptions", "pipit::ClassifierOptions")
      .field("load", &ClassifierOptions::load)
      .field("preprocess", &ClassifierOptions::preprocess)
      .field("labels", &ClassifierOptions::labels)
      .field("scores", &ClassifierOptions::scores)
      .field("threshold", &ClassifierOptions::threshold);
}

void bind_calibrate(nb::module_& module) {
  using namespace tools;
  OptionFields<RangeOptions>(module, "RangeOptions", "pipit::tools::RangeOptions")
      .field("method", &RangeOptions::method)
      .field("percentile", &RangeOptions::percentile);
  OptionFields<PlanFiles>(module, "PlanFiles", "pipit::tools::PlanFiles")
      .field("plan", &PlanFiles::plan)
      .field("histograms", &PlanFiles::histograms)
      .field("trt_cache", &PlanFiles::trt_cache)
      .field("trt_version", &PlanFiles::trt_version)
      .field("ncnn_table", &PlanFiles::ncnn_table);
  OptionFields<CheckOptions>(module, "CheckOptions", "pipit::tools::CheckOptions")
      .field("check", &CheckOptions::folder)
      .field("truth", &CheckOptions::truth)
      .field("labels", &CheckOptions::labels)
      .field("scores", &CheckOptions::scores)
      .field("threshold", &CheckOptions::threshold)
      .field("check_limit", &CheckOptions::limit);
  OptionFields<CalibrateOptions>(module, "CalibrateOptions", "pipit::tools::CalibrateOptions")
      .field("load", &CalibrateOptions::load)
      .field("keep", &CalibrateOptions::keep)
      .field("preprocess", &CalibrateOptions::preprocess)
      .field("range", &CalibrateOptions::range)
      .field("per_channel_weights", &CalibrateOptions::per_channel_weights)
      .field("equalize", &CalibrateOptions::equalize)
      .field("bias_correction", &CalibrateOptions::bias_correction)
      .field("skip", &CalibrateOptions::skip)
      .field("limit", &CalibrateOptions::limit)
      .field("checking", &CalibrateOptions::check)
      .field("strict", &CalibrateOptions::strict);
  OptionFields<QuantizeOptions>(module, "QuantizeOptions", "pipit::tools::QuantizeOptions")
      .field("load", &QuantizeOptions::load)
      .set("_set_precision", [](QuantizeOptions& o, const PrecisionOptions& p) { o.precision = p.one(); })
      .field("keep", &QuantizeOptions::keep)
      .field("target", &QuantizeOptions::target)
      .field("signed_activations", &QuantizeOptions::signed_activations)
      .field("weight_bits", &QuantizeOptions::weight_bits)
      .field("rounding", &QuantizeOptions::rounding)
      .field("images", &QuantizeOptions::images)
      .field("preprocess", &QuantizeOptions::preprocess)
      .field("limit", &QuantizeOptions::limit)
      .field("strict", &QuantizeOptions::strict);
}

void bind_measuring(nb::module_& module) {
  using namespace tools;
  OptionFields<Baseline>(module, "Baseline", "pipit::tools::Baseline")
      .field("model", &Baseline::model)
      .set("_set_precision", [](Baseline& o, const PrecisionOptions& p) { o.precision = p.one(); });
  OptionFields<EvaluateOptions>(module, "EvaluateOptions", "pipit::tools::EvaluateOptions")
      .field("classifier", &EvaluateOptions::classifier)
      .field("truth", &EvaluateOptions::truth)
      .field("limit", &EvaluateOptions::limit)
      .field("strict", &EvaluateOptions::strict)
      .field("against", &EvaluateOptions::against)
      .field("max_drop", &EvaluateOptions::max_drop);
  OptionFields<TuneOptions>(module, "TuneOptions", "pipit::tools::TuneOptions")
      .field("classifier", &TuneOptions::classifier)
      .field("plan", &TuneOptions::plan)
      .field("keep", &TuneOptions::keep)
      .field("max_drop", &TuneOptions::max_drop)
      .field("confidence", &TuneOptions::confidence)
      .field("judge_by", &TuneOptions::judge_by)
      .field("keep_as", &TuneOptions::keep_as)
      .field("limit", &TuneOptions::limit)
      .field("calibrate_limit", &TuneOptions::calibrate_limit)
      .field("strict", &TuneOptions::strict);
  OptionFields<DiffOptions>(module, "DiffOptions", "pipit::tools::DiffOptions")
      .field("load", &DiffOptions::load)
      .field("keep", &DiffOptions::keep)
      .field("preprocess", &DiffOptions::preprocess)
      .field("limit", &DiffOptions::limit)
      .field("shares", &DiffOptions::shares)
      .field("share_limit", &DiffOptions::share_limit)
      .field("strict", &DiffOptions::strict);
  OptionFields<AnnotateOptions>(module, "AnnotateOptions", "pipit::tools::AnnotateOptions")
      .field("classifier", &AnnotateOptions::classifier);
  OptionFields<ProfileOptions>(module, "ProfileOptions", "pipit::tools::ProfileOptions")
      .field("runs", &ProfileOptions::runs)
      .field("warmup", &ProfileOptions::warmup)
      .field("device", &ProfileOptions::device)
      .field("floors", &ProfileOptions::floors);
}

void bind_timing(nb::module_& module) {
  using namespace tools;
  OptionFields<TimingOptions>(module, "TimingOptions", "pipit::tools::TimingOptions")
      .field("load", &TimingOptions::load)
      .set("_set_precisions", [](TimingOptions& o, const PrecisionOptions& p) { o.precisions = p.several(); })
      .field("batches", &TimingOptions::batches)
      .field("threads", &TimingOptions::threads)
      .field("inputs", &TimingOptions::inputs)
      .field("image_bytes", &TimingOptions::image_bytes);
  OptionFields<BenchOptions>(module, "BenchOptions", "pipit::tools::BenchOptions")
      .field("timing", &BenchOptions::timing)
      .field("streams", &BenchOptions::streams)
      .field("seconds", &BenchOptions::seconds)
      .field("runs", &BenchOptions::runs)
      .field("warmup", &BenchOptions::warmup)
      .field("against", &BenchOptions::against)
      .field("max_slowdown", &BenchOptions::max_slowdown)
      .field("peaks", &BenchOptions::peaks);
  OptionFields<CompareOptions>(module, "CompareOptions", "pipit::tools::CompareOptions")
      .field("max_slowdown", &CompareOptions::max_slowdown);
  OptionFields<VerifyOptions>(module, "VerifyOptions", "pipit::tools::VerifyOptions")
      .field("load", &VerifyOptions::load)
      .field("rtol", &VerifyOptions::rtol)
      .field("atol", &VerifyOptions::atol)
      .field("norm", &VerifyOptions::norm);
}

void bind_prune(nb::module_& module) {
  using namespace tools;
  OptionFields<PruneGoal>(module, "PruneGoal", "pipit::tools::PruneGoal")
      .field("keep", &PruneGoal::keep)
      .field("global_", &PruneGoal::global)  // a word of Python without the underscore
      .field("speedup", &PruneGoal::speedup)
      .field("max_drop", &PruneGoal::max_drop)
      .field("seconds", &PruneGoal::seconds)
      .field("judge_by", &PruneGoal::judge_by);
  OptionFields<PruneOptions>(module, "PruneOptions", "pipit::tools::PruneOptions")
      .field("classifier", &PruneOptions::classifier)
      .field("goal", &PruneOptions::goal)
      .field("mode", &PruneOptions::mode)
      .field("importance", &PruneOptions::importance)
      .field("rows", &PruneOptions::rows)
      .field("group", &PruneOptions::group)
      .field("panel", &PruneOptions::panel)
      .field("block", &PruneOptions::block)
      .field("refit", &PruneOptions::refit)
      .field("ridge", &PruneOptions::ridge)
      .field("check", &PruneOptions::check)
      .field("limit", &PruneOptions::limit)
      .field("calibrate_limit", &PruneOptions::calibrate_limit)
      .field("strict", &PruneOptions::strict);
}

}  // namespace

void bind_options(nb::module_& module) {
  bind_precision(module);
  bind_load(module);
  bind_images(module);
  bind_calibrate(module);
  bind_measuring(module);
  bind_timing(module);
  bind_prune(module);
}

}  // namespace pipit::internal::python
