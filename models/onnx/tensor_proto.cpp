#include "models/onnx/tensor_proto.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "models/onnx/external_data.h"

namespace pipit::internal::onnx {

namespace {

// TensorProto.DataType
constexpr std::int32_t kFloat16 = 10;
constexpr std::int32_t kBfloat16 = 16;

static_assert(std::endian::native == std::endian::little, "raw tensor data is little-endian");

// TensorProto.DataLocation
constexpr std::int32_t kLocationDefault = 0;
constexpr std::int32_t kLocationExternal = 1;

// TensorProto.DataType, by number.
constexpr std::array<std::string_view, 27> kTypeNames = {
    "undefined", "float32",    "uint8",      "int8",       "uint16",         "int16",      "int32",
    "int64",     "string",     "bool",       "float16",    "float64",        "uint32",     "uint64",
    "complex64", "complex128", "bfloat16",   "float8e4m3", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "uint4",     "int4",       "float4e2m1", "float8e8m0", "uint2",          "int2"};

void check_size(std::uint64_t given, std::uint64_t expected, const char* unit, const TensorDesc& desc) {
  if (given != expected) {
    fail("a payload of {} {} for {}, which takes {}", given, unit, desc.str(), expected);
  }
}

// A bool may be any byte in a file; inside pipit it is 0 or 1.
void normalize_bools(Tensor& tensor) {
  if (tensor.desc().dtype != DType::boolean) return;
  const std::span bytes(tensor.view().data, tensor.desc().bytes());
  for (std::byte& byte : bytes) byte = std::byte{byte != std::byte{0}};
}

// The bytes of an element in a file.
std::size_t stored_bytes(const TensorDesc& desc, std::int32_t data_type) {
  return is_widened(data_type) ? sizeof(std::uint16_t) * static_cast<std::size_t>(desc.elements())
                               : desc.bytes();
}

// Where the bytes of a file go: the end of the tensor, so that widen() can go from its start.
std::span<std::byte> payload(Tensor& tensor, std::int32_t data_type) {
  const std::size_t size = stored_bytes(tensor.desc(), data_type);
  return {tensor.view().data + (tensor.desc().bytes() - size), size};
}

float widened(std::uint16_t bits, std::int32_t data_type) {
  if (data_type == kFloat16) return to_float(Half{bits});
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Halves at the end of the tensor become floats all over it; each is read before it is overwritten.
void widen(Tensor& tensor, std::int32_t data_type) {
  if (!is_widened(data_type)) return;
  const std::byte* halves = payload(tensor, data_type).data();
  for (float& value : tensor.values<float>()) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, halves, sizeof bits);
    halves += sizeof bits;
    value = widened(bits, data_type);
  }
}

template <typename T, typename Field>
Tensor from_field(const TensorDesc& desc, const Field& field) {
  check_size(static_cast<std::uint64_t>(field.size()), static_cast<std::uint64_t>(desc.elements()),
             "elements", desc);
  Tensor tensor(desc);
  T* target = tensor.view().as<T>();
  for (const auto value : field) {
    if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(value) && !std::is_same_v<T, bool>) {
      if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
        fail("the element {} is outside the range of {}", value, dtype_name(desc.dtype));
      }
    }
    *target++ = static_cast<T>(value);
  }
  return tensor;
}

// Halves are in int32_data as their bits.
Tensor from_bits(const TensorDesc& desc, const onnx_pb::TensorProto& proto) {
  check_size(static_cast<std::uint64_t>(proto.int32_data_size()), static_cast<std::uint64_t>(desc.elements()),
             "elements", desc);
  Tensor tensor(desc);
  float* target = tensor.view().as<float>();
  for (const std::int32_t bits : proto.int32_data()) {
    if (bits < 0 || bits > std::numeric_limits<std::uint16_t>::max()) fail("{} is not 16 bits", bits);
    *target++ = widened(static_cast<std::uint16_t>(bits), proto.data_type());
  }
  return tensor;
}

