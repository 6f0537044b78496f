#include <utility>

#include "engine/plan/candidate_order.h"
#include "engine/plan/described_node.h"
#include "engine/plan/plan_building.h"

namespace pipit::internal {

bool may_fuse(const PlanOptions& options) {
  return !options.keep_every_value;
}

namespace {

// Whether y has one element of each channel of x (global pooling).
bool holds_channels(const Shape& x, const Shape& y) {
  return x.rank() >= 3 && y.rank() == x.rank() && y[0] == x[0] && y[1] == x[1] && y.elements() == x[0] * x[1];
}

// Whether a layer multiplies every channel by one weight, as a batch normalization does.
bool scales_channels(const Graph& graph, const Node& node) {
  const LayerTraits traits = node.layer->traits();
  const Shape& y = graph.value(node.outputs[0]).desc.shape;
  return traits.family == LayerFamily::convolution && traits.weights && y.rank() >= 3 &&
         graph.value(node.inputs[*traits.weights]).desc.elements() == y[1];
}

}  // namespace

Followers::Followers(const Graph& graph, const PlanOptions& options)
    : graph_(graph), follows_(graph.nodes().size(), false), consumers_(graph.values().size(), -1) {
  const std::vector<int> uses = graph.use_counts();
  std::vector<const Node*> producers(graph.values().size(), nullptr);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (const ValueId id : node.outputs) producers[index(id)] = &node;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) consumers_[index(id)] = static_cast<int>(n);
    }
  }
  if (!may_fuse(options)) return;
  const auto follows = [&](const Node& node) {
    if (node.outputs.size() != 1 || is_view(graph, node)) return false;
    const bool scales = scales_channels(graph, node);
    bool found = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || graph.value(id).is_constant()) continue;
      const Node* producer = producers[index(id)];
      const TensorDesc& x = graph.value(id).desc;
      const TensorDesc& y = graph.value(node.outputs[0]).desc;
      found = !found && producer != nullptr && producer->outputs.size() == 1 && !is_view(graph, *producer) &&
              uses[index(id)] == 1 &&
              (scales || node.layer->may_run_in_place(static_cast<int>(i))
                   ? x == y
                   : node.inputs.size() == 1 &&
                         (x.elements() == y.elements() ||
                          (options.device != DeviceKind::cpu && holds_channels(x.shape, y.shape))));
      if (!found) return false;
    }
    return found;
  };
  for (std::size_t n = 0; n < follows_.size(); ++n) follows_[n] = follows(graph.nodes()[n]);
}

int Followers::after(int node) const {
  const std::vector<ValueId>& outputs = graph_.nodes()[static_cast<std::size_t>(node)].outputs;
  const int next = outputs.size() == 1 ? consumers_[index(outputs[0])] : -1;
  return next >= 0 && is_follower(next) ? next : -1;
}

namespace {

// Steps on the host of a GPU plan stay single nodes, and chains what they are.
class Fuser {
 public:
  Fuser(const PlanSubject& subject, const Registry& registry, const Followers& followers,
        std::vector<StepDraft> drafts)
      : subject_(subject),
        graph_(subject.graph),
        registry_(registry),
        followers_(followers),
        drafts_(std::move(drafts)) {}

  std::vector<StepDraft> run() {
    fuse_epilogues();
    fuse_producers();
    join_in_place();
    return std::move(drafts_);
  }

 private:
  // Offers every candidate the nodes that follow, and drops the steps of those that it takes.
  void fuse_epilogues() {
    std::vector<bool> fused(graph_.nodes().size(), false);
    std::vector<bool> chained(graph_.nodes().size(), false);
    for (const StepDraft& draft : drafts_) {
      if (draft.step.is_chain) chained[static_cast<std::size_t>(draft.node)] = true;
    }
    std::vector<StepDraft> kept;
    for (StepDraft& draft : drafts_) {
      if (fused[static_cast<std::size_t>(draft.node)]) continue;
      draft.followers = fused_with(draft, chained);
      for (const int next : draft.followers) {
        draft.step.fused.push_back(next);
        fused[static_cast<std::size_t>(next)] = true;
      }
      keep(kept, std::move(draft));
    }
    drafts_ = std::move(kept);
  }

  std::vector<int> fused_with(const StepDraft& draft, const std::vector<bool>& chained) const {
    std::vector<int> nodes;
    if (draft.step.is_chain || draft.step.on_host || !draft.candidate->fusions.epilogue) return nodes;
    std::vector<std::unique_ptr<const DescribedNode>> described;
    std::vector<const NodeSpec*> specs;
    for (int next = followers_.after(draft.node); next >= 0 && !chained[static_cast<std::size_t>(next)];
         next = followers_.after(next)) {
      nodes.push_back(next);
      described.push_back(std::make_unique<const DescribedNode>(
          subject_, graph_.nodes()[static_cast<std::size_t>(next)], false));
      specs.push_back(&described.back()->spec);
    }
    const DescribedKernel kernel(subject_, draft);
    nodes.resize(fused_followers(subject_, registry_, draft, kernel.spec(), specs));
    return nodes;
  }

  // Offers every candidate the step that computes its input, and makes one of both where it takes it.
  void fuse_producers() {
    const std::vector<int> uses = graph_.use_counts();
    std::vector<int> writers(graph_.values().size(), -1);  // per value: the draft that writes it alone
    std::vector<StepDraft> kept;
    for (StepDraft& draft : drafts_) {
      int at = producing_draft(draft, uses, writers);
      if (at >= 0 && fuses_producer(draft, kept[static_cast<std::size_t>(at)])) {
        StepDraft& producer = kept[static_cast<std::size_t>(at)];
        producer = join(std::move(producer), std::move(draft));
      } else {
        at = keep(kept, std::move(draft));
      }
      const std::vector<ValueId>& outputs =
          last_node(graph_, kept[static_cast<std::size_t>(at)].step).outputs;
      if (outputs.size() == 1) writers[index(outputs[0])] = at;
    }
    drafts_ = std::move(kept);
  }

