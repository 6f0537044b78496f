#include "models/onnx/read/emitter.h"

#include <algorithm>

#include "layers/evaluate.h"
#include "layers/ops/binary.h"
#include "layers/ops/dequantize_blocks.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/quantize_axis.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"

namespace pipit::internal::onnx {

namespace {

// Element visits that folding may spend per byte that it may produce: weights may pass through several
// nodes, but a small file cannot keep the reader busy for hours.
constexpr double kWorkPerByte = 4;
// Results may be larger than their operands by one kGrowthPart-th of the bytes in total. An element counts as at least
// 4 bytes, since the number of elements sets the time.
constexpr std::size_t kGrowthPart = 4;
constexpr std::size_t kBytesPerElement = 4;

// The cost of pow, exp and similar functions, in visits.
constexpr double kFunction = 8;

// Visits that one element of the output takes.
double visits(const Layer& layer) {
  if (const auto* pool = dynamic_cast<const Pool*>(&layer)) {
    const PoolAttributes& a = pool->attributes();
    return (a.kind == PoolKind::lp ? kFunction : 1) * (a.global ? 1 : static_cast<double>(a.window.taps()));
  }
  if (const auto* lrn = dynamic_cast<const Lrn*>(&layer))
    return kFunction + static_cast<double>(lrn->attributes().size);
  const auto* binary = dynamic_cast<const Binary*>(&layer);
  const bool function = dynamic_cast<const Unary*>(&layer) != nullptr || layer.type() == Softmax::kType ||
                        (binary != nullptr && binary->attributes().kind == BinaryKind::pow);
  return function ? kFunction : 1;
}

// Elements read and written and multiply-accumulates.
double fold_work(const Layer& layer, const std::vector<const TensorDesc*>& inputs,
                 const std::vector<TensorDesc>& outputs) {
  double elements = 0;
  for (const TensorDesc* input : inputs) {
    if (input != nullptr) elements += static_cast<double>(input->elements());
  }
  for (const TensorDesc& output : outputs) elements += visits(layer) * static_cast<double>(output.elements());
  return elements + static_cast<double>(layer.work(inputs, outputs).macs);
}

std::size_t size_of(const TensorDesc& desc) {
  return std::max(desc.bytes(), kBytesPerElement * static_cast<std::size_t>(desc.elements()));
}

}  // namespace

Emitter::Emitter(std::size_t max_folded_bytes)
    : max_bytes_(max_folded_bytes),
      bytes_left_(max_folded_bytes),
      growth_left_(max_folded_bytes / kGrowthPart),
      work_left_(kWorkPerByte * static_cast<double>(max_folded_bytes)) {}

void Emitter::charge(const TensorDesc& desc) {
  if (desc.bytes() > bytes_left_) {
    fail("the constant result {} takes {} bytes; of {} bytes for computed constants {} are left", desc.str(),
         desc.bytes(), max_bytes_, bytes_left_);
  }
  bytes_left_ -= desc.bytes();
}

void Emitter::charge_growth(const std::vector<const TensorDesc*>& inputs,
                            const std::vector<TensorDesc>& outputs) {
  std::size_t before = 0;
  for (const TensorDesc* input : inputs) before += input == nullptr ? 0 : size_of(*input);
  std::size_t after = 0;
  for (const TensorDesc& output : outputs) after += size_of(output);
  const std::size_t growth = after - std::min(before, after);
  if (growth > growth_left_) {
    fail("the constant result {} is made of much less: of {} bytes by which constants may grow {} are left",
         outputs.at(0).str(), max_bytes_ / kGrowthPart, growth_left_);
  }
  growth_left_ -= growth;
}

std::vector<ValueId> Emitter::emit(std::string name, LayerPtr layer, std::vector<ValueId> inputs) {
  std::vector<const TensorDesc*> descs;
  bool all_constant = true;
  bool all_known = true;
  for (const ValueId id : inputs) {
    descs.push_back(id == kNoValue ? nullptr : &desc(id));
    const bool constant = id == kNoValue || builder_.value(id).is_constant();
    all_constant = all_constant && constant;
    all_known = all_known && (constant || dequantized_.contains(id));
  }
  // Inferred here as well as by the builder, so that errors come without the builder's prefix.
  const std::vector<TensorDesc> outputs = layer->infer(descs);
  const std::string_view type = layer->type();
  if (all_constant &&
      (type == Dequantize::kType || type == DequantizeAxis::kType || type == DequantizeBlocks::kType)) {
    const ValueId integers = inputs.at(0);
    // It may be folded later, so its size counts, except for the first Dequantize of integers that the file holds.
    if (!dequantized_once_.insert(integers).second || computed_.contains(integers)) charge(outputs.at(0));
    std::vector<ValueId> ids = builder_.add(std::move(name), layer, std::move(inputs));
    dequantized_.emplace(ids.at(0), Dequantized{std::move(layer), integers});
    return ids;
  }
  // A product of known operands becomes a constant, so no kernel needs the integers.
  const bool is_product = layer->traits().family != LayerFamily::other;
  if (!all_constant && !(all_known && is_product))
    return builder_.add(std::move(name), std::move(layer), std::move(inputs));
  for (const TensorDesc& output : outputs) charge(output);
  charge_growth(descs, outputs);
  const double work = fold_work(*layer, descs, outputs);
  if (work > work_left_) {
    fail("computing this constant ahead of time visits {:.3g} elements; {:.3g} are left", work, work_left_);
  }
  work_left_ -= work;
  return fold(name, *layer, inputs, outputs);
}

std::vector<ValueId> Emitter::fold(const std::string& name, const Layer& layer,
                                   const std::vector<ValueId>& inputs,
                                   const std::vector<TensorDesc>& outputs) {
  std::vector<std::shared_ptr<const Tensor>> operands;
  for (const ValueId id : inputs) {
    operands.push_back(id == kNoValue ? nullptr : known(id));
  }
  std::vector<Tensor> results = evaluate(layer, operands);
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ids.push_back(constant(i == 0 ? name : fmt::format("{}:{}", name, i), std::move(results.at(i))));
    computed_.insert(ids.back());
  }
  return ids;
}

std::shared_ptr<const Tensor> Emitter::known(ValueId id) const {
  const Value& value = builder_.value(id);
  if (value.constant) return value.constant;
  const auto found = dequantized_.find(id);
  if (found == dequantized_.end()) return nullptr;
  const std::shared_ptr<const Tensor> integers = builder_.value(found->second.integers).constant;
  return std::make_shared<const Tensor>(std::move(evaluate(*found->second.layer, {&integers, 1}).at(0)));
}

}  // namespace pipit::internal::onnx
