#include "pipit/measuring/error_shares.h"

#include <cmath>

#include "engine/runtime/session.h"

namespace pipit::internal::detail {

ImageOutputs run_outputs(const std::shared_ptr<const ExecutionPlan>& plan, PreparedImages& images,
                         const std::function<void(std::int64_t)>& progress) {
  Session session(plan);
  const TensorDesc& desc = plan->outputs().at(0).desc;
  const std::int64_t batch = images.inputs().samples;
  // One sample may be all of a run, whatever its extents.
  const bool fits = batch == 1 || (desc.shape.rank() > 0 && desc.shape[0] == batch);
  if (desc.dtype != DType::f32 || !fits || desc.elements() == 0)
    fail("the model's first output is {}, expected f32 with one row for each of {} images", desc.str(),
         batch);
  ImageOutputs outputs;
  outputs.values = static_cast<std::size_t>(desc.elements() / batch);
  images.for_each_batch([&](std::span<const ConstTensorView> inputs, std::int64_t first, std::int64_t count) {
    const Tensor rows = to_layout(session.run(inputs)[0], Layout::row_major);
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

}  // namespace pipit::internal::detail
