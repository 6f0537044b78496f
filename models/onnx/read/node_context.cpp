#include "models/onnx/read/node_context.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "layers/evaluate.h"
#include "layers/ops/cast.h"

namespace pipit::internal::onnx {

namespace {

std::shared_ptr<const Tensor> cast(const std::shared_ptr<const Tensor>& tensor, DType to) {
  if (tensor->desc().dtype == to) return tensor;
  return std::make_shared<const Tensor>(std::move(evaluate(Cast(CastAttributes{to}), {&tensor, 1}).at(0)));
}

}  // namespace

void ImportContext::note_type(ValueId id, std::int32_t data_type) {
  if (narrow_integer(data_type)) narrow.emplace(id, data_type);
}

std::int32_t ImportContext::narrow_type(ValueId id) const {
  const auto found = narrow.find(id);
  return found == narrow.end() ? 0 : found->second;
}

ValueId Sequences::add(std::vector<ValueId> values) {
  constexpr std::size_t kMaxLength = 4096, kMaxValues = std::size_t{1} << 20;
  values_ += values.size();
  if (values.size() > kMaxLength)
    fail_unsupported("a sequence of {} values; at most {} are supported", values.size(), kMaxLength);
  if (values_ > kMaxValues) fail_unsupported("the model's sequences have more than {} values", kMaxValues);
  lists_.push_back(std::move(values));
  return kFirst - static_cast<ValueId>(lists_.size() - 1);
}

std::int32_t ImportContext::narrow_operand(const std::string& op,
                                           const std::vector<ValueId>& operands) const {
  constexpr std::string_view kMovement[] = {"Concat",  "Expand",    "Flatten", "Gather",  "Identity",
                                            "Reshape", "Slice",     "Split",   "Squeeze", "Transpose",
                                            "Tile",    "Unsqueeze", "Dropout", "Pad"};
  constexpr std::string_view kTaking[] = {"Cast",
                                          "CastLike",
                                          "DequantizeLinear",
                                          "QuantizeLinear",
                                          "Shape",
                                          "Size",
                                          "EyeLike",
                                          "ConstantOfShape",
                                          "com.microsoft::DequantizeLinear",
                                          "com.microsoft::QuantizeLinear"};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int32_t type = operands[i] < 0 ? 0 : narrow_type(operands[i]);
    if (type == 0 || std::ranges::find(kTaking, op) != std::end(kTaking)) continue;
    if (std::ranges::find(kMovement, op) != std::end(kMovement)) return type;
    fail_unsupported(
        "input {} is {}; such integers are taken by QuantizeLinear, DequantizeLinear, Cast and operators "
        "that "
        "move elements",
        i, narrow_integer(type)->name);
  }
  return 0;
}

NodeContext::NodeContext(ImportContext& context, const FlatNode& node, std::vector<ValueId> inputs,
                         std::vector<bool> wanted_outputs)
    : context_(context),
      node_(node),
      attributes_(*node.proto),
      inputs_(std::move(inputs)),
      wanted_outputs_(std::move(wanted_outputs)) {}

ValueId NodeContext::optional_input(int index) const {
  return index < input_count() ? inputs_[static_cast<std::size_t>(index)] : kNoValue;
}

ValueId NodeContext::input(int index) const {
  const ValueId id = optional_input(index);
  if (id == kNoValue) fail("input {} is missing", index);
  return id;
}

bool NodeContext::wants_output(int index) const {
  return index < output_count() && wanted_outputs_[static_cast<std::size_t>(index)];
}

const std::vector<ValueId>& NodeContext::sequence(int index) const {
  const ValueId id = input(index);
  if (!Sequences::contains(id)) fail("input {} is a tensor, expected a sequence", index);
  return context_.sequences.at(id);
}

std::shared_ptr<const Tensor> NodeContext::known(int index) {
  const Value& value = context_.emitter.builder().value(input(index));
  if (auto tensor = context_.emitter.known(input(index))) return tensor;
  const auto bound = context_.inputs.find(input(index));
  if (bound == context_.inputs.end()) return nullptr;
  const Tensor* given = bound->second == nullptr && context_.options.bind_input
                            ? context_.options.bind_input(value.name)
                            : nullptr;
  if (given != nullptr) {
    if (!(given->desc() == value.desc)) {
      fail("input '{}' was given as {} but the model declares {}", value.name, given->desc().str(),
           value.desc.str());
    }
    bound->second = std::make_shared<const Tensor>(given->clone());
  }
  return bound->second;
}

std::shared_ptr<const Tensor> NodeContext::constant(int index, const char* what) {
  if (auto tensor = known(index)) return tensor;
  fail_unsupported("{} '{}' is computed at run time; it must be a constant", what,
                   context_.emitter.builder().value(input(index)).name);
}

std::vector<std::int64_t> NodeContext::constant_integers(int index, const char* what) {
  const auto tensor = constant(index, what);
  const TensorDesc& desc = tensor->desc();
  if ((desc.dtype != DType::i32 && desc.dtype != DType::i64) || desc.shape.rank() > 1) {
    fail("{} is {}, expected a list of i64", what, desc.str());
  }
  const auto integers = cast(tensor, DType::i64);
  const std::span values = integers->values<std::int64_t>();
  return {values.begin(), values.end()};
}

std::optional<std::vector<std::int64_t>> NodeContext::optional_integers(int index, const char* what) {
  if (!has_input(index)) return std::nullopt;
  return constant_integers(index, what);
}

double NodeContext::constant_number(int index, const char* what) {
  const auto tensor = constant(index, what);
  if (tensor->desc().elements() != 1) fail("{} is {}, expected one number", what, tensor->desc().str());
  return cast(tensor, DType::f64)->values<double>()[0];
}

std::string NodeContext::part_name(const char* part) const {
  return part == nullptr ? node_.name : fmt::format("{}/{}", node_.name, part);
}

std::vector<ValueId> NodeContext::emit_all(LayerPtr layer, std::vector<ValueId> inputs, const char* part) {
  return context_.emitter.emit(part_name(part), std::move(layer), std::move(inputs));
}

Tensor NodeContext::allocate(const TensorDesc& desc) {
  context_.emitter.charge(desc);
  return Tensor(desc);
}

ValueId NodeContext::add_constant(Tensor tensor, const char* part) {
  return context_.emitter.constant(part_name(part), std::move(tensor));
}

ValueId NodeContext::add_computed(Tensor tensor, const char* part) {
  return context_.emitter.computed_constant(part_name(part), std::move(tensor));
}

Tensor NodeContext::read_tensor(const onnx_pb::TensorProto& proto) {
  return tensor_from_onnx(proto, context_.external);
}

}  // namespace pipit::internal::onnx
