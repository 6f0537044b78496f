// Reads convolutions and chains of layers, one a line as recorded.py describes them, and prints what every candidate of
// a made-up GPU estimates: [["candidate", [["variant", "kernel", microseconds or null, [factors]], ...]], ...], in the
// order in which they are asked. The first variant, "", is the one that the candidate chooses itself. Of a chain:
// [["", "kernel", microseconds, [factors]], [[node, "candidate", microseconds], ...]], the latter of the kernels that
// compute its nodes otherwise.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "engine/plan/candidate_order.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/gpu_kernels.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"
#include "layers/ops/unary.h"

namespace pipit::internal::test {
namespace {

// Where only the kind of a number is recorded, one that layers may have.
float real(std::istream& in) {
  std::string text;
  in >> text;
  if (text == "inf") return std::numeric_limits<float>::infinity();
  if (text == "-inf") return -std::numeric_limits<float>::infinity();
  return text == "r" ? 0.05F : std::stof(text);
}

DType dtype_named(std::string_view name) {
  for (const DType type : {DType::f32, DType::f16, DType::i8, DType::u8, DType::i32}) {
    if (dtype_name(type) == name) return type;
  }
  fail("a convolution of {}", name);
}

struct Operand {
  TensorDesc desc;
  std::shared_ptr<const Tensor> constant;
};

// Small weights that are not zero: INT8 kernels that want small sums take them, and none is left out.
std::optional<Operand> read_operand(std::istream& in) {
  std::string present, type, layout;
  in >> present;
  if (present == "-") return std::nullopt;
  bool constant = false;
  std::size_t rank = 0;
  in >> type >> layout >> constant >> rank;
  std::vector<std::int64_t> extents(rank);
  for (std::int64_t& extent : extents) in >> extent;
  Operand operand{TensorDesc{Shape(extents), dtype_named(type),
                             layout == "nhwc" ? Layout::channels_last : Layout::row_major},
                  {}};
  if (!constant) return operand;
  auto tensor = std::make_shared<Tensor>(operand.desc);
  if (operand.desc.dtype == DType::f32) std::ranges::fill(tensor->values<float>(), 0.01F);
  if (operand.desc.dtype == DType::i8) std::ranges::fill(tensor->values<std::int8_t>(), std::int8_t{1});
  if (operand.desc.dtype == DType::i32) std::ranges::fill(tensor->values<std::int32_t>(), 0);
  operand.constant = std::move(tensor);
  return operand;
}

struct Described {
  std::shared_ptr<const Layer> layer;
  std::vector<std::optional<Operand>> operands;
  std::vector<TensorDesc> outputs;
  Precision precision = Precision::fp32;
  bool average = false;  ///< the global average that follows is fused
  std::vector<TensorDesc> inputs;
  std::vector<const TensorDesc*> present;  ///< of these
  std::vector<std::shared_ptr<const Tensor>> constants;

