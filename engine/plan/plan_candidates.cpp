#include <algorithm>

#include "engine/plan/candidate_order.h"
#include "engine/plan/described_node.h"
#include "engine/plan/plan_building.h"

namespace pipit::internal {

namespace {

class Chooser {
 public:
  Chooser(const PlanSubject& subject, const Registry& registry, const Followers& followers,
          const ChainCandidates& chains)
      : subject_(subject),
        options_(subject.options),
        registry_(registry),
        followers_(followers),
        chains_(chains) {}

  std::vector<StepDraft> run() {
    const Graph& graph = subject_.graph;
    std::vector<StepDraft> drafts;
    std::string refused;
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      if (is_view(graph, node)) continue;
      StepDraft& draft = drafts.emplace_back();
      draft.step.index = static_cast<int>(drafts.size()) - 1;
      draft.step.node = draft.node = static_cast<int>(n);
      refused += choose(node, draft);
      // A chain's kernel may yet need them.
      if (draft.step.kernel && chains_.empty()) subject_.constants.drop_packed(node, *draft.step.kernel);
    }
    if (!refused.empty()) {
      fail_unsupported("no kernel on {} in {} for these nodes:{}", device_name(options_.device),
                       precision_name(options_.precision), refused);
    }
    return drafts;
  }

 private:
  // Returns a line for the error message when every candidate refuses.
  std::string choose(const Node& node, StepDraft& draft) const {
    const std::vector<Candidate>& candidates = registry_.candidates(node.layer->type(), options_.device);
    DescribedNode described(subject_, node, false);
    // No candidate fuses more than a function, an average and its quantization.
    constexpr std::size_t kMaxFollowers = 3;
    std::vector<std::unique_ptr<const DescribedNode>> described_followers;
    std::vector<const NodeSpec*> followers;
    for (int next = followers_.after(draft.node); next >= 0 && followers.size() < kMaxFollowers;
         next = followers_.after(next)) {
      described_followers.push_back(std::make_unique<const DescribedNode>(
          subject_, subject_.graph.nodes()[static_cast<std::size_t>(next)], false));
      followers.push_back(&described_followers.back()->spec);
    }
    Step& step = draft.step;
    // On a GPU few followers are fused, and the others are worth timing.
    const bool may_time = options_.device != DeviceKind::cpu || !followers_.is_follower(draft.node);
    draft.candidate = select_candidate(node, described.spec, followers, draft, may_time);
    if (draft.candidate == nullptr && options_.device != DeviceKind::cpu && options_.allow_fallback)
      draft.candidate = fall_back(node, step);
    if (draft.candidate != nullptr) {
      step.kernel_name = (step.on_host ? "cpu:" : "") + draft.candidate->name;
      return {};
    }
    std::string line = fmt::format("\n  {} ({}):", node.name, node.layer->type());
    if (candidates.empty()) line += " no kernel is registered";
    for (const RefusedCandidate& r : step.refused) line += fmt::format(" {}: {};", r.name, r.reason);
    return line;
  }

  // The CPU's first kernel that takes the node; null when there is none. Its refusals join the others.
  const Candidate* fall_back(const Node& node, Step& step) const {
    const DescribedNode described(subject_, node, true);
    for (const Candidate& candidate : registry_.candidates(node.layer->type(), DeviceKind::cpu)) {
      Refusal reason = is_excluded(options_, node.layer->type(), candidate.name)
                           ? Refusal("switched off")
                           : candidate.refuse(described.spec);
      if (!reason) {
        step.on_host = true;
        return &candidate;
      }
      step.refused.push_back({"cpu:" + candidate.name, *reason});
    }
    return nullptr;
  }

  static bool fuses_anything(const Candidate& c) {
    return c.fusions.epilogue || c.fusions.producer || c.fusions.computes_pieces ||
           c.fusions.place_of_input || c.fusions.writes_strided_rows || c.fusions.overwrites;
  }

