// The structs of results. Their members are documented where C++ declares them; here in as many words as fit.
#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;

void bind_accuracy(nb::module_& module) {
  ResultFields<Share>(module, "Share", "A share of images, with its 95 % interval by Wilson's score.")
      .field("count", &Share::count, "images in the share")
      .field("of", &Share::of, "all images")
      .field("value", &Share::value, "count / of")
      .field("low", &Share::low, "of the interval")
      .field("high", &Share::high, "of the interval");
  module.def("share_of", &share_of, nb::arg("count"), nb::arg("of"), "count / of, with its interval.");
  ResultFields<Drop>(module, "Drop",
                     "How much less often a model is right than a base; points are percent of the images.")
      .field("images", &Drop::images, "that both answered")
      .field("base", &Drop::base, "share of images on which the base is right")
      .field("only_base_right", &Drop::only_base_right, "images on which the base alone is right")
      .field("only_model_right", &Drop::only_model_right, "images on which the model alone is right")
      .field("points", &Drop::points, "only_base_right less only_model_right, in percent of the images")
      .field("low", &Drop::low, "of its 95 % interval")
      .field("high", &Drop::high, "of that interval");
  ResultFields<JudgedDrop>(module, "JudgedDrop", "A drop compared with the largest allowed one.")
      .field("max_points", &JudgedDrop::max_points, "that limit")
      .field("verdict", &JudgedDrop::verdict, "'proven', 'not proven' or 'broken'")
      .field("within", &JudgedDrop::within, "whether the measured drop is within the limit")
      .field("images_needed", &JudgedDrop::images_needed,
             "approximate number of images that would prove it; 0: none would, or it is proven")
      .field("text", &JudgedDrop::text, "the verdict in words");
  ResultFields<ExcludedImage>(module, "ExcludedImage", "An image or a folder that could not be used.")
      .field("path", &ExcludedImage::path, "of the image or folder")
      .field("error", &ExcludedImage::error, "why")
      .field("is_folder", &ExcludedImage::is_folder, "it is a folder that cannot be read");
}

void bind_evaluation(nb::module_& module) {
  ResultFields<ClassAccuracy>(module, "ClassAccuracy", "How well one independent class is recognized.")
      .field("index", &ClassAccuracy::index, "of the class")
      .field("label", &ClassAccuracy::label, "its name")
      .field("images", &ClassAccuracy::images, "of the class")
      .field("yes", &ClassAccuracy::yes, "images of the class whose answer is yes")
      .field("false_yes", &ClassAccuracy::false_yes, "images of other classes whose answer is yes")
      .field("average_precision", &ClassAccuracy::average_precision, "area below precision over recall");
  ResultFields<DeviceSpeed>(module, "DeviceSpeed", "The speed of one GPU of several.")
      .field("gpu", &DeviceSpeed::gpu, "its ordinal")
      .field("images", &DeviceSpeed::images, "images that it answered")
      .field("model_images_per_s", &DeviceSpeed::model_images_per_s, "by the time in its kernels alone");
  ResultFields<Evaluation::Comparison>(module, "Comparison", "A model against a base.")
      .field("drop", &Evaluation::Comparison::drop, "of the model against the base")
      .field("other_answers", &Evaluation::Comparison::other_answers, "images that both answered differently")
      .field("judged", &Evaluation::Comparison::judged, "with max_drop");
  ResultFields<Evaluation>(module, "Evaluation", "What evaluate() found.")
      .field("measure", &Evaluation::measure, "what `right` counts: 'top-1', 'accuracy' or 'exact'")
      .field("right", &Evaluation::right, "images answered correctly by this measure")
      .field("top5", &Evaluation::top5, "if one class is right: images with it among the five most probable")
      .field("classes", &Evaluation::classes, "of independent classes, or of yes; in the order of classes")
      .field("tags", &Evaluation::tags, "an image may have any number of the classes")
      .field("mean_average_precision", &Evaluation::mean_average_precision, "of `classes`, of tags")
      .field("excluded", &Evaluation::excluded, "that could not be used")
      .field("images_per_s", &Evaluation::images_per_s, "with decoding")
      .field("model_images_per_s", &Evaluation::model_images_per_s, "by the time in kernels alone")
      .field("devices", &Evaluation::devices, "with several GPUs")
      .field("against", &Evaluation::against, "with the option of that name")
      .field("quantized", &Evaluation::quantized, "the model's file is in INT8")
      .field("preprocessing", &Evaluation::preprocessing, "how images were prepared, in words")
      .field("labels", &Evaluation::labels, "the name of every class; may be empty")
      .field("threshold", &Evaluation::threshold, "of independent classes")
      .field("notes", &Evaluation::notes, "what the images were")
      .field("json", &Evaluation::json, "all of it, as the command's --json writes it");
}

