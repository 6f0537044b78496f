#include "engine/plan/described_node.h"

#include <algorithm>

namespace pipit::internal {

namespace {

void widen(TensorDesc& desc) {
  if (is_stored_float(desc.dtype)) desc.dtype = DType::f32;
}

// In INT8 and with stored weights the graph itself says what computes in integers; everything else computes in what
// it is stored as.
Precision arithmetic(Precision precision, const std::vector<const TensorDesc*>& inputs,
                     const std::vector<TensorDesc>& outputs) {
  if (precision == Precision::fp32 || stores_16_bits(precision)) return precision;
  for (const Precision stored : {Precision::fp16, Precision::bf16}) {
    const auto holds = [&](const TensorDesc& desc) { return desc.dtype == stored_type(stored); };
    if (std::ranges::any_of(inputs, [&](const TensorDesc* x) { return x != nullptr && holds(*x); }) ||
        std::ranges::any_of(outputs, holds))
      return stored;
  }
  return Precision::fp32;
}

std::vector<std::shared_ptr<const Tensor>> constants_of(const PlanConstants& constants, const Node& node) {
  std::vector<std::shared_ptr<const Tensor>> tensors;
  for (const ValueId id : node.inputs) tensors.push_back(id == kNoValue ? nullptr : constants.tensor(id));
  return tensors;
}

}  // namespace

DescribedNode::DescribedNode(const PlanSubject& subject, const Node& node, bool on_host)
    : inputs(subject.graph.input_descs(node)),
      outputs(subject.graph.output_descs(node)),
      constants(constants_of(subject.constants, node)),
      spec{*node.layer,
           inputs,
           outputs,
           constants,
           on_host ? Precision::fp32 : arithmetic(subject.options.precision, inputs, outputs),
           subject.options.threads,
           subject.options.gpu} {
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

std::vector<LinkSource> link_sources(const Graph& graph, std::span<const Node* const> chain, const Node& node,
                                     std::vector<ValueId>& outside) {
  using Kind = LinkSource::Kind;
  const auto place = [](const auto& range, auto found) { return static_cast<int>(found - range.begin()); };
  const std::vector<ValueId>& read_first = chain.front()->inputs;
  std::vector<LinkSource> sources;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue || graph.value(id).is_constant()) {
      sources.emplace_back();
      continue;
    }
    const auto from = std::ranges::find(chain, id, [](const Node* n) { return n->outputs[0]; });
    const auto input = std::ranges::find(read_first, id);
    if (from != chain.end()) {
      sources.push_back({Kind::node, place(chain, from)});
    } else if (input != read_first.end()) {
      sources.push_back({Kind::input, place(read_first, input)});
    } else {
      const auto known = std::ranges::find(outside, id);
      sources.push_back({Kind::outside, place(outside, known)});
      if (known == outside.end()) outside.push_back(id);
    }
  }
  return sources;
}

DescribedKernel::DescribedKernel(const PlanSubject& subject, const StepDraft& draft)
    : node_(subject, subject.graph.nodes()[static_cast<std::size_t>(draft.node)], draft.step.on_host) {
  std::vector<const Node*> before{&subject.graph.nodes()[static_cast<std::size_t>(draft.node)]};
  std::vector<ValueId> outside;
  for (const int n : draft.chain) {
    const Node& node = subject.graph.nodes()[static_cast<std::size_t>(n)];
    links_.push_back(std::make_unique<const DescribedNode>(subject, node, false));
    chain_.push_back({&links_.back()->spec, link_sources(subject.graph, before, node, outside)});
    before.push_back(&node);
  }
  for (const int n : draft.followers) {
    followers_.push_back(std::make_unique<const DescribedNode>(
        subject, subject.graph.nodes()[static_cast<std::size_t>(n)], false));
    follower_specs_.push_back(&followers_.back()->spec);
  }
  node_.spec.variant = draft.variant;
  Fusion& fusion = node_.spec.fusion;
  fusion.chain = chain_;
  fusion.followers = follower_specs_;
  if (draft.producer) {
    producer_ = std::make_unique<const DescribedKernel>(subject, *draft.producer);
    fusion.producer = &producer_->spec();
    fusion.producer_candidate = draft.producer->candidate;
  }
  fusion.row_stride = draft.row_stride;
  fusion.in_place = draft.in_place;
  fusion.overwritten = draft.overwritten;
}

}  // namespace pipit::internal
