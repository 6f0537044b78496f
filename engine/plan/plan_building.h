// The parts of ExecutionPlan::build, in their order: candidates are chosen, what is fused is decided, values share
// memory, kernels are made, and everything gets its place.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "engine/plan/plan_constants.h"
#include "engine/plan/value_buffers.h"

namespace pipit::internal {

/// Whether the node only shows its first input under another desc: it has no kernel and no memory of its own.
bool is_view(const Graph& graph, const Node& node);

/// The node whose outputs the step writes.
const Node& last_node(const Graph& graph, const Step& step);

/// Whether the options allow steps of several nodes.
bool may_fuse(const PlanOptions& options);

/// Whether the options switch the candidate off for layers of this type.
bool is_excluded(const PlanOptions& options, std::string_view layer_type, std::string_view candidate);
/// The candidate's place among those that the options prefer for layers of this type, from 0; kNotPreferred.
std::size_t preference(const PlanOptions& options, std::string_view layer_type, std::string_view candidate);
inline constexpr std::size_t kNotPreferred = std::numeric_limits<std::size_t>::max();

/// The candidates whose kernels compute chains (Candidate::fuses_chain), by the type of the layer that a chain begins
/// with. None where the options allow no fusion.
class ChainCandidates {
 public:
  ChainCandidates(const Registry& registry, const PlanOptions& options);
  bool empty() const { return by_type_.empty(); }
  std::span<const Candidate* const> of(std::string_view layer_type) const;

 private:
  std::map<std::string, std::vector<const Candidate*>, std::less<>> by_type_;
};

/// The nodes that the kernel before them may compute as well: element-wise ones (which may run in place), or such that
/// make as many elements of a single input, on a GPU also such that make one of each channel's positions, in what only
/// that kernel computes and only they read; their other inputs are constants. Of layers with weights only
/// those with one for each channel: others choose kernels of their own. None where the options allow no fusion.
class Followers {
 public:
  Followers(const Graph& graph, const PlanOptions& options);
  bool is_follower(int node) const { return follows_[static_cast<std::size_t>(node)]; }
  /// The follower of the node's output; -1: there is none.
  int after(int node) const;

 private:
  const Graph& graph_;
  std::vector<bool> follows_;   // per node
  std::vector<int> consumers_;  // per value: the last node that reads it, or -1
};

/// What is planned: a graph without constants, which are apart.
struct PlanSubject {
  const Graph& graph;
  PlanConstants& constants;
  const PlanOptions& options;
};

/// A step, and what its kernel is to be made for.
struct StepDraft {
  Step step;  ///< its kernel is set only where the tuner made it and nothing can be fused into it
  const Candidate* candidate = nullptr;
  int node = 0;  ///< that the candidate was chosen for
  std::string variant;
  std::vector<int> chain;               ///< after `node`; then nothing of the rest is set
  std::vector<int> followers;           ///< of `node`
  std::unique_ptr<StepDraft> producer;  ///< computes input 0; step.node is the producer's
  std::size_t row_stride = 0;           ///< this and what follows as Fusion has it
  std::vector<std::size_t> in_place;
  std::optional<std::size_t> overwritten;
};

/// A candidate for every node that is not a view. Throws UnsupportedError naming every node that none accepts. Where
/// there are chains to be made, kernels of the tuner have not given up their constants.
std::vector<StepDraft> choose_candidates(const PlanSubject& subject, const Registry& registry,
                                         const Followers& followers, const ChainCandidates& chains);

/// How many of the nodes that follow the draft's kernel computes as well: all that it can where the user prefers this
/// kernel, otherwise those with which all take least (Candidate::estimate).
std::size_t fused_followers(const PlanSubject& subject, const Registry& registry, const StepDraft& draft,
                            const NodeSpec& spec, std::span<const NodeSpec* const> followers);

/// Makes one draft of every chain that is chosen. The drafts are cut into chains that candidates accept and single
/// nodes so that the estimated time is least (Candidate::estimate), and for equal times the number of steps. What the
/// tuner made for a chain's nodes is dropped.
std::vector<StepDraft> fuse_chains(const PlanSubject& subject, const Registry& registry,
                                   const ChainCandidates& chains, const Followers& followers,
                                   std::vector<StepDraft> drafts);

/// Decides greedily what is fused, asking candidates: first followers, then producers, then values that lie in others.
std::vector<StepDraft> fuse_steps(const PlanSubject& subject, const Registry& registry,
                                  const Followers& followers, std::vector<StepDraft> drafts);

/// find_buffers() for the drafts; tells them what they overwrite.
ValueBuffers share_memory(const PlanSubject& subject, std::vector<StepDraft>& drafts);

/// Makes the kernels. The steps lack placements only.
std::vector<Step> make_kernels(const PlanSubject& subject, std::vector<StepDraft> drafts);

struct PlacedValues {
  std::vector<Placement> outputs;  ///< one per graph output
  std::size_t arena_bytes = 0;
  std::size_t peak_live_bytes = 0;
};

/// Packs the arena and fills the steps' placements.
PlacedValues place_values(const PlanSubject& subject, const ValueBuffers& buffers, std::vector<Step>& steps);

/// Throws Error when the options or the machine allow no arena of `bytes` bytes.
void check_arena(std::size_t bytes, const PlanOptions& options);

}  // namespace pipit::internal
