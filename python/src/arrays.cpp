#include "python/src/arrays.h"

#include <nanobind/stl/pair.h>

#include <algorithm>

namespace pipit::internal::python {

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

namespace {

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

// As PyTorch names devices.
std::string device_text(int type, int id) {
  switch (type) {
    case nb::device::cpu::value:
      return "the CPU's memory";
    case nb::device::cuda::value:
      return "the memory of cuda:" + std::to_string(id);
    case nb::device::cuda_managed::value:
      return "managed memory of CUDA";
    default:
      return "the memory of DLPack's device (" + std::to_string(type) + ", " + std::to_string(id) + ")";
  }
}

// What is known of an object that is not the array that was expected: its type, where it is, and why it gives no
// DLPack capsule.
std::string found_instead(nb::handle object) {
  if (PyCapsule_CheckExact(object.ptr())) return "a capsule of memory that is only to be read, or no tensor";
  std::string text = nb::cast<std::string>(nb::str(object.type().attr("__name__")));
  try {
    if (!nb::hasattr(object, "__dlpack_device__")) return text;
    const auto device = nb::cast<std::pair<int, int>>(object.attr("__dlpack_device__")());
    text += " in " + device_text(device.first, device.second);
    (void)object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    text += "; " + nb::cast<std::string>(nb::str(error.value()));
  } catch (const nb::cast_error&) {  // no device of DLPack's
  }
  return text;
}

template <typename Array>
bool is_row_major(const Array& array) {
  if (array.stride_ptr() == nullptr || array.size() <= 1) return true;
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) != 1 && array.stride(axis) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  return true;
}

template <typename Array>
std::string strides_text(const Array& array) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < array.ndim(); ++axis)
    text += (axis == 0 ? "" : ", ") + std::to_string(array.stride(axis));
  return text + (array.ndim() == 1 ? ",)" : ")");
}

template <typename Array>
bool has_shape(const Array& array, const Shape& shape) {
  if (array.ndim() != static_cast<std::size_t>(shape.rank())) return false;
  return std::equal(shape.dims().begin(), shape.dims().end(), array.shape_ptr());
}

void check_count(const char* what, std::size_t count, std::span<const TensorInfo> infos) {
  if (count == infos.size()) return;
  std::string names;
  for (const TensorInfo& info : infos) names += (names.empty() ? "" : ", ") + info.name;
  throw ArgumentError("got " + std::to_string(count) + " " + what + "s; the model has " +
                      std::to_string(infos.size()) + ": " + names);
}

template <typename Array>
void check_type_and_shape(const Array& array, const char* what, const TensorInfo& info) {
  if (array.dtype() != dlpack_type(info.dtype))
    refuse(what, info,
           "its type is " + text_of(array.dtype()) + "; expected " + std::string(word(info.dtype)));
  if (!has_shape(array, info.shape))
    refuse(what, info, "its shape is " + shape_text(array) + "; expected " + shape_text(info.shape));
}

template <typename Array>
Array array_of(nb::handle object, const char* what, const TensorInfo& info, bool convert,
               const char* expected) {
  Array array;
  if (!nb::try_cast(object, array, convert))
    refuse(what, info, std::string("expected ") + expected + "; got " + found_instead(object));
  check_type_and_shape(array, what, info);
  return array;
}

template <typename Array, typename Arrays>
OnDevice<Array> on_device(const char* what, const Arrays& arrays, std::span<const TensorInfo> infos,
                          int gpu) {
  check_count(what, nb::len(arrays), infos);
  const std::string expected = device_text(nb::device::cuda::value, gpu);
  OnDevice<Array> result;
  result.held.reserve(infos.size());
  result.views.resize(infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const nb::object object(arrays[i]);
    Array array;
    if (!nb::try_cast(object, array, false))
      refuse(what, infos[i],
             std::string("expected a") + (std::string_view(what) == "output" ? " writable" : "n") +
                 " array with DLPack in " + expected + "; got " + found_instead(object));
    const bool managed = array.device_type() == nb::device::cuda_managed::value;
    if (!managed && (array.device_type() != nb::device::cuda::value || array.device_id() != gpu))
      refuse(what, infos[i],
             "it is in " + device_text(array.device_type(), array.device_id()) + "; expected " + expected +
                 ", as for all arrays of the run");
    check_type_and_shape(array, what, infos[i]);
    if (!is_row_major(array))
      refuse(what, infos[i],
             "its strides are " + strides_text(array) + " elements for shape " + shape_text(array) +
                 "; expected a contiguous array in row-major order");
    DeviceArray& view = result.views[i];
    view.dtype = infos[i].dtype;
    view.shape = infos[i].shape;
    view.data = const_cast<void*>(static_cast<const void*>(array.data()));  // inputs are only read
    result.held.push_back(std::move(array));
  }
  return result;
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

OnDevice<nb::ndarray<nb::ro>> device_inputs_of(const nb::tuple& arrays, std::span<const TensorInfo> infos,
                                               int gpu) {
  return on_device<nb::ndarray<nb::ro>>("input", arrays, infos, gpu);
}

OnDevice<nb::ndarray<>> device_outputs_of(const nb::sequence& arrays, std::span<const TensorInfo> infos,
                                          int gpu) {
  return on_device<nb::ndarray<>>("output", arrays, infos, gpu);
}

}  // namespace pipit::internal::python
