// TensorProto -> Tensor: element types, and the payload in its three places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/tensor.h"
#include "models/onnx/parsed_model.h"

namespace pipit::internal::onnx {

/// Integers that pipit has no type for and that lie in a wider one: 16 bits in i32, 4 and 2 bits in i8 or u8.
struct NarrowInteger {
  std::string_view name;
  int bits;
  std::int64_t low, high;
  DType container;
};
/// nullopt for every other data type.
std::optional<NarrowInteger> narrow_integer(std::int32_t data_type);

/// The element type of tensors, inputs and outputs of an ONNX data type number: f32 for float16 and bfloat16, whose
/// every number it has; the container of a narrow integer.
DType container_of(std::int32_t data_type);

/// container_of() for results of operators, which compute in a type: no narrow integers. Throws UnsupportedError naming
/// the type otherwise.
DType dtype_from_onnx(std::int32_t data_type);
/// True for float16 and bfloat16.
bool is_widened(std::int32_t data_type);
/// The largest distance of two neighbouring numbers, relative to them: 2^-10 of float16, 2^-7 of bfloat16, 0 otherwise.
double step_of_widened(std::int32_t data_type);

/// Shape of TensorProto dims or a shape operand. Throws Error on negative extents and overflow,
/// UnsupportedError on more than kMaxRank dimensions.
Shape shape_from_onnx(std::span<const std::int64_t> dims);

/// Where tensors with external data find it, and how much they may still read.
struct ExternalData {
  std::vector<std::filesystem::path> folders;  ///< as resolve_external() takes them
  /// Many tensors may point at the same bytes of a file, so its size alone does not bound the memory.
  std::size_t budget = std::size_t{8} << 30;
};

/// The elements, row_major; those of `raw` where it is not null (the parser left them in the file). The payload is
/// checked against the dimensions before memory is allocated. Throws Error on a payload of another size,
/// UnsupportedError on element types pipit does not have; the messages do not name the tensor.
Tensor tensor_from_onnx(const onnx_pb::TensorProto& proto, ExternalData& external,
                        const RawData* raw = nullptr);

}  // namespace pipit::internal::onnx
