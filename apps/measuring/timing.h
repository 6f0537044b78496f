// Times of whole models and of their steps, for comparisons on a machine that does other work as well.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "models/prepared_images.h"

namespace pipit::apps {

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