void bind_calibration(nb::module_& module) {
  ResultFields<TensorRange>(module, "TensorRange", "The range of one tensor.")
      .field("name", &TensorRange::name, "of the tensor in the model")
      .field("min", &TensorRange::min, "of all values")
      .field("max", &TensorRange::max, "of all values")
      .field("threshold", &TensorRange::threshold, "the magnitude that becomes 127")
      .field("scale", &TensorRange::scale, "the value of one step")
      .field("clipped", &TensorRange::clipped, "share of the values beyond the threshold");
  ResultFields<KeptLayer>(module, "KeptLayer", "A layer that stays in floating point.")
      .field("name", &KeptLayer::name, "in the model")
      .field("precision", &KeptLayer::precision, "what it computes in")
      .field("why", &KeptLayer::why, "in words; empty if the option keep names the layer");
  ResultFields<Calibration>(module, "Calibration", "What calibrate() found and wrote.")
      .field("model", &Calibration::model, "as it was given")
      .field("method", &Calibration::method, "of the ranges")
      .field("tensors", &Calibration::tensors, "in the order of the model")
      .field("kept", &Calibration::kept, "layers that stay in floating point")
      .field("images", &Calibration::images, "that were used")
      .field("excluded", &Calibration::excluded, "that could not be used")
      .field("notes", &Calibration::notes, "notes for the user")
      .field("checked", &Calibration::checked, "with check=: INT8 with the plan against fp32")
      .field("json", &Calibration::json, "all of it, as the command's --json writes it");
  ResultFields<RoundedLayer>(module, "RoundedLayer", "What rounding costs a layer.")
      .field("name", &RoundedLayer::name, "in the model")
      .field("nearest", &RoundedLayer::nearest,
             "change of its outputs on the images with the nearest integers, as a share of their variance")
      .field("rounded", &RoundedLayer::rounded, "the same in the file");
  ResultFields<QuantizedFile>(module, "QuantizedFile", "What quantize() wrote.")
      .field("int8_layers", &QuantizedFile::int8_layers, "layers that compute in INT8")
      .field("stored_layers", &QuantizedFile::stored_layers,
             "layers that compute in f32 with weights in 8 or 4 bits")
      .field("float_layers", &QuantizedFile::float_layers,
             "convolutions and fully connected layers that are neither")
      .field("bytes", &QuantizedFile::bytes, "size of the file")
      .field("rounding", &QuantizedFile::rounding, "of the weights: 'nearest' or 'second-order'")
      .field("images", &QuantizedFile::images, "that they were rounded on")
      .field("excluded", &QuantizedFile::excluded, "images that could not be used")
      .field("rounded", &QuantizedFile::rounded, "layers that were rounded on images")
      .field("notes", &QuantizedFile::notes, "notes for the user")
      .field("json", &QuantizedFile::json, "all of it, as the command's --json writes it");
}

void bind_difference(nb::module_& module) {
  ResultFields<TensorError>(module, "TensorError", "The values of a tensor in INT8 against those in fp32.")
      .field("cosine", &TensorError::cosine, "of the angle between both")
      .field("sqnr_db", &TensorError::sqnr_db, "10 log10(sum of squares / sum of squared differences)")
      .field("max_error", &TensorError::max_error, "the largest difference");
  ResultFields<LayerError>(module, "LayerError", "The error of one layer's output in INT8.")
      .field("name", &LayerError::name, "of the layer in the model")
      .field("type", &LayerError::type, "'Conv', 'Gemm', ...")
      .field("tensor", &LayerError::tensor, "its first output")
      .field("precision", &LayerError::precision, "what it computes in")
      .field("error", &LayerError::error, "of that output")
      .field("clipped", &LayerError::clipped, "share of the fp32 values beyond the INT8 range")
      .field("worst_channel", &LayerError::worst_channel, "the output channel with the most noise")
      .field("worst_channel_share", &LayerError::worst_channel_share, "its share of the layer's noise")
      .field("worst_channel_sqnr_db", &LayerError::worst_channel_sqnr_db, "its signal to noise")
      .field("noise_alone", &LayerError::noise_alone,
             "noise of the model's output with this layer alone in INT8")
      .field("noise_without", &LayerError::noise_without, "with all layers but this one in INT8")
      .field("share_alone", &LayerError::share_alone, "noise_alone over Difference.output_noise")
      .field("share_removed", &LayerError::share_removed,
             "share of the noise that disappears when this layer stays in fp32");
  ResultFields<Difference>(module, "Difference", "What diff() found.")
      .saved()
      .shown()
      .field("layers", &Difference::layers, "in the order of the model")
      .field("output", &Difference::output, "the model's first output")
      .field("images", &Difference::images, "that were compared")
      .field("other_answers", &Difference::other_answers, "images with another answer")
      .field("scores", &Difference::scores, "of a classifier")
      .field("share_images", &Difference::share_images, "for the option shares")
      .field("output_noise", &Difference::output_noise,
             "of the output with all layers in INT8, on those images")
      .field("excluded", &Difference::excluded, "that could not be used")
      .field("notes", &Difference::notes, "notes for the user")
      .field("json", &Difference::json, "all of it, as the command's --json writes it");
}

