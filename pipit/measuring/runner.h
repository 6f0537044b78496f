// A loaded model ready to run: optimized graph, plan, session.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/profile.h"
#include "engine/runtime/session.h"
#include "layers/passes/pipeline.h"
#include "models/classification.h"
#include "pipit/detail/load.h"

namespace pipit::internal::detail {

struct RunnerOptions {
  LoadOptions load;
  /// Instead of what load.kernels.tuning and load.kernels.cache say: models that share one.
  std::shared_ptr<KernelTuning> tuning;
  /// Of the run's images, to compare with those of the plan.
  std::optional<Preprocess> preprocess;
  /// The model gets its images as bytes and normalizes them so (models/image/byte_image.h).
  std::optional<Preprocess> byte_images;
};

struct Runner {
  std::vector<PassReport> passes;
  std::vector<std::string> notes;  ///< what a user should know, preprocess_differences among it
  /// differences_from() of options.preprocess and the plan, where there are both.
  std::vector<std::string> preprocess_differences;
  std::shared_ptr<const ExecutionPlan> plan;
  std::unique_ptr<Session> session;
  std::string model;
  double load_ms = 0;
  /// It takes images as bytes and normalizes them as RunnerOptions::byte_images says.
  bool normalizes = false;

  /// compile() and a session. `graph` is consumed. Errors begin with `model`, a name or a file.
  Runner(std::string model, Graph graph, const RunnerOptions& options);
  /// session->run with errors that begin with `model`.
  std::span<const ConstTensorView> run(std::span<const ConstTensorView> inputs);
  /// session->make_slots, submit and collect, likewise.
  void make_slots(int count);
  void submit(int slot);
  SlotRun collect(int slot);
  /// profile_session(), likewise.
  Profile profile(std::span<const ConstTensorView> inputs, int warmup, int runs,
                  const std::function<void(int)>& progress = {});

 private:
  friend std::vector<Runner> make_runners(std::string model, Graph graph, const RunnerOptions& options);
  Runner() = default;
};

/// One runner for each of DeviceOptions::gpus, in that order, or one where there are none. Those on one GPU share its
/// plan, all share the threads of one pool.
std::vector<Runner> make_runners(std::string model, Graph graph, const RunnerOptions& options);

/// Standard normal numbers, of bytes uniform ones, of other integers and bool 0 and 1, always the same, for every input
/// of the graph: zeros could run faster than data does.
std::vector<Tensor> random_inputs(const Graph& graph);

/// `limit` elements spread evenly over the list (0: all of it): the first ones of a sorted folder are mostly of one
/// class.
template <typename T>
std::vector<T> spread(std::vector<T> list, std::int64_t limit) {
  const auto total = static_cast<std::int64_t>(list.size());
  if (limit == 0 || limit >= total) return list;
  std::vector<T> kept;
  for (std::int64_t i = 0; i < limit; ++i) kept.push_back(list[static_cast<std::size_t>(i * total / limit)]);
  return kept;
}

/// What crosses the bus to a GPU, of a model with one input.
const TensorDesc& first_input(const ExecutionPlan& plan);
/// Channels of the images that it holds, floats or bytes; 0 where it is none.
std::int64_t image_channels(const ExecutionPlan& plan);

/// The precision that the plan was made for; "int8" for an fp32 plan of a model that is quantized itself.
Precision computed_precision(const ExecutionPlan& plan);

}  // namespace pipit::internal::detail
