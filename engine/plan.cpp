#include "engine/plan.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "engine/device.h"
#include "engine/host_memory.h"
#include "engine/memory_planner.h"

namespace pipit {

// Builds a Plan: the choice of kernels, the kernels, what they absorb, buffers with their live ranges, placements.
class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, const Registry& registry) : plan_(plan), graph_(plan.graph_), registry_(registry) {}

  void build() {
    choose_kernels();
    create_kernels();
    absorb_followers();
    find_buffers();
    place();
    release_packed_constants();
  }

 private:
  static constexpr int kNotInArena = -1;

  bool is_view(const Node& node) const {
    return node.outputs.size() == 1 && !node.inputs.empty() && node.inputs[0] != kNoValue &&
           node.layer->is_view(graph_.value(node.inputs[0]).desc, graph_.value(node.outputs[0]).desc);
  }

  void choose_kernels() {
    std::string refused;
    readers_ = graph_.use_counts();
    find_producers();
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (is_view(node)) {
        ++plan_.view_nodes_;
        continue;
      }
      Step step;
      step.index = static_cast<int>(plan_.steps_.size());
      step.node = static_cast<int>(n);
      refused += choose_kernel(node, step);
      if (kernels_.back()) release_packed(node, *kernels_.back());
      plan_.steps_.push_back(std::move(step));
    }
    if (!refused.empty()) {
      fail_unsupported("no kernel on {} in {} for these nodes:{}", device_name(plan_.options_.device),
                       precision_name(plan_.options_.precision), refused);
    }
  }

  // What a candidate is told about a node; `constants` keeps those alive that are being packed. A step on the host
  // of a GPU plan computes in fp32, whatever its operands are stored as.
  struct Described {
    std::vector<TensorDesc> widened;  // on the host: what `inputs` points to
    std::vector<const TensorDesc*> inputs;
    std::vector<TensorDesc> outputs;
    std::vector<std::shared_ptr<const Tensor>> constants;
    NodeSpec spec;

    Described(const Graph& graph, const Node& node, const PlanOptions& options, bool on_host)
        : inputs(graph.input_descs(node)),
          outputs(graph.output_descs(node)),
          constants(constants_of(graph, node)),
          spec{*node.layer,
               inputs,
               outputs,
               constants,
               on_host ? Precision::fp32 : arithmetic(options.precision, inputs, outputs),
               options.threads,
               options.gpu} {
      if (!on_host) return;
      widened.reserve(inputs.size());
      for (const TensorDesc*& input : inputs) {
        if (input == nullptr) continue;
        widened.push_back(*input);
        widen(widened.back());
        input = &widened.back();
      }
      for (TensorDesc& output : outputs) widen(output);
    }
    Described(const Described&) = delete;
    Described& operator=(const Described&) = delete;

    static void widen(TensorDesc& desc) {
      if (desc.dtype == DType::f16) desc.dtype = DType::f32;
    }
    // In INT8 the graph itself says what computes in integers; everything else computes in what it is stored as.
    static Precision arithmetic(Precision precision, const std::vector<const TensorDesc*>& inputs,
                                const std::vector<TensorDesc>& outputs) {
      if (precision != Precision::int8) return precision;
      const auto half = [](const TensorDesc& desc) { return desc.dtype == DType::f16; };
      const bool reads = std::any_of(inputs.begin(), inputs.end(),
                                     [&](const TensorDesc* input) { return input != nullptr && half(*input); });
      return reads || std::any_of(outputs.begin(), outputs.end(), half) ? Precision::fp16 : Precision::fp32;
    }
    static std::vector<std::shared_ptr<const Tensor>> constants_of(const Graph& graph, const Node& node) {
      std::vector<std::shared_ptr<const Tensor>> constants;
      for (const ValueId id : node.inputs) {
        constants.push_back(id == kNoValue ? nullptr : graph.value(id).constant);
      }
      return constants;
    }
  };

  // Fills the step but for the kernel, unless the tuner made it; returns a line for the error message when every
  // candidate refuses.
  std::string choose_kernel(const Node& node, Step& step) {
    const std::vector<Candidate>& candidates =
        registry_.candidates(node.layer->type(), plan_.options_.device);
    const Described described(graph_, node, plan_.options_, false);
    kernels_.emplace_back();
    const Candidate* candidate = select_candidate(candidates, described.spec, step, !is_follower(node));
    if (candidate == nullptr && plan_.options_.device != DeviceKind::cpu && plan_.options_.allow_fallback)
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

  // Creating is packing, mostly: several nodes at once on the CPU. Whichever fails first, the error reported is that
  // of the earliest node.
  void create_kernels() {
    std::mutex mutex;
    if (plan_.options_.device != DeviceKind::cpu) {
      for (const Step& step : plan_.steps_) create(step, mutex);
      return;
    }
    std::vector<std::exception_ptr> errors(plan_.steps_.size());
    shared_pool(plan_.options_.threads)->parallel_for(std::ssize(plan_.steps_), [&](std::int64_t s, int) {
      try {
        const Step& step = plan_.steps_[static_cast<std::size_t>(s)];
        if (!is_follower(node_of(step))) create(step, mutex);
      } catch (...) {
        errors[static_cast<std::size_t>(s)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  // `mutex` guards the graph's constants.
  void create(const Step& step, std::mutex& mutex) {
    std::unique_ptr<Kernel>& kernel = kernels_[static_cast<std::size_t>(step.index)];
    if (kernel) return;  // the tuner made it
    const Node& node = node_of(step);
    const Candidate& candidate = *candidates_[static_cast<std::size_t>(step.index)];
    try {
      std::unique_lock lock(mutex);
      Described described(graph_, node, plan_.options_, step.on_host);
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

  void find_producers() {
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

  // Whether the kernel before the node may compute it as well: it is element-wise (may run in place) in what only that
  // kernel computes and only it reads; its other inputs are constants.
  bool is_follower(const Node& node) const {
    if (plan_.options_.device != DeviceKind::cpu || plan_.options_.keep_every_value) return false;
    if (node.outputs.size() != 1 || is_view(node)) return false;
    bool follows = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || graph_.value(id).is_constant()) continue;
      const Node* producer = producers_[index(id)];
      follows = !follows && producer != nullptr && producer->outputs.size() == 1 && !is_view(*producer) &&
                uses_[index(id)] == 1 && node.layer->may_run_in_place(static_cast<int>(i)) &&
                graph_.value(id).desc == graph_.value(node.outputs[0]).desc;
      if (!follows) return false;
    }
    return follows;
  }

  // Offers the nodes that follow to every kernel, one after the other; steps of those that it takes are dropped.
  void absorb_followers() {
    std::vector<bool> absorbed(graph_.nodes().size(), false);
    std::vector<Step> steps;
    std::mutex mutex;
    for (Step& step : plan_.steps_) {
      if (absorbed[static_cast<std::size_t>(step.node)]) continue;
      create(step, mutex);
      std::unique_ptr<Kernel>& kernel = kernels_[static_cast<std::size_t>(step.index)];
      for (const Node* last = &node_of(step); last->outputs.size() == 1;) {
        const int n = consumers_[index(last->outputs[0])];
        if (n < 0 || !is_follower(graph_.nodes()[static_cast<std::size_t>(n)])) break;
        last = &graph_.nodes()[static_cast<std::size_t>(n)];
        if (!kernel->absorb(Described(graph_, *last, plan_.options_, false).spec)) break;
        step.absorbed.push_back(n);
        absorbed[static_cast<std::size_t>(n)] = true;
        release_absorbed(*last);
      }
      step.kernel = std::move(kernel);
      step.index = static_cast<int>(steps.size());
      steps.push_back(std::move(step));
    }
    plan_.steps_ = std::move(steps);
  }

  // The kernel keeps what it needs of an absorbed node's constants.
  void release_absorbed(const Node& node) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (--readers_[index(id)] == 0 && graph_.value(id).constant) graph_.release_constant(id);
    }
  }

  // Frees constants as soon as every reader has packed them, so that a model is never held twice.
  void release_packed(const Node& node, const Kernel& kernel) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || kernel.reads_constant(i)) continue;
      if (--readers_[index(id)] == 0 && graph_.value(id).constant) graph_.release_constant(id);
    }
  }

  // The CPU's first kernel that takes the node; null when there is none. Its refusals join the others.
  const Candidate* fall_back(const Node& node, Step& step) const {
    const Described described(graph_, node, plan_.options_, true);
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
    const auto& by_type = plan_.options_.prefer_for_type;
    const auto found = by_type.find(type);
    return found != by_type.end() ? std::string_view(found->second) : plan_.options_.prefer_kernel;
  }

  // "tile" asks for "tile" and for "tile, f16 storage".
  static bool asks_for(std::string_view wish, std::string_view name) {
    return !wish.empty() && name.starts_with(wish) &&
           (name.size() == wish.size() || name.substr(wish.size()).starts_with(", "));
  }

  bool excluded(const std::string& name) const {
    const auto& names = plan_.options_.exclude_kernels;
    return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return asks_for(n, name); });
  }

  // The candidate, and in the step how it was chosen; null when all refuse. Without a tuner nobody is asked after
  // the first that accepts: asking can take long where a library builds what it is asked for.
  const Candidate* select_candidate(const std::vector<Candidate>& candidates, const NodeSpec& spec,
                                    Step& step, bool may_time) {
    std::vector<const Candidate*> order;
    for (const Candidate& c : candidates) order.push_back(&c);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      if (order[i]->yields && order[i]->yields(spec)) {
        std::swap(order[i], order[i + 1]);
        ++i;
      }
    }
    const std::string_view wish = preferred(spec.layer.type());
    std::stable_partition(order.begin(), order.end(),
                          [&](const Candidate* c) { return asks_for(wish, c->name); });
    Tuner* tuner = may_time ? plan_.options_.tuner.get() : nullptr;
    std::vector<const Candidate*> accepting;
    for (const Candidate* candidate : order) {
      if (excluded(candidate->name)) {
        step.refused.push_back({candidate->name, "switched off"});
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
      Tuner::Selected selected = tuner->choose(plan_.options_.device, spec, accepting);
      chosen = selected.candidate;
      step.variant = std::move(selected.variant);
      kernels_.back() = std::move(selected.kernel);
      step.choice = std::move(selected.choice);
    }
    if (asks_for(wish, chosen->name)) step.choice.by = ChosenBy::preference;
    return chosen;
  }

  // First resolves views to the value whose memory they show, then the last step that needs each buffer, then
  // lets nodes write over inputs that die with them.
  void find_buffers() {
    const std::size_t count = graph_.values().size();
    root_.resize(count);
    for (std::size_t v = 0; v < count; ++v) root_[v] = static_cast<ValueId>(v);
    for (const Node& node : graph_.nodes()) {
      if (is_view(node)) root_[index(node.outputs[0])] = root_[index(node.inputs[0])];
    }
    const int end = static_cast<int>(plan_.steps_.size());
    std::vector<int> last_use(count, -1);
    for (const Step& step : plan_.steps_) {
      for (const ValueId id : plan_.last_node(step).outputs) last_use[index(id)] = step.index;
      for (const ValueId id : node_of(step).inputs) {
        if (id != kNoValue) last_use[root_index(id)] = step.index;
      }
    }
    for (const ValueId id : graph_.outputs()) last_use[root_index(id)] = end;

    buffer_.assign(count, kNotInArena);
    for (const Step& step : plan_.steps_) {
      const std::vector<ValueId>& outputs = plan_.last_node(step).outputs;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const std::size_t out = index(outputs[o]);
        plan_.activation_bytes_ += graph_.values()[out].desc.bytes();
        const int reused = o == 0 ? reusable_buffer(node_of(step), step.index) : kNotInArena;
        if (reused != kNotInArena) {
          buffer_[out] = reused;
          buffers_[static_cast<std::size_t>(reused)].last = last_use[out];
        } else {
          buffer_[out] = static_cast<int>(buffers_.size());
          buffers_.push_back({graph_.values()[out].desc.bytes(), step.index, last_use[out]});
        }
      }
    }
  }

  // The buffer of an input that output 0 may overwrite: it dies here, has the same desc, and no other operand
  // sees it under another desc.
  int reusable_buffer(const Node& node, int step) const {
    const TensorDesc& out = graph_.value(node.outputs[0]).desc;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !node.layer->may_run_in_place(static_cast<int>(i))) continue;
      const int buffer = buffer_[root_index(id)];
      if (buffer == kNotInArena || !(graph_.value(id).desc == out)) continue;
      if (buffers_[static_cast<std::size_t>(buffer)].last != step) continue;
      const bool seen_otherwise = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId other) {
        return other != kNoValue && buffer_[root_index(other)] == buffer &&
               !(graph_.value(other).desc == out);
      });
      if (!seen_otherwise) return buffer;
    }
    return kNotInArena;
  }

  void place() {
    std::vector<LiveRange> ranges = buffers_;
    // Libraries on a GPU want their workspace on 256 bytes: room to move it there.
    const std::size_t alignment = plan_.options_.device == DeviceKind::cuda ? 256 : kArenaAlignment;
    for (const Step& step : plan_.steps_) {
      // The scratch of a step on the host is its session's.
      const std::size_t bytes = step.on_host ? 0 : step.kernel->scratch_bytes();
      ranges.push_back({bytes == 0 ? 0 : bytes + alignment - kArenaAlignment, step.index, step.index});
    }
    const MemoryPlan memory = plan_memory(ranges);
    const std::size_t limit = plan_.options_.max_arena_bytes != 0         ? plan_.options_.max_arena_bytes
                              : plan_.options_.device == DeviceKind::cuda ? gpu_memory(plan_.options_.gpu)
                                                                          : available_host_memory();
    if (memory.arena_bytes > limit) {
      fail("the activations need {:.1f} MiB but at most {:.1f} MiB may be used; use a smaller batch or input",
           static_cast<double>(memory.arena_bytes) / 1048576.0, static_cast<double>(limit) / 1048576.0);
    }
    plan_.arena_bytes_ = memory.arena_bytes;
    plan_.peak_live_bytes_ = peak_live_bytes(ranges);
    for (Step& step : plan_.steps_) {
      const Node& node = node_of(step);
      for (const ValueId id : node.inputs) step.inputs.push_back(placement(id, memory));
      for (const ValueId id : plan_.last_node(step).outputs) step.outputs.push_back(placement(id, memory));
      const std::size_t offset = memory.offsets[buffers_.size() + static_cast<std::size_t>(step.index)];
      step.scratch_offset = (offset + alignment - 1) / alignment * alignment;
    }
    for (const ValueId id : graph_.outputs()) plan_.outputs_.push_back(placement(id, memory));
  }

  Placement placement(ValueId id, const MemoryPlan& memory) const {
    Placement p;
    if (id == kNoValue) return p;
    p.desc = graph_.value(id).desc;
    const ValueId root = root_[index(id)];
    const int buffer = buffer_[index(root)];
    if (buffer != kNotInArena) {
      p.kind = Placement::Kind::arena;
      p.offset = memory.offsets[static_cast<std::size_t>(buffer)];
    } else if (graph_.value(root).is_constant()) {
      p.kind = Placement::Kind::constant;
      p.constant = graph_.value(root).constant;
    } else {
      const auto& inputs = graph_.inputs();
      p.kind = Placement::Kind::input;
      p.input = static_cast<int>(std::find(inputs.begin(), inputs.end(), root) - inputs.begin());
    }
    return p;
  }

  void release_packed_constants() {
    std::vector<bool> read(graph_.values().size(), false);
    for (const ValueId id : graph_.outputs()) read[root_index(id)] = true;
    for (Step& step : plan_.steps_) {
      const Node& node = node_of(step);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        if (step.kernel->reads_constant(i)) {
          read[root_index(node.inputs[i])] = true;
        } else {
          step.inputs[i].constant.reset();
        }
      }
    }
    for (std::size_t v = 0; v < read.size(); ++v) {
      if (!read[v] && graph_.values()[v].constant) graph_.release_constant(static_cast<ValueId>(v));
    }
  }

  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
  std::size_t root_index(ValueId id) const { return index(root_[index(id)]); }
  const Node& node_of(const Step& step) const { return graph_.nodes()[static_cast<std::size_t>(step.node)]; }

  Plan& plan_;
  Graph& graph_;
  const Registry& registry_;
  std::vector<const Candidate*> candidates_;      // per step: the one chosen
  std::vector<std::unique_ptr<Kernel>> kernels_;  // per step, until all are made
  std::vector<const Node*> producers_;            // per value: null for inputs and constants
  std::vector<int> consumers_;                    // per value: the last node that reads it, or -1
  std::vector<int> uses_;                         // per value: node inputs and outputs that read it
  std::vector<ValueId> root_;                     // per value: itself, or the value it is a view of
  std::vector<int> buffer_;                       // per root value
  std::vector<int> readers_;                      // per value: node inputs and outputs that may still read it
  // Pieces of arena that one or more values share, one after the other (in place) or as views.
  std::vector<LiveRange> buffers_;
};

std::shared_ptr<const Plan> Plan::build(Graph graph, const Registry& registry, const PlanOptions& options) {
  const std::shared_ptr<Plan> plan(new Plan());
  plan->graph_ = std::move(graph);
  plan->options_ = options;
  if (plan->options_.threads == 0) plan->options_.threads = available_cpus();
  if (options.device == DeviceKind::cuda) select_gpu(options.gpu);
  PlanBuilder(*plan, registry).build();
  plan->options_.tuner.reset();
  return plan;
}

}  // namespace pipit
