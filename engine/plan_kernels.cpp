#include <algorithm>
#include <exception>
#include <mutex>

#include "engine/candidate_order.h"
#include "engine/described_node.h"
#include "engine/device.h"
#include "engine/plan_parts.h"

namespace pipit {

namespace {

class StepBuilder {
 public:
  StepBuilder(Graph& graph, const Registry& registry, const PlanOptions& options)
      : graph_(graph), registry_(registry), options_(options) {}

  std::vector<Step> build() {
    find_users();
    choose_kernels();
    if (options_.tuner) options_.tuner->free_operands();
    create_kernels();
    absorb_followers();
    chain_kernels();
    join_in_place();
    for (Step& step : steps_) step.kernel = std::move(kernels_[static_cast<std::size_t>(step.index)]);
    return std::move(steps_);
  }

 private:
  void choose_kernels() {
    std::string refused;
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (is_view(graph_, node)) continue;
      Step step;
      step.index = static_cast<int>(steps_.size());
      step.node = static_cast<int>(n);
      refused += choose_kernel(node, step);
      if (kernels_.back()) release_packed(node, *kernels_.back());
      steps_.push_back(std::move(step));
    }
    if (!refused.empty()) {
      fail_unsupported("no kernel on {} in {} for these nodes:{}", device_name(options_.device),
                       precision_name(options_.precision), refused);
    }
  }

  // Fills the step but for the kernel, unless the tuner made it; returns a line for the error message when every
  // candidate refuses.
  std::string choose_kernel(const Node& node, Step& step) {
    const std::vector<Candidate>& candidates = registry_.candidates(node.layer->type(), options_.device);
    const DescribedNode described(graph_, node, options_, false);
    kernels_.emplace_back();
    const Candidate* candidate = select_candidate(candidates, described.spec, step, !is_follower(node));
    if (candidate == nullptr && options_.device != DeviceKind::cpu && options_.allow_fallback)
      candidate = fall_back(node, step);
    candidates_.push_back(candidate);
    if (candidate != nullptr) {
      step.kernel_name = (step.on_host ? "cpu:" : "") + candidate->name;
      return {};
    }
    std::string line = fmt::format("\n  {} ({}):", node.name, node.layer->type());
    if (candidates.empty()) line += " no kernel is registered";
    for (const RefusedCandidate& r : step.refused) line += fmt::format(" {}: {};", r.name, r.reason);
    return line;
  }

  // Creating is packing, mostly: several nodes at once on the CPU, but of large ones one at a time, whose weights are
  // there twice meanwhile. Whichever fails first, the error reported is that of the earliest node.
  void create_kernels() {
    constexpr std::size_t kLargeBytes = std::size_t{4} << 20;
    std::mutex mutex;
    std::mutex large;
    if (options_.device != DeviceKind::cpu) {
      for (const Step& step : steps_) create(step, mutex);
      return;
    }
    std::vector<char> is_large;  // asked before anything is released
    for (const Step& step : steps_) is_large.push_back(constant_bytes(node_of(step)) >= kLargeBytes);
    std::vector<std::exception_ptr> errors(steps_.size());
    shared_pool(options_.threads)->parallel_for(std::ssize(steps_), [&](std::int64_t s, int) {
      try {
        const Step& step = steps_[static_cast<std::size_t>(s)];
        if (is_follower(node_of(step))) return;
        std::unique_lock alone(large, std::defer_lock);
        if (is_large[static_cast<std::size_t>(s)]) alone.lock();
        create(step, mutex);
      } catch (...) {
        errors[static_cast<std::size_t>(s)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  std::size_t constant_bytes(const Node& node) const {
    std::size_t bytes = 0;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && graph_.value(id).is_constant()) bytes += graph_.value(id).desc.bytes();
    }
    return bytes;
  }

  // `mutex` guards the graph's constants.
  void create(const Step& step, std::mutex& mutex) {
    std::unique_ptr<Kernel>& kernel = kernels_[static_cast<std::size_t>(step.index)];
    if (kernel) return;  // the tuner made it
    const Node& node = node_of(step);
    const Candidate& candidate = *candidates_[static_cast<std::size_t>(step.index)];
    try {
      std::unique_lock lock(mutex);
      DescribedNode described(graph_, node, options_, step.on_host);
      lock.unlock();
      described.spec.variant = step.variant;
      kernel = candidate.create(described.spec);
    } catch (const UnsupportedError& e) {
      fail_unsupported("node '{}' ({}, kernel {}): {}", node.name, node.layer->type(), candidate.name,
                       e.what());
    } catch (const Error& e) {
      fail("node '{}' ({}, kernel {}): {}", node.name, node.layer->type(), candidate.name, e.what());
    }
    const std::lock_guard lock(mutex);
    release_packed(node, *kernel);
  }

  void find_users() {
    producers_.assign(graph_.values().size(), nullptr);
    consumers_.assign(graph_.values().size(), -1);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      for (const ValueId id : node.outputs) producers_[index(id)] = &node;
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) consumers_[index(id)] = static_cast<int>(n);
      }
    }
    uses_ = graph_.use_counts();
  }

