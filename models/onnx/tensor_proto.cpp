#include "models/onnx/tensor_proto.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

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

constexpr std::int32_t kUint16 = 4;
constexpr std::int32_t kInt16 = 5;
constexpr std::int32_t kUint4 = 21;
constexpr std::int32_t kInt4 = 22;
constexpr std::int32_t kUint2 = 25;
constexpr std::int32_t kInt2 = 26;
constexpr int kByteBits = 8;

// A bool may be any byte in a file; inside pipit it is 0 or 1.
void normalize_bools(Tensor& tensor) {
  if (tensor.desc().dtype != DType::boolean) return;
  const std::span bytes(tensor.view().data, tensor.desc().bytes());
  for (std::byte& byte : bytes) byte = std::byte{byte != std::byte{0}};
}

// The bytes of an element in a file.
std::size_t stored_bytes(const TensorDesc& desc, std::int32_t data_type) {
  const auto elements = static_cast<std::size_t>(desc.elements());
  if (is_widened(data_type)) return sizeof(std::uint16_t) * elements;
  if (const auto narrow = narrow_integer(data_type))
    return (elements * static_cast<std::size_t>(narrow->bits) + kByteBits - 1) / kByteBits;
  return desc.bytes();
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

// `bits` of a number that begins at bit `at`, the first of a byte being its lowest; sign-extended where `is_signed`.
std::int32_t bits_at(const std::byte* bytes, std::size_t at, int bits, bool is_signed) {
  std::uint32_t value = std::to_integer<std::uint32_t>(bytes[at / kByteBits]) >> (at % kByteBits);
  if (bits > kByteBits) value |= std::to_integer<std::uint32_t>(bytes[at / kByteBits + 1]) << kByteBits;
  const std::uint32_t range = 1U << static_cast<unsigned>(bits);
  value &= range - 1;
  const bool negative = is_signed && value >= range / 2;
  return static_cast<std::int32_t>(value) - (negative ? static_cast<std::int32_t>(range) : 0);
}

// As for halves below. Packed elements lie so close that one goes after those that it shares a byte with.
void unpack(Tensor& tensor, const NarrowInteger& type, const std::byte* packed) {
  const auto bits = static_cast<std::size_t>(type.bits);
  const auto fill = [&]<typename T>(T* target) {
    const auto count = static_cast<std::size_t>(tensor.desc().elements());
    const std::size_t together = std::max<std::size_t>(kByteBits / bits, 1);
    for (std::size_t i = 0; i < count; i += together) {
      std::array<std::int32_t, kByteBits> values{};
      const std::size_t end = std::min(together, count - i);
      for (std::size_t k = 0; k < end; ++k)
        values[k] = bits_at(packed, (i + k) * bits, type.bits, type.low < 0);
      for (std::size_t k = 0; k < end; ++k) target[i + k] = static_cast<T>(values[k]);
    }
  };
  if (type.container == DType::i32) fill(tensor.view().as<std::int32_t>());
  if (type.container == DType::i8) fill(tensor.view().as<std::int8_t>());
  if (type.container == DType::u8) fill(tensor.view().as<std::uint8_t>());
}

// Halves at the end of the tensor become floats all over it; each is read before it is overwritten.
void widen(Tensor& tensor, std::int32_t data_type) {
  if (const auto narrow = narrow_integer(data_type))
    unpack(tensor, *narrow, payload(tensor, data_type).data());
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

// Elements of 16 bits are in int32_data by themselves, smaller ones by the byte.
Tensor from_narrow(const TensorDesc& desc, const onnx_pb::TensorProto& proto, const NarrowInteger& type) {
  if (type.container == DType::i32) {
    for (const std::int32_t value : proto.int32_data()) {
      if (value < type.low || value > type.high)
        fail("the element {} is outside the range of {}", value, type.name);
    }
    return from_field<std::int32_t>(desc, proto.int32_data());
  }
  check_size(static_cast<std::uint64_t>(proto.int32_data_size()), stored_bytes(desc, proto.data_type()),
             "bytes", desc);
  std::vector<std::byte> packed;
  for (const std::int32_t value : proto.int32_data()) {
    if (value < -128 || value > 255) fail("{} is not a byte of {}", value, type.name);
    packed.push_back(static_cast<std::byte>(value & 0xFF));
  }
  Tensor tensor(desc);
  unpack(tensor, type, packed.data());
  return tensor;
}

Tensor from_typed(const TensorDesc& desc, const onnx_pb::TensorProto& proto) {
  if (const auto narrow = narrow_integer(proto.data_type())) return from_narrow(desc, proto, *narrow);
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
    case DType::bf16:
      break;
  }
  fail("unknown element type");
}

Tensor from_external(const TensorDesc& desc, const onnx_pb::TensorProto& proto, ExternalData& external) {
  ExternalRange range = resolve_external(proto, external.folders);
  const std::uint64_t needed = stored_bytes(desc, proto.data_type());
  if (range.to_end) range.length = std::min(range.length, needed);
  check_size(range.length, needed, "bytes", desc);
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

double step_of_widened(std::int32_t data_type) {
  if (data_type == kFloat16) return 0x1p-10;
  return data_type == kBfloat16 ? 0x1p-7 : 0;
}

std::optional<NarrowInteger> narrow_integer(std::int32_t data_type) {
  switch (data_type) {
    case kUint16:
      return NarrowInteger{"uint16", 16, 0, 65535, DType::i32};
    case kInt16:
      return NarrowInteger{"int16", 16, -32768, 32767, DType::i32};
    case kUint4:
      return NarrowInteger{"uint4", 4, 0, 15, DType::u8};
    case kInt4:
      return NarrowInteger{"int4", 4, -8, 7, DType::i8};
    case kUint2:
      return NarrowInteger{"uint2", 2, 0, 3, DType::u8};
    case kInt2:
      return NarrowInteger{"int2", 2, -2, 1, DType::i8};
    default:
      return std::nullopt;
  }
}

DType container_of(std::int32_t data_type) {
  const auto narrow = narrow_integer(data_type);
  return narrow ? narrow->container : dtype_from_onnx(data_type);
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
                        container_of(proto.data_type())};
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
