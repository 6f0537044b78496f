#include <algorithm>
#include <utility>

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

// What may follow the first node; more would only make a candidate that takes less refuse more often.
constexpr std::size_t kMaxLinks = 64;

// How often values are read by nodes of a chain that grows.
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
  // Whether nothing else reads another output than the last one: neither a view of it, nor the caller of the graph.
  bool closed() const { return open_ == (uses_[index(outputs_.back().value)] > 0 ? 1 : 0); }

 private:
  struct Output {
    ValueId value;
    int reads;
  };
  const std::vector<int>& uses_;  // of the whole graph, per value
  std::vector<Output> outputs_;
  int open_ = 0;  // of them are read by others, the last one's readers being others
};

class Chainer {
 public:
  Chainer(const PlanSubject& subject, const ChainCandidates& chains, std::vector<StepDraft> drafts)
      : subject_(subject),
        graph_(subject.graph),
        chains_(chains),
        drafts_(std::move(drafts)),
        described_(drafts_.size()),
        uses_(graph_.use_counts()) {}

  std::vector<StepDraft> run() {
    std::vector<StepDraft> kept;
    for (std::size_t first = 0; first < drafts_.size();) {
      const Chain chain = longest_chain(first);
      if (chain.candidate != nullptr) join(first, chain);
      StepDraft draft = std::move(drafts_[first]);
      draft.step.index = static_cast<int>(kept.size());
      // What no chain took needs its constants no longer.
      if (draft.step.kernel) subject_.constants.drop_packed(node_at(first), *draft.step.kernel);
      kept.push_back(std::move(draft));
      for (std::size_t n = 0; n <= chain.links; ++n) described_[first++].reset();
    }
    return kept;
  }

 private:
  struct Chain {
    const Candidate* candidate = nullptr;  // null: none
    std::size_t links = 0;
  };

  // The longest chain of the first candidate that takes any.
  Chain longest_chain(std::size_t first) {
    for (const Candidate* candidate : chains_.of(node_at(first).layer->type())) {
      if (!may_hold(*candidate, first, first) || !candidate->fusions.chain(spec_of(first), {})) continue;
      const Links links = links_of(*candidate, first);
      for (std::size_t count = links.all.size(); count > 0; --count) {
        const std::span<const ChainLink> some = std::span(links.all).first(count);
        if (links.closed[count - 1] && candidate->fusions.chain(spec_of(first), some) &&
            pays(*candidate, first, some))
          return {candidate, count};
      }
    }
    return {};
  }

  bool pays(const Candidate& candidate, std::size_t first, std::span<const ChainLink> links) {
    return !candidate.fusions.chain_pays || preference_of(candidate, first) != kNotPreferred ||
           candidate.fusions.chain_pays(spec_of(first), links);
  }

  // All that may be linked to the first, and per link whether a chain may end with it.
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

  // By the options, for nodes like the first.
  std::size_t preference_of(const Candidate& candidate, std::size_t first) const {
    return preference(subject_.options, node_at(first).layer->type(), candidate.name);
  }

  // Whether the node may be in a chain of the candidate's that begins with the first, as far as options and device say:
  // a kernel that the user prefers for it goes before one that the user prefers less, or not.
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
    // It refused the node alone.
    std::erase_if(step.refused, [&](const RefusedCandidate& r) { return r.name == step.kernel_name; });
    std::vector<const Node*> nodes{&node_at(first)};
    for (std::size_t d = first + 1; d <= first + chain.links; ++d) {
      draft.chain.push_back(drafts_[d].node);
      link_sources(graph_, nodes, node_at(d), step.outside);
      nodes.push_back(&node_at(d));
    }
    step.fused = draft.chain;
  }

  // Described once, for all chains that are tried.
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
  std::vector<StepDraft> drafts_;
  std::vector<std::unique_ptr<const DescribedNode>> described_;  // per draft
  const std::vector<int> uses_;
};

}  // namespace

std::vector<StepDraft> fuse_chains(const PlanSubject& subject, const ChainCandidates& chains,
                                   std::vector<StepDraft> drafts) {
  return chains.empty() ? std::move(drafts) : Chainer(subject, chains, std::move(drafts)).run();
}

}  // namespace pipit::internal
