// Times of whole models and of their steps, for comparisons on a machine that does other work as well.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "models/prepared_images.h"

namespace pipit::apps {

/// "schema" in the JSON of profile and bench, of which compare reads this one only: it changes when a key that is there
/// changes its meaning or goes.
inline constexpr int kTimesSchema = 1;

/// Where single runs vary by more than 5 % (coefficient of variation) the machine was not quiet and small differences
/// mean nothing: a note that says so of `what`; else empty.
std::string busy_note(const std::string& what, std::span<const double> ms);

/// The CPU, or the GPU with its driver and libraries, that a plan runs on.
std::string machine_description(const ExecutionPlan& plan);

/// A copy of the first batch.
Tensor first_batch(PreparedImages& images);

/// Time of a run of `session` over that of `base`, of the same turns: fast quartiles, for other work only adds time;
/// `base_ms` collects the latter.
double relative_time(Session& session, Session& base, const ConstTensorView& input,
                     std::vector<double>& base_ms);

/// Per node with a step of its own: the median time.
std::map<std::string, double> step_times(const std::shared_ptr<const ExecutionPlan>& plan,
                                         const ConstTensorView& input, int runs);

}  // namespace pipit::apps
