#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/plan/candidate_order.h"
#include "engine/plan/described_node.h"
#include "engine/plan/plan_building.h"

namespace pipit::internal {

ChainCandidates::ChainCandidates(const Registry& registry, const PlanOptions& options) {
  if (!may_fuse(options)) return;
  for (const std::string& type : registry.layer_types(options.device)) {
    for (const Candidate& candidate : registry.candidates(type, options.device)) {
      if (candidate.fusions.chain && !is_excluded(options, type, candidate.name))
        by_type_[type].push_back(&candidate);
    }
  }
}

std::span<const Candidate* const> ChainCandidates::of(std::string_view layer_type) const {
  const auto found = by_type_.find(layer_type);
  if (found == by_type_.end()) return {};
  return found->second;
}

namespace {

// Nodes that may follow the first one. The longest runs are tried first, and a candidate for short chains refuses every
// longer one.
constexpr std::size_t kMaxLinks = 64;

// Follows a growing chain: which outputs of its nodes are still read by nodes outside of it.
class Inside {
 public:
  explicit Inside(const std::vector<int>& uses) : uses_(uses) {}

  void add(ValueId output, std::span<const LinkSource> sources) {
    for (const LinkSource& source : sources) {
      if (source.kind != LinkSource::Kind::node) continue;
      Output& from = outputs_[static_cast<std::size_t>(source.index)];
      if (++from.reads == uses_[index(from.value)]) --open_;
    }
    outputs_.push_back({output, 0});
    if (uses_[index(output)] > 0) ++open_;
  }
  // Whether the chain may end here: outputs before the last one are read only inside the chain, not by other nodes, not
  // through a view, and not by the caller of the graph.
  bool closed() const { return open_ == (uses_[index(outputs_.back().value)] > 0 ? 1 : 0); }

 private:
  struct Output {
    ValueId value;
    int reads;
  };
  const std::vector<int>& uses_;  // of the whole graph, per value
  std::vector<Output> outputs_;
  int open_ = 0;  // outputs with readers that are not in the chain (yet)
};

// Estimated times of nodes without chains. The time of a node that is fused into another's kernel is the time that it
// adds to that kernel.
class NodeCosts {
 public:
  NodeCosts(const PlanSubject& subject, const Registry& registry, const Followers& followers,
            const std::vector<StepDraft>& drafts)
      : subject_(subject),
        registry_(registry),
        followers_(followers),
        drafts_(drafts),
        draft_of_(subject.graph.nodes().size(), -1) {
    for (std::size_t d = 0; d < drafts.size(); ++d)
      draft_of_[static_cast<std::size_t>(drafts[d].node)] = static_cast<int>(d);
    costs_.resize(drafts.size());
    known_.resize(drafts.size(), false);
  }

  struct Cost {
    double own = 0;    // as the plan computes it without chains
    double alone = 0;  // in a kernel of its own
    int with = -1;     // the draft into whose kernel it is fused
  };
  const Cost& of(std::size_t d) {
    // A follower's time comes from the draft that fuses it, which is before it: estimate that one first.
    if (!known_[d] && followers_.is_follower(drafts_[d].node)) {
      for (std::size_t before = d; before-- > 0 && !known_[d];) {
        if (followers_.after(drafts_[before].node) == drafts_[d].node) of(before);
      }
    }
    if (!known_[d]) estimate(d);
    return costs_[d];
  }

 private:
  // Estimates a draft and all nodes that its kernel fuses.
  void estimate(std::size_t d) {
    const StepDraft& draft = drafts_[d];
    DescribedNode described(subject_, node_at(draft.node), draft.step.on_host);
    NodeSpec& spec = described.spec;
    spec.variant = draft.variant;
    double time = costs_[d].own = costs_[d].alone = time_of(*draft.candidate, spec);
    known_[d] = true;
    if (draft.step.on_host || !draft.candidate->fusions.epilogue) return;
    std::vector<std::unique_ptr<const DescribedNode>> described_next;
    std::vector<std::size_t> next_drafts;
    std::vector<const NodeSpec*> next;
    for (int n = followers_.after(draft.node); n >= 0; n = followers_.after(n)) {
      const int at = draft_of_[static_cast<std::size_t>(n)];
      if (at < 0) break;
      next_drafts.push_back(static_cast<std::size_t>(at));
      described_next.push_back(std::make_unique<const DescribedNode>(subject_, node_at(n), false));
      next.push_back(&described_next.back()->spec);
    }
    const std::size_t fused = fused_followers(subject_, registry_, draft, spec, next);
    for (std::size_t f = 0; f < fused; ++f) {
      spec.fusion.followers = std::span<const NodeSpec* const>(next).first(f + 1);
      const double with = time_of(*draft.candidate, spec);
      NodeSpec single = *next[f];
      single.variant = drafts_[next_drafts[f]].variant;
      costs_[next_drafts[f]] = {with - time, time_of(*drafts_[next_drafts[f]].candidate, single),
                                static_cast<int>(d)};
      known_[next_drafts[f]] = true;
      time = with;
    }
  }

