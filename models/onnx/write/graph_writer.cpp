#include "models/onnx/write/graph_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "layers/common/dispatch.h"
#include "layers/ops/quantize.h"
#include "models/onnx/attribute_type.h"

namespace pipit::internal::onnx {

std::int32_t data_type(DType type) {
  switch (type) {
    case DType::f32:
      return 1;
    case DType::u8:
      return 2;
    case DType::i8:
      return 3;
    case DType::i32:
      return 6;
    case DType::i64:
      return 7;
    case DType::boolean:
      return 9;
    case DType::f64:
      return 11;
    case DType::f16:
    case DType::bf16:
      break;
  }
  fail_unsupported("tensors of {}", dtype_name(type));
}

namespace {

constexpr std::int32_t kInt4 = 22;  // TensorProto.DataType

void describe(onnx_pb::ValueInfoProto& info, const std::string& name, const TensorDesc& desc,
              bool symbolic_batch) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(data_type(desc.dtype));
  tensor.mutable_shape();
  for (int d = 0; d < desc.shape.rank(); ++d) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (d == 0 && symbolic_batch) {
      dim.set_dim_param("N");
    } else {
      dim.set_dim_value(desc.shape[d]);
    }
  }
}

onnx_pb::AttributeProto& attribute(onnx_pb::NodeProto& node, const char* name, std::int32_t type) {
  onnx_pb::AttributeProto& result = *node.add_attribute();
  result.set_name(name);
  result.set_type(type);
  return result;
}

}  // namespace

GraphWriter::GraphWriter(const Graph& graph, onnx_pb::GraphProto& proto, int opset, bool symbolic_batch,
                         const QdqForm& form)
    : graph_(graph),
      proto_(proto),
      opset_(opset),
      form_(form),
      names_(graph.values().size()),
      dequantized_(graph.values().size()),
      quantizations_(graph.values().size()),
      real_(graph.values().size(), false),
      producers_(graph.values().size(), nullptr),
      readers_(graph.values().size(), nullptr) {
  const std::vector<int> uses = graph.use_counts();
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) producers_[index(id)] = &node;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && uses[index(id)] == 1) readers_[index(id)] = &node;
    }
  }
  for (const ValueId id : graph.inputs()) {
    names_[index(id)] = graph.value(id).name;
    value_names_.insert(graph.value(id).name);
    describe(*proto_.add_input(), graph.value(id).name, graph.value(id).desc, symbolic_batch);
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    value_names_.insert(graph.output_names()[i]);
    describe(*proto_.add_output(), graph.output_names()[i], desc(graph.outputs()[i]), symbolic_batch);
  }
}

