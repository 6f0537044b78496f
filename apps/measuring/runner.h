// A loaded model ready to run: optimized graph, plan, session.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/options/options.h"
#include "engine/runtime/profile.h"
#include "engine/runtime/session.h"
#include "layers/passes/pipeline.h"
#include "models/classification.h"

namespace pipit::internal::apps {

struct Runner {
  std::vector<PassReport> passes;
  /// CommonOptions::compare_preprocess() of options.preprocess and the plan, where there are both.
  std::vector<std::string> preprocess_differences;
  std::shared_ptr<const ExecutionPlan> plan;
  std::unique_ptr<Session> session;
  std::string model;
  double load_ms = 0;
  /// It takes images as bytes and normalizes them as CommonOptions::byte_images says.
  bool normalizes = false;

  /// compile() and a session; notes go to stderr. `graph` is consumed. Errors begin with `model`, a name or a file.
  Runner(std::string model, Graph graph, const CommonOptions& options);
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
  friend std::vector<Runner> make_runners(std::string model, Graph graph, const CommonOptions& options,
                                          std::span<const int> gpus);
  Runner() = default;
};

/// One runner for each of `gpus` (CompileOptions::gpus), in that order, or one where there are none. Those on one GPU
/// share its plan, all share the threads of one pool.
std::vector<Runner> make_runners(std::string model, Graph graph, const CommonOptions& options,
                                 std::span<const int> gpus);

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

/// What decodes the images, for the JSON of commands that read some.
nlohmann::ordered_json decoders_json();
/// "scores", the name of their kind, and of independent ones "threshold".
void add_scores_to(nlohmann::ordered_json& json, const ClassOutput& output);
/// Common head of every JSON result: model, device, precision, threads, and pipit's version.
nlohmann::ordered_json json_header(const std::string& command, const Model& model, const ExecutionPlan& plan);
/// The document as --json prints it, with a newline at its end. Always JSON: bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);
void print_json(const nlohmann::ordered_json& json);

}  // namespace pipit::internal::apps