  static double time_of(const Candidate& candidate, const NodeSpec& spec) {
    const std::optional<Estimate> estimate = candidate.estimate ? candidate.estimate(spec) : std::nullopt;
    return estimate && std::isfinite(estimate->time) ? estimate->time : 0;
  }
  const Node& node_at(int n) const { return subject_.graph.nodes()[static_cast<std::size_t>(n)]; }

  const PlanSubject& subject_;
  const Registry& registry_;
  const Followers& followers_;
  const std::vector<StepDraft>& drafts_;
  std::vector<int> draft_of_;  // per node
  std::vector<Cost> costs_;    // per draft
  std::vector<bool> known_;
};

class Chainer {
 public:
  Chainer(const PlanSubject& subject, const Registry& registry, const ChainCandidates& chains,
          const Followers& followers, std::vector<StepDraft> drafts)
      : subject_(subject),
        graph_(subject.graph),
        chains_(chains),
        followers_(followers),
        drafts_(std::move(drafts)),
        described_(drafts_.size()),
        uses_(graph_.use_counts()),
        costs_(subject, registry, followers, drafts_),
        found_(drafts_.size()) {}

  std::vector<StepDraft> run() {
    for (std::size_t first = 0; first < drafts_.size(); ++first) find_chains(first);
    const std::vector<const Chain*> cut = cheapest_cut();
    std::vector<StepDraft> kept;
    for (std::size_t first = 0; first < drafts_.size();) {
      report(first, cut[first]);
      if (cut[first] != nullptr) join(first, *cut[first]);
      StepDraft draft = std::move(drafts_[first]);
      draft.step.index = static_cast<int>(kept.size());
      // This node is in no chain, and its kernel has packed its constants: they can be freed.
      if (draft.step.kernel) subject_.constants.drop_packed(node_at(first), *draft.step.kernel);
      kept.push_back(std::move(draft));
      first += cut[first] != nullptr ? cut[first]->links + 1 : 1;
    }
    return kept;
  }

 private:
  struct Chain {
    const Candidate* candidate;
    std::size_t links;
    bool wanted;  // made whatever its estimate: the user prefers it, or there is no estimate
    double time;
    double apart = 0;  // the time of its nodes one by one
    double left = 0;  // time added to later nodes that were fused into nodes of the chain, and then run alone
  };

  // Collects all chains that begin with this node.
  void find_chains(std::size_t first) {
    for (const Candidate* candidate : chains_.of(node_at(first).layer->type())) {
      if (!may_hold(*candidate, first, first) || !candidate->fusions.chain(spec_of(first), {})) continue;
      const Links links = links_of(*candidate, first);
      const bool wanted = !candidate->estimate || preference_of(*candidate, first) != kNotPreferred;
      for (std::size_t count = links.all.size(); count > 0; --count) {
        const std::span<const ChainLink> some = std::span(links.all).first(count);
        if (!links.closed[count - 1] || !candidate->fusions.chain(spec_of(first), some)) continue;
        NodeSpec spec = spec_of(first);
        spec.fusion.chain = some;
        const std::optional<Estimate> estimate =
            candidate->estimate ? candidate->estimate(spec) : std::nullopt;
        if (!wanted && !estimate) continue;
        found_[first].push_back({candidate, count, wanted, estimate ? estimate->time : 0});
      }
    }
    for (Chain& chain : found_[first]) {
      const std::size_t last = first + chain.links;
      for (std::size_t d = first; d <= last; ++d) chain.apart += costs_.of(d).own;
      for (std::size_t d = last + 1; d < drafts_.size() && d <= last + kMaxLinks; ++d) {
        if (!is_follower(d)) continue;
        const NodeCosts::Cost& cost = costs_.of(d);
        if (cost.with >= static_cast<int>(first) && cost.with <= static_cast<int>(last))
          chain.left += cost.alone - cost.own;
      }
    }
  }

  // The division of the drafts into chains and single nodes with the least total time, found from the end: for each
  // draft the chain that begins with it, or null. A node that is in no chain at all adds the same to every division, so
  // it counts as 0.
  std::vector<const Chain*> cheapest_cut() {
    struct Rest {
      double time = 0;
      int steps = 0;
      bool operator<(const Rest& other) const {
        return time != other.time ? time < other.time : steps < other.steps;
      }
    };
    std::vector<bool> in_chains(drafts_.size(), false);
    for (std::size_t first = 0; first < drafts_.size(); ++first) {
      for (const Chain& chain : found_[first])
        std::fill_n(in_chains.begin() + static_cast<std::ptrdiff_t>(first), chain.links + 1, true);
    }
    std::vector<Rest> rest(drafts_.size() + 1);
    std::vector<const Chain*> cut(drafts_.size(), nullptr);
    for (std::size_t first = drafts_.size(); first-- > 0;) {
      Rest& best = rest[first] = rest[first + 1];
      if (in_chains[first]) best.time += costs_.of(first).own;
      ++best.steps;
      for (const Chain& chain : found_[first]) {
        Rest with = rest[first + chain.links + 1];
        if (!chain.wanted) with.time += chain.time + chain.left;
        ++with.steps;
        // Among equals the first one found, which is the longest.
        if (cut[first] == nullptr ? best < with : !(with < best)) continue;
        best = with;
        cut[first] = &chain;
      }
    }
    return cut;
  }

