// Why kernels refused layers, without saying the same of each.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipit/inspect.h"

namespace pipit::internal::apps {

/// What refuses every layer, or every layer of a type, is about the run or the model and cannot apply to one of them:
/// it is said once. Where there is one layer of a type only, all is said of it.
class Refusals {
 public:
  explicit Refusals(const tools::InspectedModel& model);

  /// What is about this layer.
  std::vector<tools::RefusedKernel> of(const tools::InspectedLayer& layer) const;
  /// The others: "every Conv: not depthwise: not a depthwise convolution".
  std::vector<std::string> of_all() const;

 private:
  bool about_all(const std::string& type, const tools::RefusedKernel& refused) const;

  const tools::InspectedModel& model_;
  std::set<std::string> reasons_;  // of every layer that was refused
  std::map<std::string, std::set<std::pair<std::string, std::string>>> of_types_;  // kernel and reason
};

}  // namespace pipit::internal::apps