void bind_tuned(nb::module_& module) {
  ResultFields<TuneStep>(module, "TuneStep", "A model in mixed precision, as it was tried.")
      .field("order", &TuneStep::order, "of the layers: a key of TunedPlan.orders")
      .field("kept", &TuneStep::kept, "this many layers from its start stay in floating point")
      .field("ms", &TuneStep::ms, "a run; on a GPU the device's time")
      .field("drop", &TuneStep::drop, "against fp32, on the images of the search")
      .field("expected_drop", &TuneStep::expected_drop,
             "in points, from the distances between the best two scores")
      .field("expected_drop_error", &TuneStep::expected_drop_error, "its standard error")
      .field("pareto", &TuneStep::pareto,
             "no other step is as fast with a smaller expected drop, or as good and faster")
      .field("chosen", &TuneStep::chosen, "the step of the written plan");
  ResultFields<TunedPlan>(module, "TunedPlan", "What tune() found and wrote.")
      .saved()
      .shown()
      .pareto()
      .field("measure", &TunedPlan::measure, "the measure of accuracy: 'top-1', 'agreement with fp32', ...")
      .field("kept", &TunedPlan::kept, "layers that stay in floating point, besides the plan's")
      .field("keep_as", &TunedPlan::keep_as, "what they compute in")
      .field("orders", &TunedPlan::orders, "layers, the best kept one first, by kind of order")
      .field("steps", &TunedPlan::steps, "all that was tried")
      .field("fp32_ms", &TunedPlan::fp32_ms, "a run in fp32")
      .field("bf16", &TunedPlan::bf16, "the whole model in bf16, if kept layers may be in bf16")
      .field("bf16_enough", &TunedPlan::bf16_enough, "bf16 is good enough")
      .field("bf16_is_best", &TunedPlan::bf16_is_best,
             "bf16 is good enough and no slower than the plan, within 1 %")
      .field("int8_enough", &TunedPlan::int8_enough, "INT8 throughout is good enough")
      .field("sure", &TunedPlan::sure,
             "the search is sure; if not, it was not even with all layers kept, and all are kept")
      .field("unseen", &TunedPlan::unseen, "of the plan, on the images that the search did not see")
      .field("unseen_int8", &TunedPlan::unseen_int8, "of INT8 throughout, on these")
      .field("judged", &TunedPlan::judged, "of `unseen`")
      .field("calibration_images", &TunedPlan::calibration_images, "0 with a plan")
      .field("excluded", &TunedPlan::excluded, "that could not be used")
      .field("notes", &TunedPlan::notes, "notes about the images")
      .field("json", &TunedPlan::json, "all of it, as the command's --json writes it");
}

void bind_others(nb::module_& module) {
  ResultFields<AnnotatedFile>(module, "AnnotatedFile", "What annotate() wrote.")
      .field("labels", &AnnotatedFile::labels, "the number of stored labels")
      .field("preprocessing", &AnnotatedFile::preprocessing, "in words; empty where none was stored")
      .field("scores", &AnnotatedFile::scores, "the name of their kind; empty where none was stored")
      .field("bytes", &AnnotatedFile::bytes, "size of the file")
      .field("notes", &AnnotatedFile::notes, "notes for the user")
      .field("json", &AnnotatedFile::json, "all of it, as the command's --json writes it");
  ResultFields<Finding>(module, "Finding", "One fact about the machine.")
      .field("name", &Finding::name, "'instruction sets'")
      .field("value", &Finding::value, "what exists, and what of it is used")
      .field("advice", &Finding::advice, "what to do about it; empty where nothing needs to be done");
  ResultFields<MachineFacts>(module, "Machine", "Facts about this machine, this build and this environment.")
      .field("findings", &MachineFacts::findings, "in the order in which the command shows them")
      .field("json", &MachineFacts::json, "all of it, as the command's --json writes it");
}

}  // namespace

void bind_results(nb::module_& module) {
  bind_accuracy(module);
  bind_evaluation(module);
  bind_calibration(module);
  bind_difference(module);
  bind_tuned(module);
  bind_others(module);
}

}  // namespace pipit::internal::python
