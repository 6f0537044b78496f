#include "models/image/decode.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "models/image/format.h"
#include "models/image/formats.h"
#include "models/image/orientation.h"

namespace pipit::internal {
namespace detail {

void check_dimensions(const Source& source, std::int64_t width, std::int64_t height,
                      std::int64_t pixels_per_byte, const DecodeLimits& limits) {
  if (width < 1 || height < 1)
    fail("{}: damaged: its header says {} x {} pixels", source.name, width, height);
  if (width > limits.max_side || height > limits.max_side || width * height > limits.max_pixels) {
    fail("{}: {} x {} pixels are above the limit of {} per side and {} in all", source.name, width, height,
         limits.max_side, limits.max_pixels);
  }
  const auto bytes = static_cast<std::int64_t>(source.bytes.size());
  if (width * height / pixels_per_byte > bytes) {
    fail("{}: damaged or truncated: its header says {} x {} pixels, which {} bytes cannot hold", source.name,
         width, height, bytes);
  }
}

}  // namespace detail

namespace {

using detail::Source;

bool starts_with(std::span<const std::uint8_t> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

[[noreturn]] void fail_unknown_format(const Source& source) {
  const auto b = source.bytes;
  if (const std::string_view known = image_format(b); !known.empty() && !reads_format(known)) {
    fail_unsupported("{}: {} is not read; convert it to {}", source.name, known, formats_read());
  }
  std::string first;
  for (std::size_t i = 0; i < std::min<std::size_t>(b.size(), 8); ++i) first += fmt::format(" {:02x}", b[i]);
  fail("{}: not a {} image (it begins with the bytes{})", source.name, formats_read(), first);
}

}  // namespace

Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeLimits& limits) {
  const Source source{bytes, name};
  if (bytes.empty()) fail("{}: the image is empty (0 bytes)", name);
  if (bytes.size() > limits.max_file_bytes || bytes.size() > std::size_t{INT32_MAX}) {
    fail("{}: {} bytes are above the limit of {} for an image file", name, bytes.size(),
         limits.max_file_bytes);
  }
  Image image;
  if (starts_with(bytes, "BM")) {
    image = detail::decode_bmp(source, limits);
  } else if (starts_with(bytes, "\xFF\xD8")) {
    image = detail::decode_jpeg(source, limits);
  } else if (starts_with(bytes, "\x89PNG\r\n\x1A\n")) {
    image = detail::decode_png(source, limits);
  } else if (image_format(bytes) == "WebP") {
    image = detail::decode_webp(source, limits);
  } else {
    fail_unknown_format(source);
  }
  image.exif_orientation = exif_orientation(bytes);
  return image;
}

Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits) {
  const std::string name = path.string();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) fail("{}: no such file", name);
  if (error) fail("{}: {}", name, error.message());
  if (std::filesystem::is_directory(status)) fail("{}: is a directory, not an image file", name);
  if (!std::filesystem::is_regular_file(status)) fail("{}: is not a regular file", name);
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail("{}: {}", name, error.message());
  if (size > limits.max_file_bytes) {
    fail("{}: {} bytes are above the limit of {} for an image file", name, size, limits.max_file_bytes);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be opened: {}", name, std::generic_category().message(errno));
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(size));
  if (file.gcount() != std::streamsize(size))
    fail("{}: only {} of {} bytes could be read", name, file.gcount(), size);
  return decode_image(bytes, name, limits);
}

}  // namespace pipit::internal
