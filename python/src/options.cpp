// The structs of options. python/pipit/_options.py sets their members from keyword arguments.
#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

void bind_load(nb::module_& module) {
  OptionFields<LoadOptions>(module, "LoadOptions", "pipit::LoadOptions")
      .field("batch", &LoadOptions::batch)
      .field("dimensions", &LoadOptions::dimensions)
      .field("shapes", &LoadOptions::shapes)
      .field("values", &LoadOptions::values)
      .field("arrays", &LoadOptions::arrays)
      .field("output", &LoadOptions::output)
      .field("device", &LoadOptions::device)
      .field("gpus", &LoadOptions::gpus)
      .field("threads", &LoadOptions::threads)
      .field("precision", &LoadOptions::precision)
      .field("plan", &LoadOptions::plan)
      .field("keep", &LoadOptions::keep)
      .field("per_sample_scales", &LoadOptions::per_sample_scales)
      .field("group_size", &LoadOptions::group_size)
      .field("tuning", &LoadOptions::tuning)
      .field("tuning_cache", &LoadOptions::tuning_cache)
      .field("prefer_kernels", &LoadOptions::prefer_kernels)
      .field("exclude_kernels", &LoadOptions::exclude_kernels)
      .field("allow_fallback", &LoadOptions::allow_fallback)
      .field("micro_batch", &LoadOptions::micro_batch);
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
      .field("ncnn_table", &PlanFiles::ncnn_table);
  OptionFields<CalibrateOptions>(module, "CalibrateOptions", "pipit::tools::CalibrateOptions")
      .field("load", &CalibrateOptions::load)
      .field("preprocess", &CalibrateOptions::preprocess)
      .field("range", &CalibrateOptions::range)
      .field("per_channel_weights", &CalibrateOptions::per_channel_weights)
      .field("equalize", &CalibrateOptions::equalize)
      .field("bias_correction", &CalibrateOptions::bias_correction)
      .field("skip", &CalibrateOptions::skip)
      .field("limit", &CalibrateOptions::limit)
      .field("strict", &CalibrateOptions::strict);
  OptionFields<QuantizeOptions>(module, "QuantizeOptions", "pipit::tools::QuantizeOptions")
      .field("load", &QuantizeOptions::load)
      .field("signed_activations", &QuantizeOptions::signed_activations);
}

void bind_measuring(nb::module_& module) {
  using namespace tools;
  OptionFields<Baseline>(module, "Baseline", "pipit::tools::Baseline")
      .field("model", &Baseline::model)
      .field("precision", &Baseline::precision);
  OptionFields<EvaluateOptions>(module, "EvaluateOptions", "pipit::tools::EvaluateOptions")
      .field("classifier", &EvaluateOptions::classifier)
      .field("truth", &EvaluateOptions::truth)
      .field("limit", &EvaluateOptions::limit)
      .field("strict", &EvaluateOptions::strict)
      .field("against", &EvaluateOptions::against)
      .field("max_drop", &EvaluateOptions::max_drop);
  OptionFields<TuneOptions>(module, "TuneOptions", "pipit::tools::TuneOptions")
      .field("classifier", &TuneOptions::classifier)
      .field("max_drop", &TuneOptions::max_drop)
      .field("confidence", &TuneOptions::confidence)
      .field("judge_by", &TuneOptions::judge_by)
      .field("keep_as", &TuneOptions::keep_as)
      .field("limit", &TuneOptions::limit)
      .field("calibrate_limit", &TuneOptions::calibrate_limit)
      .field("strict", &TuneOptions::strict);
  OptionFields<DiffOptions>(module, "DiffOptions", "pipit::tools::DiffOptions")
      .field("load", &DiffOptions::load)
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
      .field("device", &ProfileOptions::device);
}

}  // namespace

void bind_options(nb::module_& module) {
  bind_load(module);
  bind_images(module);
  bind_calibrate(module);
  bind_measuring(module);
}

}  // namespace pipit::internal::python
