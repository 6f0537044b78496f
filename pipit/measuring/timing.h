// Times of whole models and of their steps, for comparisons on a machine that does other work as well.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/statistics.h"
#include "engine/runtime/session.h"
#include "models/prepared_images.h"

namespace pipit::internal::detail {

/// "schema" in the JSON of profile and bench, of which compare reads this one only: it changes when a key that is there
/// changes its meaning or goes.
inline constexpr int kTimesSchema = 1;

/// Where single runs vary by more than 5 % (coefficient of variation) the machine was not quiet and small differences
/// mean nothing: a note that says so of `what`; else empty.
std::string busy_note(const std::string& what, std::span<const double> ms);

/// The CPU, or the GPU with its driver and libraries, that a plan runs on.
std::string machine_description(const ExecutionPlan& plan);

/// A copy of the first batch, all inputs of it.
std::vector<Tensor> first_batch(PreparedImages& images);
/// As a run takes them.
std::vector<ConstTensorView> views_of(const std::vector<Tensor>& tensors);

/// Per node with a step of its own: the median time.
std::map<std::string, double> step_times(const std::shared_ptr<const ExecutionPlan>& plan,
                                         std::span<const ConstTensorView> inputs, int runs);

/// step_times() of several plans, comparable although minutes lie between them: each is timed in turns with a base, and
/// what makes the base slower in a turn is taken out of the turn. `inputs` have to outlive this.
class ComparableStepTimes {
 public:
  ComparableStepTimes(const std::shared_ptr<const ExecutionPlan>& base,
                      std::span<const ConstTensorView> inputs);
  std::map<std::string, double> operator()(const std::shared_ptr<const ExecutionPlan>& plan);

 private:
  Session base_;
  std::span<const ConstTensorView> inputs_;
  double usual_ms_ = 0;  // of the base's steps, in the first plan's turns
};

}  // namespace pipit::internal::detail
