// ExecutionPlan: a graph with a kernel chosen for every node and all live ranges packed into one arena.
// Immutable; any number of sessions in any number of threads may share one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/plan/micro_batch.h"
#include "engine/plan/registry.h"
#include "engine/plan/tuner.h"

namespace pipit::internal {

/// Candidates by name: "tile" is "tile" and its forms ("tile, 16-bit storage"). An empty name covers none.
struct KernelName {
  std::string name;
  std::string layer_type = {};  ///< of nodes of this type only; empty: of all
  bool covers(std::string_view type, std::string_view candidate) const;
};

struct PlanOptions {
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::fp32;
  int threads = 0;  ///< 0: default_threads()
  int gpu = 0;      ///< ordinal of the GPU, for DeviceKind::cuda
  /// Candidates that are asked before all others, and used wherever they accept: those for the node's type first, then
  /// those for all types, each in this order. For example {{"reference"}, {"cudnn", "Conv"}}.
  std::vector<KernelName> prefer_kernels;
  /// Candidates that are not asked at all, for single nodes and for chains; goes before every preference.
  std::vector<KernelName> exclude_kernels;
  /// By the name of a node: the candidate that is asked first for it, after those that are preferred, as another plan
  /// of the graph has chosen it. Kernels of both then pack the same weights alike.
  std::map<std::string, std::string, std::less<>> kernels_of_nodes;
  /// On a GPU: nodes that no GPU kernel takes run on the CPU, in fp32, through copies. Otherwise they are an error.
  bool allow_fallback = false;
  /// Chooses by measurement where no preference does; null: the first candidate that accepts. A built plan no longer
  /// holds it.
  std::shared_ptr<Tuner> tuner;
  /// Every node's output is written, for observers that read them: no kernel computes the node that follows as well.
  bool keep_every_value = false;
  /// On the CPU: how many samples of a batch go through all steps together; 0: all. Without a wish the plan chooses
  /// (choose_micro_batches). Ignored with keep_every_value: observers see whole values.
  std::optional<std::int64_t> micro_batch;
  /// Refuse plans whose arena is larger, in bytes; 0: what the machine has left (available_host_memory), or all
  /// memory of the GPU.
  std::size_t max_arena_bytes = 0;
};

/// Where a value lies during a run.
struct Placement {
  enum class Kind : std::uint8_t { absent, arena, constant, input };
  Kind kind = Kind::absent;
  std::size_t offset = 0;                  ///< arena: byte offset
  int input = -1;                          ///< input: index into graph.inputs()
  std::shared_ptr<const Tensor> constant;  ///< constant: empty once every kernel has packed it
  TensorDesc desc;
};

/// A candidate that was asked, and why it refused.
struct RefusedCandidate {
  std::string name;
  std::string reason;
};

/// What a candidate was expected to take with what may be fused into it (Estimate::time).
struct EstimatedCandidate {
  std::string name;
  double time = 0;
};

/// A chain that a candidate could compute from a step's node on, and that was compared with its nodes one by one.
struct EstimatedChain {
  std::string name;       ///< of the candidate
  std::size_t nodes = 0;  ///< of the chain, the first one included
  double time = 0;        ///< of the chain
  double apart = 0;       ///< of the kernels that compute its nodes otherwise
};

/// One kernel call.
struct Step {
  int index = 0;            ///< position in ExecutionPlan::steps()
  int node = 0;             ///< position in graph().nodes()
  std::string kernel_name;  ///< of a step on the host: "cpu:" and the CPU kernel's
  bool on_host = false;     ///< a fallback step of a GPU plan
  std::string variant;      ///< what the tuner chose among the candidate's; else empty
  std::vector<int>
      fused;              ///< nodes after it that the kernel computes too; the last one's outputs are written
  bool is_chain = false;  ///< they read each other's results as they like (Fusion::chain)
  std::vector<ValueId> outside;  ///< what they read that the first node does not; after its inputs
  /// Outputs of other steps that lie inside output 0 because their kernels write them there.
  struct Part {
    ValueId value = kNoValue;
    std::size_t offset = 0;  ///< bytes
  };
  std::vector<Part> parts;
  Choice choice;
  std::unique_ptr<const Kernel> kernel;
  std::vector<EstimatedCandidate> estimates;  ///< of the node, the smallest first
  std::vector<EstimatedChain> chains;         ///< of each candidate the one that is taken, or would save most
  std::vector<RefusedCandidate> refused;
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  std::size_t scratch_offset = 0;
  std::uint32_t settled = 0;  ///< RunContext::settled
};

class ExecutionPlan {
 public:
  /// Chooses kernels and packs memory. A graph that is moved here gives its constants away: each is freed when the last
  /// kernel that reads it has packed it. Throws UnsupportedError naming every node that no candidate accepts, each with
  /// all reasons; Error when the arena is larger than allowed.
  static std::shared_ptr<const ExecutionPlan> build(Graph graph, const Registry& registry,
                                                    const PlanOptions& options);

  /// Without its constants; with the whole batch, whatever goes through the steps together.
  const Graph& graph() const { return graph_; }
  /// Their kernels and placements are for one micro-batch.
  const std::vector<Step>& steps() const { return steps_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }
  /// One per graph output, of the whole batch.
  const std::vector<Placement>& outputs() const { return outputs_; }
  /// The same of one micro-batch, in memory that the steps use; outputs() where the batch is not cut.
  const std::vector<Placement>& step_outputs() const { return step_outputs_; }
  const PlanOptions& options() const { return options_; }
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// The largest set of buffers that must exist at once: the lower bound of arena_bytes().
  std::size_t peak_live_bytes() const { return peak_live_bytes_; }
  /// What a run would need if every node's output had memory of its own.
  std::size_t activation_bytes() const { return activation_bytes_; }
  /// The node whose outputs the step writes.
  const Node& last_node(const Step& step) const;
  /// Nodes without a step because their output is their input's memory under another shape.
  int view_nodes() const { return view_nodes_; }

 private:
  ExecutionPlan() = default;
  void place_whole_outputs();
  Graph graph_;
  PlanOptions options_;
  std::vector<Step> steps_;
  MicroBatches micro_batches_;
  std::vector<Placement> outputs_;
  std::vector<Placement> step_outputs_;
  std::size_t arena_bytes_ = 0;
  std::size_t peak_live_bytes_ = 0;
  std::size_t activation_bytes_ = 0;
  int view_nodes_ = 0;
};

}  // namespace pipit::internal
