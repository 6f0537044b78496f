#include "apps/calibration.h"

#include "apps/prepared_images.h"
#include "apps/progress.h"
#include "apps/runner.h"
#include "quant/calibration.h"
#include "quant/hash.h"
#include "quant/weighted_layer.h"

namespace pipit::apps {

namespace {

void observe(Runner& runner, CalibrationObserver& observer, const Preprocess& preprocess,
             const std::vector<std::filesystem::path>& images, bool quiet) {
  const Graph& graph = runner.plan->graph();
  PreparedImages prepared(images, preprocess, graph.value(graph.inputs()[0]).desc, runner.session->pool());
  Progress progress("calibrate", prepared.size(), quiet);
  runner.session->set_observer(&observer);
  prepared.for_each_batch([&](const ConstTensorView& batch, std::int64_t first, std::int64_t count) {
    observer.begin({&batch, 1}, count);
    runner.run({&batch, 1});
    progress.update(first + count);
  });
  runner.session->set_observer(nullptr);
}

std::vector<CalibrationImage> identify(const std::vector<std::filesystem::path>& images,
                                       const std::filesystem::path& folder, ThreadPool& pool) {
  std::vector<CalibrationImage> out(images.size());
  pool.parallel_for(static_cast<std::int64_t>(images.size()), [&](std::int64_t i, int) {
    const std::filesystem::path& path = images[static_cast<std::size_t>(i)];
    const bool below = std::filesystem::is_directory(folder);
    out[static_cast<std::size_t>(i)] = {(below ? path.lexically_relative(folder) : path.filename()).string(),
                                        hash_file(path)};
  });
  return out;
}

}  // namespace

PrecisionPlan empty_plan(const Model& model, const Preprocess& preprocess) {
  PrecisionPlan plan;
  plan.model = model.name;
  plan.model_hash = hash_model(model.graph);
  plan.preprocess = to_json(preprocess);
  return plan;
}

void calibrate_on(PrecisionPlan& plan, const std::string& model, Graph fused, const Preprocess& preprocess,
                  const std::vector<std::filesystem::path>& images, const std::filesystem::path& folder,
                  const CommonOptions& options) {
  if (weighted_layers(fused).empty())
    fail_unsupported(
        "{}: nothing to quantise: it has no convolution or fully connected layer with constant weights",
        model);
  CommonOptions common = options;
  common.tuning.switch_off();  // the same kernels in every run: those chosen by timing may round differently
  common.keep_every_value = true;
  common.keep.clear();
  common.plan.clear();
  common.precision = Precision::fp32;
  Runner runner(model, std::move(fused), common);
  CalibrationObserver observer(*runner.plan, runner.session->pool());
  observe(runner, observer, preprocess, images, options.quiet);
  plan.images = identify(images, folder, runner.session->pool());
  plan.tensors.clear();
  for (const CalibrationObserver::Observed& o : observer.observed()) {
    TensorScale tensor;
    tensor.name = o.name;
    tensor.histogram = o.histogram;
    plan.tensors.push_back(std::move(tensor));
  }
  set_scales(plan);
}

}  // namespace pipit::apps