std::string GraphWriter::unique(const std::string& wanted, std::unordered_set<std::string>& taken) {
  std::string name = wanted;
  for (int i = 1; name.empty() || !taken.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

// The name of a value that is about to be written: the graph output's, where it is one, else its own.
std::string GraphWriter::claim(ValueId id) {
  const std::vector<ValueId>& outputs = graph_.outputs();
  const auto output = std::find(outputs.begin(), outputs.end(), id);
  std::string& name = names_[index(id)];
  name = output != outputs.end() ? graph_.output_names()[static_cast<std::size_t>(output - outputs.begin())]
                                 : unique(graph_.value(id).name, value_names_);
  return name;
}

std::string GraphWriter::operand(ValueId id) {
  std::string& name = names_[index(id)];
  if (name.empty()) {
    const Value& value = graph_.value(id);
    if (!value.constant) fail("value '{}' is read before it is written", value.name);
    name = initializer(value.name, *value.constant);
  }
  if (!is_integer(id) || real_[index(id)]) return name;
  std::string& real = dequantized_[index(id)];
  if (real.empty()) {
    const std::string from = name;
    Names inputs = scale_and_zero_point(quantization(id));
    inputs.insert(inputs.begin(), from);
    real = add("DequantizeLinear", from + "/dequantize", inputs).output(0);
  }
  return real;
}

const Quantization& GraphWriter::quantization(ValueId id) const {
  const auto& q = quantizations_[index(id)];
  if (!q)
    fail_unsupported("value '{}' is of {} without a scale", graph_.value(id).name,
                     dtype_name(desc(id).dtype));
  return *q;
}

std::string GraphWriter::initializer(const std::string& wanted, const Tensor& tensor) {
  onnx_pb::TensorProto& proto = *proto_.add_initializer();
  const Tensor plain = to_layout(tensor.view(), Layout::row_major);
  proto.set_data_type(data_type(plain.desc().dtype));
  for (const std::int64_t extent : plain.shape().dims()) proto.add_dims(extent);
  proto.set_raw_data(plain.view().data, plain.desc().bytes());
  proto.set_name(unique(wanted, value_names_));
  return proto.name();
}

std::string GraphWriter::int4_initializer(const std::string& wanted, const Tensor& tensor) {
  onnx_pb::TensorProto& proto = *proto_.add_initializer();
  proto.set_data_type(kInt4);
  for (const std::int64_t extent : tensor.shape().dims()) proto.add_dims(extent);
  const std::span<const std::int8_t> values = tensor.values<std::int8_t>();
  std::string bytes((values.size() + 1) / 2, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto half = static_cast<unsigned>(values[i]) & 15U;
    bytes[i / 2] = static_cast<char>(static_cast<unsigned char>(bytes[i / 2]) | half << 4 * (i % 2));
  }
  proto.set_raw_data(std::move(bytes));
  proto.set_name(unique(wanted, value_names_));
  return proto.name();
}

std::string GraphWriter::integers(const std::string& wanted, const std::vector<std::int64_t>& values) {
  return initializer(wanted,
                     Tensor::from<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values));
}

std::string GraphWriter::number(const std::string& wanted, double value, ValueId like) {
  const DType type = like == kNoValue || is_integer(like) ? DType::f32 : desc(like).dtype;
  return with_dtype(type, [&]<typename T>(std::type_identity<T> /*type*/) {
    return initializer(wanted, Tensor::scalar(static_cast<T>(value)));
  });
}

GraphWriter::Names GraphWriter::scale_and_zero_point(const Quantization& q) {
  Names& names = scales_[{q.scale, q.zero_point, static_cast<int>(q.dtype)}];
  if (names.empty()) {
    const std::string scale = number("scale", q.scale);
    const std::string zero = initializer(
        "zero_point", q.dtype == DType::u8 ? Tensor::scalar(static_cast<std::uint8_t>(q.zero_point))
                                           : Tensor::scalar(static_cast<std::int8_t>(q.zero_point)));
    names = {scale, zero};
  }
  return names;
}

onnx_pb::NodeProto& GraphWriter::add(const std::string& op, const std::string& name, const Names& inputs,
                                     int outputs) {
  last_ = proto_.add_node();
  last_->set_op_type(op);
  last_->set_name(unique(name, node_names_));
  for (const std::string& input : inputs) last_->add_input(input);
  while (last_->input_size() > 0 && last_->input(last_->input_size() - 1).empty())
    last_->mutable_input()->RemoveLast();
  for (int i = 0; i < outputs; ++i) last_->add_output(unique(last_->name() + "/output", value_names_));
  return *last_;
}

void GraphWriter::add_rounding(const std::string& name, const Quantization& q) {
  const Names scale = scale_and_zero_point(q);
  add("QuantizeLinear", name + "/quantize", {last_result(), scale[0], scale[1]});
  add("DequantizeLinear", name + "/dequantize", {last_result(), scale[0], scale[1]});
}

void GraphWriter::add_activation(const std::string& name, const Clamp& clamp, const Quantization& rounded) {
  if (clamp.is_identity()) return;
  const bool rounds = rounded.quantized() && form_.activation != WrittenActivation::plain;
  if (rounds) add_rounding(name, rounded);
  // Rounded values end where the integers do: a bound that is rounded to the last of them says nothing.
  const float last = static_cast<float>(quantized_range(rounded).high - rounded.zero_point);
  const bool from_zero = clamp.low == 0 && clamp.high > (last - 0.5F) * rounded.scale;
  if (rounds && from_zero && form_.activation == WrittenActivation::leaky) {
    set(add("LeakyRelu", name + "/relu", {last_result()}), "alpha", 0.0F);
    return;
  }
  if (clamp == Clamp::relu()) {
    add("Relu", name + "/relu", {last_result()});
    return;
  }
  const std::string x = last_result();
  const std::string low = clamp.low == Clamp{}.low ? "" : number(name + "/low", clamp.low);
  const std::string high = clamp.high == Clamp{}.high ? "" : number(name + "/high", clamp.high);
  add("Clip", name + "/clip", {x, low, high});
}

void GraphWriter::store(ValueId id, const Quantization& q, int output) {
  if (!q.quantized()) {
    *last_->mutable_output(output) = claim(id);
    return;
  }
  onnx_pb::NodeProto* const real = last_;
  add_quantize(graph_.value(id).name + "/quantize", real->output(output), id, q);
  last_ = real;
}

void GraphWriter::store_real(ValueId id, const Quantization& q, int output) {
  *last_->mutable_output(output) = claim(id);
  quantizations_[index(id)] = q;
  real_[index(id)] = true;
}

void GraphWriter::store_moved(const Node& node, int output) {
  const ValueId id = node.outputs[static_cast<std::size_t>(output)];
  if (!is_integer(node.inputs[0])) return store(id, {}, output);
  const Quantization& q = quantization(node.inputs[0]);
  if (form_.rounded_moves) return store(id, q, output);
  store_real(id, q, output);
}

void GraphWriter::add_quantize(const std::string& name, const std::string& real, ValueId id,
                               const Quantization& q) {
  Names inputs = scale_and_zero_point(q);
  inputs.insert(inputs.begin(), real);
  const std::string result = claim(id);
  add("QuantizeLinear", name, inputs).set_output(0, result);
  quantizations_[index(id)] = q;
  Quantization full = q;
  full.full_range = true;
  // Zero points outside the middle have but one range.
  if (quantized_range(q).low == quantized_range(full).low) {
    any_full_ = any_full_ || q.zero_point == (q.dtype == DType::u8 ? 128 : 0);
  } else {
    any_narrow_ = true;
  }
}

void GraphWriter::quantize(const Node& node, const Quantization& q) {
  add_quantize(node.name, operand(node.inputs[0]), node.outputs[0], q);
}

void GraphWriter::dequantize(const Node& node) {
  const ValueId x = node.inputs[0];
  if (real_[index(x)]) {
    add("Identity", node.name, {operand(x)});
    return store(node.outputs[0]);
  }
  const bool known = is_integer(x);  // else the integers are the graph's input
  Names inputs = scale_and_zero_point(known ? quantization(x) : layer_as<Dequantize>(*node.layer).x());
  inputs.insert(inputs.begin(), known ? names_[index(x)] : operand(x));
  add("DequantizeLinear", node.name, inputs);
  store(node.outputs[0]);
}

void GraphWriter::give_up(const Node& node) {
  for (const ValueId id : node.outputs) {
    if (names_[index(id)].empty()) claim(id);
    if (desc(id).dtype == DType::i8 || desc(id).dtype == DType::u8)
      quantizations_[index(id)] = Quantization{1, 0, desc(id).dtype};
  }
}

bool GraphWriter::narrow_range() const {
  if (any_narrow_ && any_full_)
    fail_unsupported(
        "some INT8 values take the lowest integer and some leave it out; one file cannot say so");
  return any_narrow_;
}

void GraphWriter::finish_outputs() {
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
    const ValueId id = graph_.outputs()[i];
    const std::string& wanted = graph_.output_names()[i];
    if (names_[index(id)] == wanted) continue;
    const std::string from = is_integer(id) ? names_[index(id)] : operand(id);
    add("Identity", wanted + "/identity", {from}).set_output(0, wanted);
  }
}

