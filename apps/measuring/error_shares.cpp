#include "apps/measuring/error_shares.h"

#include <algorithm>
#include <cmath>

#include "engine/runtime/session.h"

namespace pipit::apps {

ImageOutputs run_outputs(const std::shared_ptr<const ExecutionPlan>& plan, PreparedImages& images,
                         const std::function<void(std::int64_t)>& progress) {
  Session session(plan);
  const TensorDesc& desc = plan->outputs().at(0).desc;
  const std::int64_t batch = plan->graph().value(plan->graph().inputs().at(0)).desc.shape[0];
  if (desc.dtype != DType::f32 || desc.shape.rank() == 0 || desc.shape[0] != batch || desc.elements() == 0)
    fail("the model's first output is {}, expected f32 with one row for each of {} images", desc.str(),
         batch);
  ImageOutputs outputs;
  outputs.values = static_cast<std::size_t>(desc.elements() / batch);
  images.for_each_batch([&](const ConstTensorView& input, std::int64_t first, std::int64_t count) {
    const Tensor rows = to_layout(session.run({&input, 1})[0], Layout::row_major);
    const auto own = rows.values<float>().first(outputs.values * static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (std::isnan(own[i]))
        fail("{}: the model's output has NaN",
             images.paths()[static_cast<std::size_t>(first) + i / outputs.values].string());
    }
    outputs.all.insert(outputs.all.end(), own.begin(), own.end());
    if (progress) progress(first + count);
  });
  return outputs;
}

double relative_noise(const ImageOutputs& outputs, const ImageOutputs& reference) {
  double noise = 0;
  double signal = 0;
  for (std::size_t i = 0; i < reference.all.size(); ++i) {
    const double r = reference.all[i];
    const double difference = static_cast<double>(outputs.all[i]) - r;
    noise += difference * difference;
    signal += r * r;
  }
  return noise == 0 ? 0 : noise / signal;
}

namespace {

constexpr double kSumOff = 1e-3;  // of probabilities, which are floats
constexpr double kLeastProbability = 1e-7;

bool are_probabilities(const ImageOutputs& outputs) {
  for (std::size_t first = 0; first < outputs.all.size(); first += outputs.values) {
    double sum = 0;
    for (std::size_t i = first; i < first + outputs.values; ++i) {
      if (outputs.all[i] < 0) return false;
      sum += static_cast<double>(outputs.all[i]);
    }
    if (std::abs(sum - 1) > kSumOff) return false;
  }
  return true;
}

// Logarithms of the classes' probabilities.
std::vector<double> log_probabilities(std::span<const float> values, bool probabilities) {
  std::vector<double> logs(values.begin(), values.end());
  if (probabilities) {
    for (double& value : logs) value = std::log(std::max(value, kLeastProbability));
    return logs;
  }
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double value : logs) sum += std::exp(value - most);
  for (double& value : logs) value -= most + std::log(sum);
  return logs;
}

}  // namespace

double divergence(const ImageOutputs& outputs, const ImageOutputs& reference) {
  const bool probabilities = are_probabilities(reference);
  const auto images = static_cast<std::int64_t>(reference.all.size() / reference.values);
  double sum = 0;
  for (std::int64_t n = 0; n < images; ++n) {
    const std::vector<double> p = log_probabilities(reference.image(n), probabilities);
    const std::vector<double> q = log_probabilities(outputs.image(n), probabilities);
    for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  }
  return std::max(sum / static_cast<double>(images), 0.0);
}

LayerShares measure_shares(const MixedModel& model, PreparedImages& images, bool only_alone,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  const auto total =
      static_cast<std::int64_t>(2 + (only_alone ? 1 : 2) * model.layers().size() + model.followers().size());
  std::int64_t done = 0;
  const auto advance = [&] {
    if (progress) progress(++done, total);
  };
  const ImageOutputs reference = run_outputs(model.in_fp32(), images);
  advance();
  const auto noise_of = [&](const std::shared_ptr<const ExecutionPlan>& plan) {
    const double noise = relative_noise(run_outputs(plan, images), reference);
    advance();
    return noise;
  };
  LayerShares shares;
  shares.all = noise_of(model.in_int8());
  for (const std::string& layer : model.layers()) {
    LayerShare share{layer, noise_of(model.alone_in_int8(layer)), {}};
    if (!only_alone) share.without = noise_of(model.in_int8({layer}));
    shares.layers.push_back(std::move(share));
  }
  for (const std::string& follower : model.followers())
    shares.layers.push_back({follower, {}, noise_of(model.in_int8({follower}))});
  return shares;
}

}  // namespace pipit::apps
