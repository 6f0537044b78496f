// Kernel: what runs one node on one device in one precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/layer.h"
#include "engine/platform/isa.h"
#include "engine/platform/products.h"
#include "engine/platform/thread_pool.h"
#include "pipit/types.h"

namespace pipit::internal {

struct Candidate;
struct NodeSpec;

/// Where an input of a chain's node comes from.
struct LinkSource {
  enum class Kind : std::uint8_t { none, node, input, outside };  ///< none: a constant, or absent
  Kind kind = Kind::none;
  /// node: of the chain, 0 is the first one; input: of the first node; outside: of the values that neither the first
  /// node reads nor one of the chain computes, in the order in which they are met.
  int index = 0;
};

/// A node that the kernel of a chain computes after its first one.
struct ChainLink {
  const NodeSpec* node = nullptr;
  std::vector<LinkSource> sources;  ///< one per input of the node
};

/// What a kernel does beside its own node. The planner decides it from what candidates say of themselves
/// (engine/plan/registry.h), before any kernel is made.
struct Fusion {
  /// Nodes that are computed as well, each from the result of the one before, the first from the node's own: output 0
  /// is that of the last one. Their other inputs are constants.
  std::span<const NodeSpec* const> followers;
  /// Nodes that are computed as well, in this order, each from results of those before it, from what the node reads,
  /// and from what was computed before it: run() gets the node's inputs, after them those values
  /// (LinkSource::outside), and the output of the last one. No other value of them exists anywhere. Nothing else is
  /// fused with a chain.
  std::span<const ChainLink> chain;
  /// Null, or the node that computes input 0, with what is fused into it, and the candidate that runs it. Nothing else
  /// reads that input and it lies nowhere as a whole: run() gets the producer's inputs instead of the node's.
  const NodeSpec* producer = nullptr;
  const Candidate* producer_candidate = nullptr;
  /// Bytes from the start of one row of channels of output 0 to that of the next, where they lie in a larger value, of
  /// which run() leaves the rest alone. 0: they follow each other.
  std::size_t row_stride = 0;
  /// Inputs that their kernels have written right to their place in output 0.
  std::span<const std::size_t> in_place;
  /// The input whose memory output 0 is.
  std::optional<std::size_t> overwritten;
};

/// One node with everything that is known before the run. Valid only while a candidate is asked or created.
struct NodeSpec {
  const Layer& layer;
  std::span<const TensorDesc* const> inputs;  ///< null where an optional input is absent
  std::span<const TensorDesc> outputs;
  /// Per input: the constant, or null when it is computed at run time (or absent).
  std::span<const std::shared_ptr<const Tensor>> constants;
  Precision precision = Precision::fp32;
  int threads = 1;  ///< workers that will call run's parallel loops; sizes per-worker scratch
  int gpu = 0;      ///< ordinal of the GPU that is current while candidates are asked and kernels created
  /// The variant that a candidate shall create (Candidate::variants); empty: its own choice.
  std::string_view variant = {};
  /// Nothing while candidates are chosen and timed.
  Fusion fusion = {};

  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Tensor* constant(std::size_t i) const { return i < constants.size() ? constants[i].get() : nullptr; }
};

/// What a run hands to every kernel besides its operands.
struct RunContext {
  ThreadPool& pool;
  std::byte* scratch =
      nullptr;  ///< scratch_bytes() bytes, aligned (256 on a GPU, 64 on the CPU), contents unspecified
  void* stream = nullptr;  ///< on a GPU: the cudaStream_t to launch on; run() must not synchronize it
  /// state_bytes() bytes, aligned like scratch: as the session's run before left them, zeros in its first one.
  std::byte* state = nullptr;
  /// On a GPU, a bit for each of the first 32 inputs: what no earlier launch can still be writing, since a launch that
  /// orders prior writes lies between. A kernel that begins early may read it before it waits, from the second-level
  /// cache: only the wait makes sure that the first one holds nothing older.
  std::uint32_t settled = 0;

  /// On a GPU: where launches, which cannot throw, report a Fault (its text: Kernel::fault_text). Host memory that the
  /// GPU writes; `found` is 0 before the run. Null: nothing is reported.
  struct Fault* fault = nullptr;

  bool is_settled(std::size_t input) const { return input < 32 && (settled >> input & 1U) != 0; }
};

/// Whether an operand holds a value for which the layer has no result (an index out of range, say), and one such value.
struct Fault {
  std::int64_t found = 0;
  std::int64_t value = 0;
};

/// Where an input lies in an output that holds its rows (the elements of one pixel, say) one by one: bytes to its first
/// row, and from row to row.
struct RowPlace {
  std::size_t offset = 0;
  std::size_t stride = 0;
};

/// Arithmetic of a run, including what is wasted: lanes after the last channel, pixels that are computed twice.
struct KernelWork {
  std::int64_t macs = 0;
  Products products = Products::fp32;
  std::optional<Isa> isa =
      {};  ///< on a CPU: what multiplies them; the best that there is where nothing is said
};

/// Created once per node, immutable: packs weights, builds descriptors, sizes scratch. run() allocates nothing and may
/// be called by several sessions at once.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// Memory that every session has for itself and that keeps its content from run to run, as counters need it of blocks
  /// that wait for each other. A session's runs follow each other, those of several sessions do not.
  virtual std::size_t state_bytes() const { return 0; }
  /// On a GPU: whether run() has a launch that lets the next one begin, if at all, when everything before it has
  /// finished. What was written before is settled for the launches after it (RunContext::settled).
  virtual bool orders_prior_writes() const { return false; }
  /// False when run() never reads constant `index` of its inputs (it was packed at creation), so that the plan may
  /// release the original.
  virtual bool reads_constant(std::size_t /*index*/) const { return true; }
  /// The share of its node's multiply-accumulates that run() does: less than 1 where it leaves out weights that are
  /// zero.
  virtual double kept_share() const { return 1; }
  /// What run() multiplies at least, one after the other, with what is fused into it but followers. Empty: what the
  /// layers say (Layer::work, the node's times kept_share()), in the node's precision with the best instructions.
  virtual std::vector<KernelWork> work() const { return {}; }
  /// The message about a value that run() has reported (RunContext::fault). Kernels that report none need no text.
  virtual std::string fault_text(std::int64_t value) const { return std::to_string(value); }
  /// What it packed at creation, on its device. run() reads it all, but for what kept_share() says of a GPU's kernels.
  virtual std::size_t packed_bytes() const { return 0; }
  /// Computes the outputs. inputs[i] is not present() for an absent optional input or a released constant.
  virtual void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                   const RunContext& context) const = 0;
};

}  // namespace pipit::internal
