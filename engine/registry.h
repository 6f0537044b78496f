// Registry: for each layer type and device an ordered list of candidates, the reference last.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"

namespace pipit {

/// Why a candidate cannot run a node; empty when it can.
using Refusal = std::optional<std::string>;

/// The name of the plain kernel that is the oracle of all others and the last candidate of its layer.
inline constexpr const char* kReference = "reference";

struct Candidate {
  std::string name;  ///< shown to users and matched by --kernel, for example "im2col_gemm"
  std::function<Refusal(const NodeSpec&)> refuse;
  /// Makes the kernel in NodeSpec::variant, or in the way that it thinks best where that is empty.
  std::function<std::unique_ptr<Kernel>(const NodeSpec&)> create;
  /// For choice by measurement: the ways to run an accepted node that are worth timing, best guess first. Null or none:
  /// the candidate has one way only.
  std::function<std::vector<std::string>(const NodeSpec&)> variants = {};
  /// Whether the next candidate that does not yield goes before this one for a node, for example in one precision.
  /// Null: never.
  std::function<bool(const NodeSpec&)> yields = {};
  /// Which of several such candidates is the fastest is not known without timing them: done when a model is loaded.
  bool measure_at_load = false;
  /// A library compiles each of its kernels, for about half a second: choice by measurement asks it only where it comes
  /// first in the order.
  bool slow_to_make = false;
};

class Registry {
 public:
  /// Appends a candidate; order of calls is order of preference.
  void add(std::string_view layer_type, DeviceKind device, Candidate candidate);
  /// Candidates in order of preference; empty when the layer type is unknown on the device.
  const std::vector<Candidate>& candidates(std::string_view layer_type, DeviceKind device) const;
  /// The layer types that have candidates on the device, sorted.
  std::vector<std::string> layer_types(DeviceKind device) const;
  /// The names of all candidates on all devices: of one layer type, or of all where it is empty.
  std::set<std::string> kernel_names(std::string_view layer_type = {}) const;

 private:
  std::map<std::pair<std::string, DeviceKind>, std::vector<Candidate>, std::less<>> candidates_;
};

}  // namespace pipit
