#include "python/src/arrays.h"

#include <algorithm>

namespace pipit::internal::python {

namespace {

using nb::dlpack::dtype_code;

nb::dlpack::dtype dlpack_type(DType type) {
  const auto bits = static_cast<std::uint8_t>(8 * dtype_bytes(type));
  switch (type) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
      return {static_cast<std::uint8_t>(dtype_code::Float), bits, 1};
    case DType::bf16:
      return {static_cast<std::uint8_t>(dtype_code::Bfloat), bits, 1};
    case DType::i8:
    case DType::i32:
    case DType::i64:
      return {static_cast<std::uint8_t>(dtype_code::Int), bits, 1};
    case DType::u8:
      return {static_cast<std::uint8_t>(dtype_code::UInt), bits, 1};
    case DType::boolean:
      return {static_cast<std::uint8_t>(dtype_code::Bool), bits, 1};
  }
  return {};
}

std::string text_of(const nb::dlpack::dtype& type) {
  const auto bits = std::to_string(type.bits);
  switch (static_cast<dtype_code>(type.code)) {
    case dtype_code::Float:
      return "float" + bits;
    case dtype_code::Bfloat:
      return "bfloat" + bits;
    case dtype_code::Int:
      return "int" + bits;
    case dtype_code::UInt:
      return "uint" + bits;
    case dtype_code::Bool:
      return "bool";
    default:
      return "of DLPack's code " + std::to_string(type.code) + " with " + bits + " bits";
  }
}

template <typename Array>
std::string shape_text(const Array& array) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < array.ndim(); ++axis)
    text += (axis == 0 ? "" : ", ") + std::to_string(array.shape(axis));
  return text + (array.ndim() == 1 ? ",)" : ")");
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis)
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  return text + (shape.rank() == 1 ? ",)" : ")");
}

[[noreturn]] void refuse(const char* what, const TensorInfo& info, const std::string& why) {
  throw ArgumentError(std::string(what) + " '" + info.name + "': " + why);
}

template <typename Array>
bool has_shape(const Array& array, const Shape& shape) {
  if (array.ndim() != static_cast<std::size_t>(shape.rank())) return false;
  return std::equal(shape.dims().begin(), shape.dims().end(), array.shape_ptr());
}

template <typename Array>
Array array_of(nb::handle object, const char* what, const TensorInfo& info, bool convert,
               const char* expected) {
  Array array;
  if (!nb::try_cast(object, array, convert))
    refuse(what, info,
           std::string("expected ") + expected + "; got " +
               nb::cast<std::string>(nb::str(object.type().attr("__name__"))));
  if (array.dtype() != dlpack_type(info.dtype))
    refuse(what, info,
           "its type is " + text_of(array.dtype()) + "; expected " + std::string(word(info.dtype)));
  if (!has_shape(array, info.shape))
    refuse(what, info, "its shape is " + shape_text(array) + "; expected " + shape_text(info.shape));
  return array;
}

void check_count(const char* what, std::size_t count, std::span<const TensorInfo> infos) {
  if (count == infos.size()) return;
  std::string names;
  for (const TensorInfo& info : infos) names += (names.empty() ? "" : ", ") + info.name;
  throw ArgumentError("got " + std::to_string(count) + " " + what + "s; the model has " +
                      std::to_string(infos.size()) + ": " + names);
}

}  // namespace

Inputs inputs_of(const nb::tuple& arrays, std::span<const TensorInfo> infos) {
  check_count("input", arrays.size(), infos);
  Inputs inputs;
  inputs.held.reserve(infos.size());
  inputs.views.resize(infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    inputs.held.push_back(array_of<InputArray>(arrays[i], "input", infos[i], true,
                                               "an array in the CPU's memory (NumPy's or with DLPack)"));
    ArrayView& view = inputs.views[i];
    view.dtype = infos[i].dtype;
    view.shape = infos[i].shape;
    view.data = inputs.held.back().data();
  }
  return inputs;
}

Outputs outputs_of(const nb::sequence& arrays, std::span<const TensorInfo> infos) {
  check_count("output", nb::len(arrays), infos);
  Outputs outputs;
  outputs.held.reserve(infos.size());
  outputs.views.resize(infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    outputs.held.push_back(array_of<OutputArray>(nb::object(arrays[i]), "output", infos[i], false,
                                                 "a writable array in row-major order in the CPU's memory"));
    MutableArrayView& view = outputs.views[i];
    view.dtype = infos[i].dtype;
    view.shape = infos[i].shape;
    view.data = outputs.held.back().data();
  }
  return outputs;
}

}  // namespace pipit::internal::python