  // For `inspect --why`: for each candidate the chain that was chosen, or else the one that would save most.
  void report(std::size_t first, const Chain* taken) {
    std::vector<EstimatedChain>& chains = drafts_[first].step.chains;
    for (const Chain& chain : found_[first]) {
      if (taken != nullptr && taken->candidate == chain.candidate && taken != &chain) continue;
      const EstimatedChain found{chain.candidate->name, chain.links + 1, chain.time + chain.left,
                                 chain.apart};
      const auto same = std::ranges::find(chains, found.name, &EstimatedChain::name);
      if (same == chains.end()) {
        chains.push_back(found);
      } else if (found.apart - found.time > same->apart - same->time) {
        *same = found;
      }
    }
  }

  // The nodes that can be linked to the first one, and for each of them whether a chain may end there.
  struct Links {
    std::vector<ChainLink> all;
    std::vector<bool> closed;
  };
  Links links_of(const Candidate& candidate, std::size_t first) {
    Links links;
    std::vector<const Node*> nodes{&node_at(first)};
    std::vector<ValueId> outside;
    Inside inside(uses_);
    inside.add(nodes[0]->outputs[0], {});
    for (std::size_t d = first + 1; d < drafts_.size() && links.all.size() < kMaxLinks; ++d) {
      if (!may_hold(candidate, first, d)) break;
      const Node& node = node_at(d);
      std::vector<LinkSource> sources = link_sources(graph_, nodes, node, outside);
      if (!outside.empty() && !candidate.fusions.chain_reads_outside) break;
      inside.add(node.outputs[0], sources);
      links.all.push_back({&spec_of(d), std::move(sources)});
      links.closed.push_back(inside.closed());
      nodes.push_back(&node);
    }
    return links;
  }

  bool is_follower(std::size_t d) const { return followers_.is_follower(drafts_[d].node); }

  // The user's preference for the candidate, for nodes of the first one's type.
  std::size_t preference_of(const Candidate& candidate, std::size_t first) const {
    return preference(subject_.options, node_at(first).layer->type(), candidate.name);
  }

  // Whether options and device let the node be in a chain of this candidate that begins with `first`. A kernel that the
  // user prefers for the node keeps it, unless the user prefers the candidate more.
  bool may_hold(const Candidate& candidate, std::size_t first, std::size_t d) const {
    const StepDraft& draft = drafts_[d];
    const bool others = draft.step.choice.by == ChosenBy::preference &&
                        draft.candidate->name != candidate.name &&
                        preference(subject_.options, node_at(d).layer->type(), draft.candidate->name) <=
                            preference_of(candidate, first);
    return !others && !draft.step.on_host && node_at(d).outputs.size() == 1;
  }

  void join(std::size_t first, const Chain& chain) {
    StepDraft& draft = drafts_[first];
    Step& step = draft.step;
    draft.candidate = chain.candidate;
    draft.variant.clear();
    step.variant.clear();
    step.kernel.reset();
    step.choice = {step.choice.by == ChosenBy::preference ? ChosenBy::preference : ChosenBy::order, {}, {}};
    step.kernel_name = chain.candidate->name;
    step.is_chain = true;
    // The candidate refused the node alone; it no longer counts as refused.
    std::erase_if(step.refused, [&](const RefusedCandidate& r) { return r.name == step.kernel_name; });
    std::vector<const Node*> nodes{&node_at(first)};
    for (std::size_t d = first + 1; d <= first + chain.links; ++d) {
      draft.chain.push_back(drafts_[d].node);
      link_sources(graph_, nodes, node_at(d), step.outside);
      nodes.push_back(&node_at(d));
    }
    step.fused = draft.chain;
  }

  // The description of a draft's node, made once and used for all chains that are tried.
  const NodeSpec& spec_of(std::size_t d) {
    if (!described_[d]) described_[d] = std::make_unique<const DescribedNode>(subject_, node_at(d), false);
    return described_[d]->spec;
  }
  const Node& node_at(std::size_t d) const {
    return graph_.nodes()[static_cast<std::size_t>(drafts_[d].node)];
  }

  const PlanSubject& subject_;
  const Graph& graph_;
  const ChainCandidates& chains_;
  const Followers& followers_;
  std::vector<StepDraft> drafts_;
  std::vector<std::unique_ptr<const DescribedNode>> described_;  // per draft
  const std::vector<int> uses_;
  NodeCosts costs_;
  std::vector<std::vector<Chain>> found_;  // per draft
};

}  // namespace

std::vector<StepDraft> fuse_chains(const PlanSubject& subject, const Registry& registry,
                                   const ChainCandidates& chains, const Followers& followers,
                                   std::vector<StepDraft> drafts) {
  if (chains.empty()) return drafts;
  return Chainer(subject, registry, chains, followers, std::move(drafts)).run();
}

}  // namespace pipit::internal