  // Whether the kernel before the node may compute it as well: it is element-wise (may run in place), or makes as many
  // elements of a single input, in what only that kernel computes and only it reads; its other inputs are constants.
  // Not a layer with weights: those choose kernels of their own.
  bool is_follower(const Node& node) const {
    if (options_.device != DeviceKind::cpu || options_.keep_every_value) return false;
    if (node.outputs.size() != 1 || is_view(graph_, node)) return false;
    bool follows = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || graph_.value(id).is_constant()) continue;
      const Node* producer = producers_[index(id)];
      const TensorDesc& x = graph_.value(id).desc;
      const TensorDesc& y = graph_.value(node.outputs[0]).desc;
      follows = !follows && producer != nullptr && producer->outputs.size() == 1 &&
                !is_view(graph_, *producer) && uses_[index(id)] == 1 &&
                (node.layer->may_run_in_place(static_cast<int>(i))
                     ? x == y
                     : node.inputs.size() == 1 && x.dtype == y.dtype && x.elements() == y.elements());
      if (!follows) return false;
    }
    return follows;
  }

  // Offers the nodes that follow to every kernel, one after the other; steps of those that it takes are dropped.
  void absorb_followers() {
    std::vector<bool> absorbed(graph_.nodes().size(), false);
    std::vector<Step> steps;
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::mutex mutex;
    for (Step& step : steps_) {
      if (absorbed[static_cast<std::size_t>(step.node)]) continue;
      create(step, mutex);
      std::unique_ptr<Kernel>& kernel = kernels_[static_cast<std::size_t>(step.index)];
      for (const Node* last = &node_of(step); last->outputs.size() == 1;) {
        const int n = consumers_[index(last->outputs[0])];
        if (n < 0 || !is_follower(graph_.nodes()[static_cast<std::size_t>(n)])) break;
        last = &graph_.nodes()[static_cast<std::size_t>(n)];
        if (!kernel->absorb(DescribedNode(graph_, *last, options_, false).spec)) break;
        step.absorbed.push_back(n);
        absorbed[static_cast<std::size_t>(n)] = true;
        release_constants(*last,
                          [](std::size_t) { return false; });  // the kernel keeps what it needs of them
      }
      kernels.push_back(std::move(kernel));
      step.index = static_cast<int>(steps.size());
      steps.push_back(std::move(step));
    }
    steps_ = std::move(steps);
    kernels_ = std::move(kernels);
  }

  // Offers every kernel the one that computes its input, and drops the steps of those that are taken.
  void chain_kernels() {
    if (options_.device != DeviceKind::cpu || options_.keep_every_value) return;
    std::vector<int> writers(graph_.values().size(), -1);  // per value: the step that writes it alone
    std::vector<Step> steps;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (Step& step : steps_) {
      std::unique_ptr<Kernel>& kernel = kernels_[static_cast<std::size_t>(step.index)];
      const Node& node = node_of(step);
      int at = producing_step(node, writers);
      if (at >= 0 && kernel->take_over(kernels[static_cast<std::size_t>(at)],
                                       DescribedNode(graph_, node, options_, false).spec)) {
        Step& producer = steps[static_cast<std::size_t>(at)];
        producer.absorbed.push_back(step.node);
        producer.absorbed.insert(producer.absorbed.end(), step.absorbed.begin(), step.absorbed.end());
        producer.kernel_name += " + " + step.kernel_name;
        kernels[static_cast<std::size_t>(at)] = std::move(kernel);
      } else {
        at = step.index = static_cast<int>(steps.size());
        kernels.push_back(std::move(kernel));
        steps.push_back(std::move(step));
      }
      const std::vector<ValueId>& outputs = last_node(graph_, steps[static_cast<std::size_t>(at)]).outputs;
      if (outputs.size() == 1) writers[index(outputs[0])] = at;
    }
    steps_ = std::move(steps);
    kernels_ = std::move(kernels);
  }

  // The step that computes input 0 of the node for it alone; -1: none, or other inputs are computed at run time.
  int producing_step(const Node& node, const std::vector<int>& writers) const {
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id != kNoValue && !graph_.value(id).is_constant()) return -1;
    }
    const ValueId id = node.inputs.empty() ? kNoValue : node.inputs[0];
    return id == kNoValue || uses_[index(id)] != 1 ? -1 : writers[index(id)];
  }

  // Lets kernels write right into the output of the kernel that would only copy theirs. Outer ones first: what lies
  // in a part lies in the whole.
  void join_in_place() {
    if (options_.device != DeviceKind::cpu || options_.keep_every_value) return;
    std::vector<int> writers(graph_.values().size(),
                             -1);  // per value: the step that writes it as its only output
    for (const Step& step : steps_) {
      const std::vector<ValueId>& outputs = last_node(graph_, step).outputs;
      if (outputs.size() == 1) writers[index(outputs[0])] = step.index;
    }
    for (std::size_t s = steps_.size(); s-- > 0;) {
      Step& step = steps_[s];
      const std::vector<ValueId>& inputs = node_of(step).inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const ValueId id = inputs[i];
        if (id == kNoValue || writers[index(id)] < 0 || uses_[index(id)] != 1) continue;
        const std::optional<RowPlace> place = kernels_[s]->place_of_input(i);
        if (!place ||
            !kernels_[static_cast<std::size_t>(writers[index(id)])]->write_rows_apart(place->stride))
          continue;
        kernels_[s]->find_in_place(i);
        step.parts.push_back({id, place->offset});
      }
      if (!inputs.empty() && step.parts.size() == inputs.size()) step.kernel_name += ", in place";
    }
  }

  // Frees the constants of a packed node that nobody else has yet to pack, so that a model is never held twice;
  // but for those inputs that kept(i) is true for.
  template <typename Kept>
  void release_constants(const Node& node, Kept kept) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !graph_.value(id).is_constant() || kept(i)) continue;
      if (--uses_[index(id)] == 0) graph_.release_constant(id);
    }
  }
  void release_packed(const Node& node, const Kernel& kernel) {
    release_constants(node, [&](std::size_t i) { return kernel.reads_constant(i); });
  }

  // The CPU's first kernel that takes the node; null when there is none. Its refusals join the others.
  const Candidate* fall_back(const Node& node, Step& step) const {
    const DescribedNode described(graph_, node, options_, true);
    for (const Candidate& candidate : registry_.candidates(node.layer->type(), DeviceKind::cpu)) {
      Refusal reason = excluded(candidate.name) ? Refusal("switched off") : candidate.refuse(described.spec);
      if (!reason) {
        step.on_host = true;
        return &candidate;
      }
      step.refused.push_back({"cpu:" + candidate.name, *reason});
    }
    return nullptr;
  }

  // The candidate's name that the options ask for; empty: none.
  std::string_view preferred(std::string_view type) const {
    const auto& by_type = options_.prefer_for_type;
    const auto found = by_type.find(type);
    return found != by_type.end() ? std::string_view(found->second) : options_.prefer_kernel;
  }

  // "tile" asks for "tile" and for "tile, f16 storage".
  static bool asks_for(std::string_view wish, std::string_view name) {
    return !wish.empty() && name.starts_with(wish) &&
           (name.size() == wish.size() || name.substr(wish.size()).starts_with(", "));
  }

  bool excluded(const std::string& name) const {
    const auto& names = options_.exclude_kernels;
    return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return asks_for(n, name); });
  }

  // The candidate, and in the step how it was chosen; null when all refuse. Without a tuner nobody is asked after
  // the first that accepts: asking can take long where a library builds what it is asked for.
  const Candidate* select_candidate(const std::vector<Candidate>& candidates, const NodeSpec& spec,
                                    Step& step, bool may_time) {
    std::vector<const Candidate*> order = candidate_order(candidates, spec);
    const std::string_view wish = preferred(spec.layer.type());
    std::stable_partition(order.begin(), order.end(),
                          [&](const Candidate* c) { return asks_for(wish, c->name); });
    Tuner* tuner = may_time ? options_.tuner.get() : nullptr;
    std::vector<const Candidate*> accepting;
    for (const Candidate* candidate : order) {
      if (excluded(candidate->name)) {
        step.refused.push_back({candidate->name, "switched off"});
        continue;
      }
      if (candidate->slow_to_make && !accepting.empty()) {
        step.refused.push_back({candidate->name, "not timed behind others: its kernels take long to make"});
        continue;
      }
      if (Refusal reason = candidate->refuse(spec)) {
        step.refused.push_back({candidate->name, *reason});
        continue;
      }
      accepting.push_back(candidate);
      if (tuner == nullptr || asks_for(wish, candidate->name) || !tuner->times(*accepting[0])) break;
    }
    if (accepting.empty()) return nullptr;
    const Candidate* chosen = accepting[0];
    if (tuner != nullptr) {
      Tuner::Selected selected = tuner->choose(options_.device, spec, accepting);
      chosen = selected.candidate;
      step.variant = std::move(selected.variant);
      kernels_.back() = std::move(selected.kernel);
      step.choice = std::move(selected.choice);
    }
    if (asks_for(wish, chosen->name)) step.choice.by = ChosenBy::preference;
    return chosen;
  }

  const Node& node_of(const Step& step) const { return graph_.nodes()[static_cast<std::size_t>(step.node)]; }

  Graph& graph_;
  const Registry& registry_;
  const PlanOptions& options_;
  std::vector<Step> steps_;
  std::vector<const Candidate*> candidates_;      // per step: the one chosen
  std::vector<std::unique_ptr<Kernel>> kernels_;  // per step, until all are made
  std::vector<const Node*> producers_;            // per value: null for inputs and constants
  std::vector<int> consumers_;                    // per value: the last node that reads it, or -1
  std::vector<int>
      uses_;  // per value: node inputs and graph outputs that read it; of a constant: still to be packed
};

}  // namespace

std::vector<Step> choose_kernels(Graph& graph, const Registry& registry, const PlanOptions& options) {
  return StepBuilder(graph, registry, options).build();
}

}  // namespace pipit