  NodeSpec spec() const { return {*layer, present, outputs, constants, precision}; }
};

void read_window(std::istream& in, Window& window) {
  in >> window.rank;
  for (auto* list : {&window.kernel, &window.stride, &window.dilation, &window.pad_begin, &window.pad_end}) {
    for (std::int64_t& value : *list) in >> value;
  }
}

Quantization read_quantization(std::istream& in) {
  Quantization of;
  int dtype = 0;
  of.scale = real(in);
  in >> of.zero_point >> dtype;
  of.dtype = static_cast<DType>(dtype);
  return of;
}

PoolAttributes read_pool(std::istream& in) {
  PoolAttributes pool;
  int kind = 0;
  in >> kind;
  pool.kind = static_cast<PoolKind>(kind);
  read_window(in, pool.window);
  in >> pool.window.ceil_mode >> pool.global;
  return pool;
}

UnaryAttributes read_function(std::istream& in) {
  int kind = 0;
  in >> kind;
  UnaryAttributes function{static_cast<UnaryKind>(kind), 0, 0};
  function.alpha = real(in), function.beta = real(in);
  return function;
}

// Of a convolution; the scales of its weights are made for its operands.
QConvAttributes read_conv(std::istream& in) {
  QConvAttributes q;
  read_window(in, q.conv.window);
  in >> q.conv.groups;
  q.conv.activation.low = real(in), q.conv.activation.high = real(in);
  for (Quantization* of : {&q.x, &q.residual, &q.y}) *of = read_quantization(in);
  return q;
}

Described read(std::istream& in) {
  std::string type, precision;
  in >> type;
  Described described;
  std::optional<QConvAttributes> conv;
  if (type == Conv::kType || type == QConv::kType) {
    conv = read_conv(in);
  } else if (type == Pool::kType) {
    described.layer = std::make_shared<Pool>(read_pool(in));
  } else if (type == QAveragePool::kType) {
    QAveragePoolAttributes a{read_pool(in), {}, {}};
    a.x = read_quantization(in), a.y = read_quantization(in);
    described.layer = std::make_shared<QAveragePool>(a);
  } else if (type == Unary::kType) {
    described.layer = std::make_shared<Unary>(read_function(in));
  } else if (type == QUnary::kType) {
    QUnaryAttributes a{read_function(in), {}, {}};
    a.x = read_quantization(in), a.y = read_quantization(in);
    described.layer = std::make_shared<QUnary>(a);
  } else {
    fail("a layer of type {}", type);
  }
  std::size_t inputs = 0;
  in >> precision >> inputs;
  for (std::size_t i = 0; i < inputs; ++i) described.operands.push_back(read_operand(in));
  const std::optional<Operand> output = read_operand(in);
  in >> described.average;
  if (!in || !output) fail("not a layer of type {}", type);
  described.outputs.push_back(output->desc);
  described.precision = precision == "fp16" ? Precision::fp16 : Precision::fp32;
  if (type == Conv::kType) described.layer = std::make_shared<Conv>(conv->conv);
  if (type == QConv::kType) {
    conv->weight_scales.assign(static_cast<std::size_t>(described.operands.at(1)->desc.shape[0]), 0.01F);
    described.layer = std::make_shared<QConv>(*conv);
  }
  for (const std::optional<Operand>& operand : described.operands) {
    described.inputs.push_back(operand ? operand->desc : TensorDesc{});
    described.constants.push_back(operand ? operand->constant : nullptr);
  }
  for (std::size_t i = 0; i < described.operands.size(); ++i)
    described.present.push_back(described.operands[i] ? &described.inputs[i] : nullptr);
  return described;
}

// null: its kernel has no constants.
std::string written(double time) {
  return std::isfinite(time) ? fmt::format("{:.6g}", time) : "null";
}

std::string estimate_of(const Candidate& candidate, NodeSpec spec, const std::string& variant) {
  spec.variant = variant;
  const std::optional<Estimate> e = candidate.estimate(spec);
  if (!e) return {};
  return fmt::format(R"(["{}","{}",{},[{}]])", variant, e->kernel, written(e->time),
                     fmt::join(e->factors, ","));
}

// Those that are worth timing, then all others of "implicit_gemm".
std::vector<std::string> all_variants(const Candidate& candidate, const NodeSpec& spec) {
  std::vector<std::string> names = candidate.variants(spec);
  if (candidate.name != "implicit_gemm") return names;
  for (const cuda::ConvTile& size : cuda::kConvTiles) {
    for (int splits = 1; splits <= cuda::kMaxSplits; splits *= 2) {
      for (const bool overlap : {false, true}) {
        const std::string name = cuda::ConvVariant{{size.rows, size.columns, splits}, overlap}.name();
        NodeSpec named = spec;
        named.variant = name;
        try {
          candidate.estimate(named);
        } catch (const Error&) {
          continue;  // there is no such variant
        }
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

void print(const Registry& registry, const Described& described) {
  const NodeSpec spec = described.spec();
  const TensorDesc& y = described.outputs[0];
  const Pool average(PoolAttributes{.kind = PoolKind::average, .global = true});
  const TensorDesc* const average_inputs[] = {&y};
  const TensorDesc means{Shape{y.shape[0], y.shape[1], 1, 1}, y.dtype};
  const std::shared_ptr<const Tensor> no_constants[] = {nullptr};
  const NodeSpec follower{average, average_inputs, {&means, 1}, no_constants, described.precision};
  const NodeSpec* const followers[] = {&follower};
  std::vector<std::string> candidates;
  for (const OrderedCandidate& place : candidate_order(registry, DeviceKind::cuda, spec)) {
    if (!place.time) continue;
    const Candidate& candidate = *place.candidate;
    if (described.average) {
      if (!candidate.fusions.epilogue || !candidate.fusions.epilogue(spec, follower)) continue;
      NodeSpec fused = spec;
      fused.fusion.followers = followers;
      candidates.push_back(fmt::format(R"(["{}",[{}]])", candidate.name, estimate_of(candidate, fused, "")));
      continue;
    }
    std::vector<std::string> variants{estimate_of(candidate, spec, "")};
    const bool library = candidate.name == "cudnn" || candidate.name == "im2col_gemm";
    if (candidate.variants && !library) {
      for (const std::string& variant : all_variants(candidate, spec))
        variants.push_back(estimate_of(candidate, spec, variant));
    }
    candidates.push_back(fmt::format(R"(["{}",[{}]])", candidate.name, fmt::join(variants, ",")));
  }
  fmt::print("[{}]\n", fmt::join(candidates, ","));
}

LinkSource read_source(std::istream& in) {
  std::string text;
  in >> text;
  if (text == "-") return {};
  using Kind = LinkSource::Kind;
  return {text[0] == 'n'   ? Kind::node
          : text[0] == 'i' ? Kind::input
                           : Kind::outside,
          std::stoi(text.substr(1))};
}

// The estimate of the chain, and those of the kernels that compute its nodes otherwise.
void print_chain(const Registry& registry, std::istream& in) {
  std::string kernel;
  std::size_t count = 0;
  in >> kernel >> count;
  std::vector<std::unique_ptr<Described>> nodes;
  std::vector<NodeSpec> specs;
  std::vector<ChainLink> links;
  for (std::size_t n = 0; n < count; ++n) {
    nodes.push_back(std::make_unique<Described>(read(in)));
    specs.push_back(nodes.back()->spec());
    links.push_back({nullptr, std::vector<LinkSource>(nodes.back()->operands.size())});
    for (LinkSource& source : links.back().sources) source = read_source(in);
  }
  for (std::size_t n = 0; n < count; ++n) links[n].node = &specs[n];
  NodeSpec chained = specs.at(0);
  chained.fusion.chain = std::span(links).subspan(1);
  std::string together = "null";
  for (const Candidate& candidate : registry.candidates(chained.layer.type(), DeviceKind::cuda)) {
    if (candidate.name != kernel || !candidate.fusions.chain(specs[0], chained.fusion.chain)) continue;
    together = estimate_of(candidate, chained, "");
  }
  std::vector<std::string> apart;
  for (std::size_t n = 0; n < count;) {
    std::vector<const NodeSpec*> followers;
    for (std::size_t next = n + 1; next < count && links[next].sources.size() == 1 &&
                                   links[next].sources[0].kind == LinkSource::Kind::node &&
                                   links[next].sources[0].index == static_cast<int>(next) - 1;
         ++next)
      followers.push_back(&specs[next]);
    OrderedCandidate first;
    for (const OrderedCandidate& place : candidate_order(registry, DeviceKind::cuda, specs[n], followers)) {
      if (place.time && (!first.time || *place.time < *first.time)) first = place;
    }
    if (!first.time) fail("no kernel computes node {} of a {}", n, kernel);
    const std::size_t fused =
        fused_followers(registry, DeviceKind::cuda, *first.candidate, specs[n], followers);
    NodeSpec alone = specs[n];
    alone.fusion.followers = std::span<const NodeSpec* const>(followers).first(fused);
    apart.push_back(fmt::format(R"([{},"{}",{}])", n, first.candidate->name,
                                written(first.candidate->estimate(alone)->time)));
    n += 1 + fused;
  }
  fmt::print("[{},[{}]]\n", together, fmt::join(apart, ","));
}

}  // namespace
}  // namespace pipit::internal::test

int main() {
  pipit::internal::Registry registry;
  pipit::internal::register_cuda(registry);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    if (line.starts_with("chain ")) {
      in.ignore(6);
      pipit::internal::test::print_chain(registry, in);
    } else {
      pipit::internal::test::print(registry, pipit::internal::test::read(in));
    }
  }
}