Tensor from_typed(const TensorDesc& desc, const onnx_pb::TensorProto& proto) {
  if (is_widened(proto.data_type())) return from_bits(desc, proto);
  switch (desc.dtype) {
    case DType::f32:
      return from_field<float>(desc, proto.float_data());
    case DType::f64:
      return from_field<double>(desc, proto.double_data());
    case DType::i64:
      return from_field<std::int64_t>(desc, proto.int64_data());
    case DType::i32:
      return from_field<std::int32_t>(desc, proto.int32_data());
    case DType::i8:
      return from_field<std::int8_t>(desc, proto.int32_data());
    case DType::u8:
      return from_field<std::uint8_t>(desc, proto.int32_data());
    case DType::boolean:
      return from_field<bool>(desc, proto.int32_data());
    case DType::f16:
      break;
  }
  fail("unknown element type");
}

Tensor from_external(const TensorDesc& desc, const onnx_pb::TensorProto& proto, ExternalData& external) {
  const ExternalRange range = resolve_external(proto, external.folder);
  check_size(range.length, stored_bytes(desc, proto.data_type()), "bytes", desc);
  if (desc.bytes() > external.budget) {
    fail("external tensors take more than {} bytes together", ExternalData{}.budget);
  }
  external.budget -= desc.bytes();
  Tensor tensor(desc);
  read_external(range, payload(tensor, proto.data_type()));
  widen(tensor, proto.data_type());
  normalize_bools(tensor);
  return tensor;
}

}  // namespace

bool is_widened(std::int32_t data_type) {
  return data_type == kFloat16 || data_type == kBfloat16;
}

DType dtype_from_onnx(std::int32_t data_type) {
  if (is_widened(data_type)) return DType::f32;
  switch (data_type) {
    case 1:
      return DType::f32;
    case 2:
      return DType::u8;
    case 3:
      return DType::i8;
    case 6:
      return DType::i32;
    case 7:
      return DType::i64;
    case 9:
      return DType::boolean;
    case 11:
      return DType::f64;
    default:
      break;
  }
  if (data_type <= 0 || data_type >= static_cast<std::int32_t>(kTypeNames.size())) {
    fail("data type {} is not an element type of ONNX", data_type);
  }
  fail_unsupported("element type {}", kTypeNames[static_cast<std::size_t>(data_type)]);
}

Shape shape_from_onnx(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    fail_unsupported("{} dimensions; at most {} are supported", dims.size(), kMaxRank);
  }
  return Shape(dims);
}

Tensor tensor_from_onnx(const onnx_pb::TensorProto& proto, ExternalData& external, const RawData* raw) {
  if (proto.has_segment()) fail_unsupported("a tensor stored in segments");
  const TensorDesc desc{shape_from_onnx({proto.dims().data(), static_cast<std::size_t>(proto.dims_size())}),
                        dtype_from_onnx(proto.data_type())};
  if (proto.data_location() == kLocationExternal) return from_external(desc, proto, external);
  if (proto.data_location() != kLocationDefault) fail("data location {} is unknown", proto.data_location());
  if (raw == nullptr && !proto.has_raw_data()) return from_typed(desc, proto);
  if (proto.float_data_size() + proto.int32_data_size() + proto.int64_data_size() + proto.double_data_size() >
      0) {
    fail("both raw and typed data");
  }
  check_size(raw != nullptr ? raw->size : proto.raw_data().size(), stored_bytes(desc, proto.data_type()),
             "bytes", desc);
  Tensor tensor(desc);
  const std::span<std::byte> target = payload(tensor, proto.data_type());
  if (raw != nullptr) {
    raw->read(target);
  } else if (!target.empty()) {  // memcpy must not be given the null pointer of an empty string
    std::memcpy(target.data(), proto.raw_data().data(), target.size());
  }
  widen(tensor, proto.data_type());
  normalize_bools(tensor);
  return tensor;
}

}  // namespace pipit::internal::onnx
