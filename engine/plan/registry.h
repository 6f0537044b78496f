// Registry: for each layer type and device an ordered list of candidates, the reference last.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/kernel.h"

namespace pipit::internal {

/// Why a candidate cannot run a node; empty when it can.
using Refusal = std::optional<std::string>;

/// The name of the plain kernel that is the oracle of all others and the last candidate of its layer.
inline constexpr const char* kReference = "reference";

/// What a kernel is expected to take.
struct Estimate {
  /// Microseconds on a GPU; on the CPU in a unit that the candidates of a layer share.
  double time = 0;
  std::string kernel;           ///< whose constants were used
  std::vector<double> factors;  ///< that they were multiplied with
};

/// What the kernels of a candidate can do beside their node. The plan asks once the candidate is chosen, before its
/// kernel is made, in this order, with what was decided so far in NodeSpec::fusion. Functions of the description alone;
/// null: never. create() finds what is accepted in NodeSpec::fusion.
struct Fusions {
  /// Whether all of these are computed as well (Fusion::chain), asked before anything else was decided: with no links
  /// whether a chain may begin with the node at all, then with what follows it, the longest first. Only the last one's
  /// output is used by others. It is asked whichever candidate was chosen for the nodes, unless the user chose that,
  /// and may refuse() each single one.
  std::function<bool(const NodeSpec& first, std::span<const ChainLink> links)> chain = {};
  bool chain_reads_outside = false;  ///< its chains may have LinkSource::outside
  /// Whether `next` is computed as well. Output 0 (of the last follower, where there is one) is used by nothing but one
  /// input of `next`, whose other inputs are constants and whose one output has as many elements, of any type, or on a
  /// GPU one for each channel of an image.
  std::function<bool(const NodeSpec& spec, const NodeSpec& next)> epilogue = {};
  /// Whether its kernels can compute output 0 in pieces for a kernel that reads them at once (producer); how is
  /// between the two kernels.
  std::function<bool(const NodeSpec&)> computes_pieces = {};
  /// Whether input 0 is computed as well, piece by piece, so that it stays in a cache. Nothing else reads it, the other
  /// inputs are constants, and the candidate that computes it computes pieces.
  std::function<bool(const NodeSpec&)> producer = {};
  /// Where output 0 holds the input unchanged; nothing where it does not.
  std::function<std::optional<RowPlace>(const NodeSpec&, std::size_t input)> place_of_input = {};
  /// Whether rows of channels of output 0 may lie apart (Fusion::row_stride). It is used by nothing but a kernel that
  /// has a place for it.
  std::function<bool(const NodeSpec&)> writes_strided_rows = {};
  /// Whether output 0 may lie where the input does, which has its desc, is not read again, and shares no memory with
  /// another operand.
  std::function<bool(const NodeSpec&, std::size_t input)> overwrites = {};
};

struct Candidate {
  std::string name;  ///< shown to users and matched by --kernel, for example "im2col_gemm"
  std::function<Refusal(const NodeSpec&)> refuse;
  /// Makes the kernel in NodeSpec::variant, or a variant of its own choice where that is empty.
  std::function<std::unique_ptr<Kernel>(const NodeSpec&)> create;
  /// For choice by measurement: the variants of an accepted node that are worth timing, best guess first. Null or none:
  /// the candidate has one only.
  std::function<std::vector<std::string>(const NodeSpec&)> variants = {};
  /// What the kernel in NodeSpec::variant would take with its followers (NodeSpec::fusion); nothing where refuse() has
  /// a reason that is known without asking a library. Total: asked about any node. Null: not known (candidate_order()).
  /// Of a candidate with Fusions::chain: the time of a chain that it accepts (Fusion::chain), and nothing for single
  /// nodes. The chain is made if it takes less time than its nodes one by one. Null: chains are always made.
  std::function<std::optional<Estimate>(const NodeSpec&)> estimate = {};
  /// Kernel::kept_share() of the kernel that would be made: equal descriptions do not take equally long where the
  /// weights decide about that. Null: 1.
  std::function<double(const NodeSpec&)> kept_share = {};
  /// A library compiles each of its kernels, for about half a second: it must be expected to be 10 %
  /// faster than others, and choice by measurement asks it only where it comes first in the order.
  bool slow_to_make = false;
  Fusions fusions = {};
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

}  // namespace pipit::internal
