#include "quant/quantization_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "quant/hash.h"

namespace pipit::internal {

namespace {

constexpr double kLargest = 127;  // symmetric int8
// Fewer values of a tensor say nothing about a clipped share: where none of them is, more than kMuchClipped of others
// may be (the "rule of three", Hanley and Lippman-Hand 1983: less than 3 / n is, with 95 % confidence).
constexpr double kMinValues = 3 / kMuchClipped;

void set_scale(TensorScale& tensor, const ThresholdOptions& method) {
  if (!tensor.histogram) {
    fail("tensor '{}' has no histogram: this plan was written without; calibrate again", tensor.name);
  }
  const Histogram& histogram = *tensor.histogram;
  try {
    const Threshold found = find_threshold(histogram, method);
    tensor.threshold = found.magnitude;
    tensor.moved = found.moved;
  } catch (const Error& e) {
    fail("tensor '{}': {}", tensor.name, e.what());
  }
  tensor.min = histogram.min();
  tensor.max = histogram.max();
  tensor.scale = default_scale(tensor.threshold);
  tensor.clipped = clipped_share(histogram, tensor.threshold);
}

void check_same(const QuantizationPlan& a, const QuantizationPlan& b) {
  if (a.model_hash != b.model_hash)
    fail("the plans are of different models ({}: {}; {}: {})", a.model, a.model_hash, b.model, b.model_hash);
  if (a.preprocess != b.preprocess)
    fail("the plans' images were prepared differently: {} and {}", a.preprocess, b.preprocess);
  if (a.method.method != b.method.method || a.method.percentile != b.method.percentile)
    fail("the plans used different methods: {} and {}", threshold_method_name(a.method.method),
         threshold_method_name(b.method.method));
  if (a.weights_per_channel != b.weights_per_channel)
    fail("one plan scales weights per channel, the other does not");
  if (a.equalized != b.equalized) fail("the plans equalize differently");
  if (!a.corrected.empty() || !b.corrected.empty())
    fail("a plan with corrected biases cannot be merged: calibrate the shards without --bias-correction");
  if (a.keep != b.keep) fail("the plans keep different nodes in floating point");
  if (a.tensors.size() != b.tensors.size())
    fail("the plans have {} and {} tensors", a.tensors.size(), b.tensors.size());
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    if (a.tensors[t].name != b.tensors[t].name)
      fail("tensor {} is '{}' in one plan and '{}' in another", t, a.tensors[t].name, b.tensors[t].name);
  }
}

}  // namespace

float default_scale(double threshold) {
  const auto scale = static_cast<float>(threshold / kLargest);
  return std::isnormal(scale) ? scale : 1;
}

void set_scales(QuantizationPlan& plan) {
  for (TensorScale& tensor : plan.tensors) set_scale(tensor, plan.method);
}

Clipping clipping_of(const QuantizationPlan& plan) {
  Clipping clipping;
  for (const TensorScale& tensor : plan.tensors) {
    if (tensor.clipped <= kMuchClipped) continue;
    if (tensor.histogram && static_cast<double>(tensor.histogram->count()) < kMinValues) continue;
    ++clipping.tensors;
    if (clipping.worst == nullptr || tensor.clipped > clipping.worst->clipped) clipping.worst = &tensor;
  }
  return clipping;
}

std::vector<std::string> scale_notes(const QuantizationPlan& plan) {
  std::vector<std::string> notes;
  if (const Clipping clipping = clipping_of(plan); clipping.worst != nullptr) {
    notes.push_back(
        fmt::format("over {:g} % of the values of {} of {} tensors are clipped, most in '{}': {:.2f} %",
                    100 * kMuchClipped, clipping.tensors, plan.tensors.size(), clipping.worst->name,
                    100 * clipping.worst->clipped));
  }
  const auto moved = std::ranges::count_if(plan.tensors, &TensorScale::moved);
  if (moved > 0) {
    notes.push_back(fmt::format(
        "{} of {} tensors got another range than method {} gives: that one would cost over {:g} dB more "
        "than the best one",
        moved, plan.tensors.size(), threshold_method_name(plan.method.method), kMaxLossDb));
  }
  return notes;
}

void merge_plan(QuantizationPlan& merged, const QuantizationPlan& plan, SameImage same) {
  check_same(merged, plan);
  const auto identity = [&](const CalibrationImage& image) -> const std::string& {
    return same == SameImage::bytes ? image.hash : image.path;
  };
  // Within one plan an image may have copies.
  std::set<std::string_view> seen;
  for (const CalibrationImage& image : merged.images) seen.insert(identity(image));
  for (const CalibrationImage& image : plan.images) {
    if (seen.contains(identity(image)))
      fail("image '{}'{} was already counted: shards must not overlap", image.path,
           same == SameImage::bytes ? " (or one with the same bytes)" : "");
  }
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    if (!plan.tensors[t].histogram || !merged.tensors[t].histogram)
      fail("tensor '{}' has no histogram: plans written without them cannot be merged", plan.tensors[t].name);
  }
  for (std::size_t t = 0; t < plan.tensors.size(); ++t)
    merged.tensors[t].histogram->merge(*plan.tensors[t].histogram);
  merged.images.insert(merged.images.end(), plan.images.begin(), plan.images.end());
}

void sort_images(QuantizationPlan& plan) {
  std::ranges::sort(plan.images, [](const CalibrationImage& a, const CalibrationImage& b) {
    return a.path != b.path ? a.path < b.path : a.hash < b.hash;
  });
}

QuantizationPlan merge_plans(const std::vector<QuantizationPlan>& plans) {
  if (plans.empty()) fail("there is no plan to merge");
  QuantizationPlan merged = plans[0];
  for (std::size_t p = 1; p < plans.size(); ++p) merge_plan(merged, plans[p], SameImage::bytes);
  sort_images(merged);
  // Paths are relative to each shard's folder, and keys in the JSON: "0.jpg" of another folder is "0.jpg (2)".
  std::set<std::string> paths;
  for (CalibrationImage& image : merged.images) {
    const std::string path = image.path;
    for (int n = 2; !paths.insert(image.path).second; ++n) image.path = fmt::format("{} ({})", path, n);
  }
  set_scales(merged);
  return merged;
}

std::string image_list_hash(const std::vector<CalibrationImage>& images) {
  std::vector<std::string> hashes;
  for (const CalibrationImage& image : images) hashes.push_back(image.hash);
  std::sort(hashes.begin(), hashes.end());
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return hash_bytes(std::as_bytes(std::span(all)));
}

std::string corrections_hash(const QuantizationPlan& plan) {
  std::string bytes;
  const auto add = [&](std::string_view name, const std::vector<float>& values) {
    bytes += fmt::format("{} {}\n", name.size(), name);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  for (const QuantizationPlan::Equalized& pair : plan.equalized) {
    add(pair.first, {});
    add(pair.second, pair.factors);
  }
  for (const QuantizationPlan::Corrected& node : plan.corrected) add(node.node, node.deltas);
  return hash_bytes(std::as_bytes(std::span(bytes)));
}

}  // namespace pipit::internal
