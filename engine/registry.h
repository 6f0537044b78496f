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

struct Candidate {
  std::string name;  ///< shown to users and matched by --kernel, for example "im2col_gemm"
  std::function<Refusal(const NodeSpec&)> refuse;
  std::function<std::unique_ptr<Kernel>(const NodeSpec&)> create;
};

class Registry {
 public:
  /// Appends a candidate; order of calls is order of preference.
  void add(std::string_view layer_type, DeviceKind device, Candidate candidate);
  /// Candidates in order of preference; empty when the layer type is unknown on the device.
  const std::vector<Candidate>& candidates(std::string_view layer_type, DeviceKind device) const;
  /// The names of all candidates of all layers and devices.
  std::set<std::string> kernel_names() const;

 private:
  std::map<std::pair<std::string, DeviceKind>, std::vector<Candidate>, std::less<>> candidates_;
};

}  // namespace pipit
