// Reads convolutions, one a line as recorded.py describes them, and prints what every candidate of a made-up GPU
// estimates: [["candidate", [["variant", "kernel", microseconds or null, [factors]], ...]], ...], in the order in which
// they are asked. The first variant, "", is the one that the candidate chooses itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "engine/plan/candidate_order.h"
#include "layers/gpu_kernels.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"

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
};

Described read(const std::string& line) {
  std::istringstream in(line);
  std::string type, precision;
  in >> type;
  QConvAttributes q;
  Window& window = q.conv.window;
  in >> window.rank;
  for (auto* list : {&window.kernel, &window.stride, &window.dilation, &window.pad_begin, &window.pad_end}) {
    for (std::int64_t& value : *list) in >> value;
  }
  in >> q.conv.groups;
  q.conv.activation.low = real(in), q.conv.activation.high = real(in);
  for (Quantization* of : {&q.x, &q.residual, &q.y}) {
    int dtype = 0;
    of->scale = real(in);
    in >> of->zero_point >> dtype;
    of->dtype = static_cast<DType>(dtype);
  }
  std::size_t inputs = 0;
  in >> precision >> inputs;
  Described described;
  for (std::size_t i = 0; i < inputs; ++i) described.operands.push_back(read_operand(in));
  const std::optional<Operand> output = read_operand(in);
  in >> described.average;
  if (!in || !output) fail("not a convolution: {}", line);
  described.outputs.push_back(output->desc);
  described.precision = precision == "fp16" ? Precision::fp16 : Precision::fp32;
  if (type == Conv::kType) {
    described.layer = std::make_shared<Conv>(q.conv);
  } else {
    q.weight_scales.assign(static_cast<std::size_t>(described.operands.at(1)->desc.shape[0]), 0.01F);
    described.layer = std::make_shared<QConv>(q);
  }
  return described;
}

std::string estimate_of(const Candidate& candidate, NodeSpec spec, const std::string& variant) {
  spec.variant = variant;
  const std::optional<Estimate> e = candidate.estimate(spec);
  if (!e) return {};
  return fmt::format(R"(["{}","{}",{},[{}]])", variant, e->kernel,
                     std::isfinite(e->time) ? fmt::format("{:.6g}", e->time) : "null",
                     fmt::join(e->factors, ","));
}

void print(const Registry& registry, const Described& described) {
  std::vector<const TensorDesc*> inputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (const std::optional<Operand>& operand : described.operands) {
    inputs.push_back(operand ? &operand->desc : nullptr);
    constants.push_back(operand ? operand->constant : nullptr);
  }
  const NodeSpec spec{*described.layer, inputs, described.outputs, constants, described.precision};
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
      for (const std::string& variant : candidate.variants(spec))
        variants.push_back(estimate_of(candidate, spec, variant));
    }
    candidates.push_back(fmt::format(R"(["{}",[{}]])", candidate.name, fmt::join(variants, ",")));
  }
  fmt::print("[{}]\n", fmt::join(candidates, ","));
}

}  // namespace
}  // namespace pipit::internal::test

int main() {
  pipit::internal::Registry registry;
  pipit::internal::register_cuda(registry);
  for (std::string line; std::getline(std::cin, line);)
    pipit::internal::test::print(registry, pipit::internal::test::read(line));
}
