// Which image format a file has, told by its first bytes and never by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace pipit::internal {

/// As many bytes as tell every format.
inline constexpr std::size_t kFormatBytes = 32;

/// "JPEG", "PNG", "BMP", "WebP", "GIF", "TIFF", "HEIC", ... of a file that begins with these bytes; empty where they
/// begin no image format that is known here. Formats that begin like text need more than their magic number.
std::string_view image_format(std::span<const std::uint8_t> head);

/// The same of a file; nothing where it is no regular file or cannot be read.
std::optional<std::string_view> image_format_of(const std::filesystem::path& path);

/// Whether decode_image() reads a format of that name in this build.
bool reads_format(std::string_view format);

/// What it reads, for messages: "JPEG, PNG, BMP or WebP".
std::string_view formats_read();

}  // namespace pipit::internal
