// The types of a node's attributes, as AttributeProto.AttributeType numbers them.
#pragma once

#include <cstdint>

namespace pipit::internal::onnx {

inline constexpr std::int32_t kFloat = 1;
inline constexpr std::int32_t kInt = 2;
inline constexpr std::int32_t kString = 3;
inline constexpr std::int32_t kTensor = 4;
inline constexpr std::int32_t kGraph = 5;
inline constexpr std::int32_t kFloats = 6;
inline constexpr std::int32_t kInts = 7;
inline constexpr std::int32_t kStrings = 8;

}  // namespace pipit::internal::onnx