void set(onnx_pb::NodeProto& node, const char* name, std::int64_t value) {
  attribute(node, name, kInt).set_i(value);
}
void set(onnx_pb::NodeProto& node, const char* name, float value) {
  attribute(node, name, kFloat).set_f(value);
}
void set(onnx_pb::NodeProto& node, const char* name, const char* value) {
  attribute(node, name, kString).set_s(value);
}
void set(onnx_pb::NodeProto& node, const char* name, const std::vector<std::int64_t>& values) {
  attribute(node, name, kInts).mutable_ints()->Add(values.begin(), values.end());
}

void set(onnx_pb::NodeProto& node, const char* name, const std::vector<float>& values) {
  attribute(node, name, kFloats).mutable_floats()->Add(values.begin(), values.end());
}

void set(onnx_pb::NodeProto& node, const char* name, const std::vector<const char*>& values) {
  for (onnx_pb::AttributeProto& proto = attribute(node, name, kStrings); const char* value : values)
    proto.add_strings(value);
}

void set_window(onnx_pb::NodeProto& node, const Window& window) {
  const auto list = [&](const std::array<std::int64_t, kMaxSpatial>& of) {
    return std::vector<std::int64_t>(of.begin(), of.begin() + window.rank);
  };
  set(node, "kernel_shape", list(window.kernel));
  set(node, "strides", list(window.stride));
  std::vector<std::int64_t> pads = list(window.pad_begin);
  const std::vector<std::int64_t> end = list(window.pad_end);
  pads.insert(pads.end(), end.begin(), end.end());
  set(node, "pads", pads);
  const std::vector<std::int64_t> dilations = list(window.dilation);
  if (std::any_of(dilations.begin(), dilations.end(), [](std::int64_t d) { return d != 1; }))
    set(node, "dilations", dilations);
  if (window.ceil_mode) set(node, "ceil_mode", std::int64_t{1});
}

}  // namespace pipit::internal::onnx