  // The candidate, and in the step how it was chosen; null when all refuse. Without a tuner no candidate is asked after
  // the first that accepts: asking can take long where a library builds what it is asked for.
  const Candidate* select_candidate(const Node& node, const NodeSpec& spec,
                                    std::span<const NodeSpec* const> followers, StepDraft& draft,
                                    bool may_time) const {
    Step& step = draft.step;
    std::vector<const Candidate*> order;
    for (const OrderedCandidate& place : candidate_order(registry_, options_.device, spec, followers)) {
      order.push_back(place.candidate);
      if (place.time) step.estimates.push_back({place.candidate->name, *place.time});
    }
    const std::string_view type = spec.layer.type();
    const auto preferred = [&](const Candidate* c) { return preference(options_, type, c->name); };
    const auto of_node = options_.kernels_of_nodes.find(node.name);
    const auto is_of_node = [&](const Candidate* c) {
      return of_node != options_.kernels_of_nodes.end() && of_node->second == c->name;
    };
    std::ranges::stable_sort(order, {}, [&](const Candidate* c) { return !is_of_node(c); });
    std::ranges::stable_sort(order, {}, preferred);
    Tuner* tuner = may_time ? options_.tuner.get() : nullptr;
    std::vector<const Candidate*> accepting;
    for (const Candidate* candidate : order) {
      if (is_excluded(options_, type, candidate->name)) {
        step.refused.push_back({candidate->name, "switched off"});
        continue;
      }
      if (candidate->slow_to_make && !accepting.empty()) {
        step.refused.push_back(
            {candidate->name, "not timed, because it comes after others and its kernels take long to make"});
        continue;
      }
      if (Refusal reason = candidate->refuse(spec)) {
        step.refused.push_back({candidate->name, *reason});
        continue;
      }
      accepting.push_back(candidate);
      if (tuner == nullptr || is_of_node(candidate) || preferred(candidate) != kNotPreferred) break;
    }
    if (accepting.empty()) return nullptr;
    const Candidate* chosen = accepting[0];
    if (tuner != nullptr) {
      Tuner::Selected selected = tuner->choose(options_.device, spec, accepting);
      chosen = selected.candidate;
      draft.variant = step.variant = std::move(selected.variant);
      // Where something may yet be fused into it, it is made again; and what may be fused into another one, whose
      // kernel then needs the constants.
      const bool alone = !fuses_anything(*chosen) && !followers_.is_follower(draft.node);
      if (!may_fuse(options_) || alone) step.kernel = std::move(selected.kernel);
      step.choice = std::move(selected.choice);
    }
    if (preferred(chosen) != kNotPreferred) step.choice.by = ChosenBy::preference;
    return chosen;
  }

  const PlanSubject& subject_;
  const PlanOptions& options_;
  const Registry& registry_;
  const Followers& followers_;
  const ChainCandidates& chains_;
};

}  // namespace

bool KernelName::covers(std::string_view type, std::string_view candidate) const {
  return !name.empty() && (layer_type.empty() || layer_type == type) && candidate.starts_with(name) &&
         (candidate.size() == name.size() || candidate.substr(name.size()).starts_with(", "));
}

bool is_excluded(const PlanOptions& options, std::string_view layer_type, std::string_view candidate) {
  return std::ranges::any_of(options.exclude_kernels,
                             [&](const KernelName& kernel) { return kernel.covers(layer_type, candidate); });
}

std::size_t preference(const PlanOptions& options, std::string_view layer_type, std::string_view candidate) {
  std::size_t place = 0;
  for (const bool for_all : {false, true}) {
    for (const KernelName& kernel : options.prefer_kernels) {
      if (kernel.layer_type.empty() != for_all) continue;
      if (kernel.covers(layer_type, candidate)) return place;
      ++place;
    }
  }
  return kNotPreferred;
}

std::vector<StepDraft> choose_candidates(const PlanSubject& subject, const Registry& registry,
                                         const Followers& followers, const ChainCandidates& chains) {
  std::vector<StepDraft> drafts = Chooser(subject, registry, followers, chains).run();
  if (subject.options.tuner) subject.options.tuner->free_operands();
  return drafts;
}

}  // namespace pipit::internal