  // The draft that computes input 0 for this one alone; -1: none, or other inputs are computed at run time.
  int producing_draft(const StepDraft& draft, const std::vector<int>& uses,
                      const std::vector<int>& writers) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(draft.node)];
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id != kNoValue && !graph_.value(id).is_constant()) return -1;
    }
    const ValueId id = node.inputs.empty() ? kNoValue : node.inputs[0];
    return id == kNoValue || uses[index(id)] != 1 ? -1 : writers[index(id)];
  }

  bool fuses_producer(const StepDraft& draft, const StepDraft& producer) const {
    return draft.candidate->fusions.producer && !producer.producer &&
           producer.candidate->fusions.computes_pieces && !draft.step.is_chain && !producer.step.is_chain &&
           !draft.step.on_host && !producer.step.on_host &&
           producer.candidate->fusions.computes_pieces(DescribedKernel(subject_, producer).spec()) &&
           draft.candidate->fusions.producer(DescribedKernel(subject_, draft).spec());
  }

  static StepDraft join(StepDraft producer, StepDraft draft) {
    Step step = std::move(producer.step);
    step.fused.push_back(draft.node);
    step.fused.insert(step.fused.end(), draft.followers.begin(), draft.followers.end());
    step.kernel_name += " + " + draft.step.kernel_name;
    draft.step = std::move(step);
    draft.producer = std::make_unique<StepDraft>(std::move(producer));
    return draft;
  }

  // Lets kernels write right into the output of the kernel that would only copy theirs. Outer ones first: what lies
  // in a part lies in the whole.
  void join_in_place() {
    const std::vector<int> uses = graph_.use_counts();
    std::vector<int> writers(graph_.values().size(), -1);  // per value: as in fuse_producers()
    for (const StepDraft& draft : drafts_) {
      const std::vector<ValueId>& outputs = last_node(graph_, draft.step).outputs;
      if (outputs.size() == 1) writers[index(outputs[0])] = draft.step.index;
    }
    for (auto draft = drafts_.rbegin(); draft != drafts_.rend(); ++draft) {
      if (!draft->candidate->fusions.place_of_input || draft->producer || draft->step.is_chain ||
          draft->step.on_host)
        continue;
      const std::vector<ValueId>& inputs = graph_.nodes()[static_cast<std::size_t>(draft->node)].inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const ValueId id = inputs[i];
        if (id == kNoValue || writers[index(id)] < 0 || uses[index(id)] != 1) continue;
        const std::optional<RowPlace> place =
            draft->candidate->fusions.place_of_input(DescribedKernel(subject_, *draft).spec(), i);
        StepDraft& writer = drafts_[static_cast<std::size_t>(writers[index(id)])];
        if (!place || !writes_strided_rows(writer)) continue;
        writer.row_stride = place->stride;
        draft->in_place.push_back(i);
        draft->step.parts.push_back({id, place->offset});
      }
      if (!inputs.empty() && draft->in_place.size() == inputs.size()) draft->step.kernel_name += ", in place";
    }
  }

  bool writes_strided_rows(const StepDraft& draft) const {
    return draft.candidate->fusions.writes_strided_rows && !draft.step.is_chain && !draft.step.on_host &&
           draft.candidate->fusions.writes_strided_rows(DescribedKernel(subject_, draft).spec());
  }

  static int keep(std::vector<StepDraft>& kept, StepDraft draft) {
    draft.step.index = static_cast<int>(kept.size());
    kept.push_back(std::move(draft));
    return kept.back().step.index;
  }

  const PlanSubject& subject_;
  const Graph& graph_;
  const Registry& registry_;
  const Followers& followers_;
  std::vector<StepDraft> drafts_;
};

}  // namespace

std::size_t fused_followers(const PlanSubject& subject, const Registry& registry, const StepDraft& draft,
                            const NodeSpec& spec, std::span<const NodeSpec* const> followers) {
  if (draft.step.choice.by == ChosenBy::preference)
    return fusable_followers(*draft.candidate, spec, followers);
  return fused_followers(registry, subject.options.device, *draft.candidate, spec, followers);
}

std::vector<StepDraft> fuse_steps(const PlanSubject& subject, const Registry& registry,
                                  const Followers& followers, std::vector<StepDraft> drafts) {
  if (!may_fuse(subject.options)) return drafts;
  return Fuser(subject, registry, followers, std::move(drafts)).run();
}

ValueBuffers share_memory(const PlanSubject& subject, std::vector<StepDraft>& drafts) {
  std::vector<const Step*> steps;
  for (const StepDraft& draft : drafts) steps.push_back(&draft.step);
  ValueBuffers buffers = find_buffers(subject.graph, steps, [&](const Step& step, std::size_t input) {
    const StepDraft& draft = drafts[static_cast<std::size_t>(step.index)];
    return draft.candidate->fusions.overwrites && !draft.producer &&
           draft.candidate->fusions.overwrites(DescribedKernel(subject, draft).spec(), input);
  });
  for (StepDraft& draft : drafts) {
    // A step on the host works in memory of its own.
    if (!draft.step.on_host)
      draft.overwritten = buffers.overwritten[static_cast<std::size_t>(draft.step.index)];
  }
  return buffers;
}

}  // namespace pipit::internal
