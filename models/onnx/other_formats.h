// What people take for ONNX files, told by their first bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace pipit::internal::onnx {

/// The most bytes that other_format() looks at.
inline constexpr std::size_t kFormatBytes = 4096;

/// What a file of `size` bytes is that begins with `head` and could not be read as a model, and what to do about it;
/// empty where it is of no format that is known here.
std::string other_format(std::span<const std::byte> head, std::uint64_t size);

}  // namespace pipit::internal::onnx
