#include "models/image/decode.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>

#include "engine/error.h"
#include "models/image/container.h"

namespace {

// stb_image allocates by what a file says, not by what it may take (a deflate stream grows a thousandfold),
// so it gets its memory from here, within a budget per call. The memory is zeroed: the decoder reads tables
// and coefficients that a damaged file never filled in, and the result has to be the same on every run.
thread_local std::size_t decoder_budget = 0;
thread_local bool decoder_refused = false;
constexpr std::size_t kBlockHeader = 16;  // holds the block's size and keeps malloc's alignment

void* budget_malloc(std::size_t bytes) {
  void* memory = bytes <= decoder_budget ? std::calloc(1, bytes + kBlockHeader) : nullptr;
  if (memory == nullptr) {
    decoder_refused = true;
    return nullptr;
  }
  auto* block = static_cast<std::byte*>(memory);
  std::memcpy(block, &bytes, sizeof bytes);
  decoder_budget -= bytes;
  return block + kBlockHeader;
}

std::size_t block_size(void* pointer) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, static_cast<std::byte*>(pointer) - kBlockHeader, sizeof bytes);
  return bytes;
}

void budget_free(void* pointer) {
  if (pointer == nullptr) return;
  decoder_budget += block_size(pointer);
  std::free(static_cast<std::byte*>(pointer) - kBlockHeader);
}

void* budget_realloc(void* pointer, std::size_t bytes) {
  void* fresh = budget_malloc(bytes);
  if (fresh != nullptr && pointer != nullptr) {
    std::memcpy(fresh, pointer, std::min(bytes, block_size(pointer)));
    budget_free(pointer);
  }
  return fresh;
}

}  // namespace

// Static, so that a program with its own copy of stb_image links.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 65535
#define STBI_MALLOC(bytes) budget_malloc(bytes)
#define STBI_REALLOC(pointer, bytes) budget_realloc(pointer, bytes)
#define STBI_FREE(pointer) budget_free(pointer)
// One of its assertions fails for a JPEG whose Huffman table has 256 codes of at most 9 bits; what follows stays
// within the table, so a debug build need not abort on a file.
#define STBI_ASSERT(condition) static_cast<void>(0)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
// Damaged JPEG data makes version 2.27 add and multiply coefficients beyond int, and shift a zero byte by more than
// 31 bits when the bits of a scan run out. Only pixel values come of it, so a sanitizer need not stop there.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("shift", "signed-integer-overflow"))), \
                             apply_to = function)
#endif
#include <stb_image.h>
#ifdef __clang__
#pragma clang attribute pop
#endif
#pragma GCC diagnostic pop

namespace pipit {
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

using detail::Header;
using detail::Source;

bool starts_with(std::span<const std::uint8_t> bytes, std::string_view magic, std::size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

[[noreturn]] void fail_unknown_format(const Source& source) {
  const auto b = source.bytes;
  const char* known = nullptr;
  if (starts_with(b, "GIF8")) known = "GIF";
  if (starts_with(b, "RIFF") && starts_with(b, "WEBP", 8)) known = "WebP";
  if (starts_with(b, std::string_view("II*\0", 4)) || starts_with(b, std::string_view("MM\0*", 4)))
    known = "TIFF";
  if (starts_with(b, "ftyp", 4)) known = "HEIF or AVIF";
  if (starts_with(b, "\xFF\x0A") || starts_with(b, "JXL ", 4)) known = "JPEG XL";
  if (known != nullptr) {
    fail_unsupported("{}: {} is not read; convert it to JPEG, PNG or BMP", source.name, known);
  }
  std::string first;
  for (std::size_t i = 0; i < std::min<std::size_t>(b.size(), 8); ++i) first += fmt::format(" {:02x}", b[i]);
  fail("{}: not a JPEG, PNG or BMP image (it begins with the bytes{})", source.name, first);
}

// A copy of the PNG whose palette has an entry for every index that its bit depth allows. stb_image looks an
// index beyond the palette up in uninitialised memory; with this it is black, as with Pillow.
std::vector<std::uint8_t> with_full_palette(std::span<const std::uint8_t> png, const Header& header) {
  const auto byte_at = [&](std::size_t at) { return png.begin() + std::ptrdiff_t(at); };
  const std::size_t end = header.palette_at + 8 + header.palette_entries * 3;
  const std::size_t length = header.palette_capacity * 3;
  std::vector<std::uint8_t> out;
  out.reserve(png.size() + length);
  out.assign(png.begin(), byte_at(header.palette_at));
  for (const int shift : {24, 16, 8, 0}) out.push_back(std::uint8_t(length >> shift));
  out.insert(out.end(), byte_at(header.palette_at + 4), byte_at(end));
  out.resize(header.palette_at + 8 + length);
  out.insert(out.end(), byte_at(end), png.end());  // stb_image does not look at checksums
  return out;
}

Image decode_with_stb(const Source& source, std::span<const std::uint8_t> bytes, Extent extent,
                      const DecodeLimits& limits) {
  decoder_budget = limits.max_decoder_bytes;
  decoder_refused = false;
  int width = 0;
  int height = 0;
  int channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> data(
      stbi_load_from_memory(bytes.data(), static_cast<int>(bytes.size()), &width, &height, &channels, 3),
      stbi_image_free);
  if (data == nullptr) {
    if (decoder_refused) {
      fail("{}: decoding {} x {} pixels takes more than {} bytes of memory, or more than there are",
           source.name, extent.width, extent.height, limits.max_decoder_bytes);
    }
    const char* reason = stbi_failure_reason();
    fail("{}: damaged image: {}", source.name, reason != nullptr ? reason : "the decoder gives no reason");
  }
  if (Extent{height, width} != extent) {
    fail("{}: damaged image: {} x {} pixels decoded, {} x {} announced", source.name, width, height,
         extent.width, extent.height);
  }
  Image image{width, height, {}};
  image.pixels.assign(data.get(), data.get() + std::size_t(width) * std::size_t(height) * 3);
  return image;
}

}  // namespace

Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeLimits& limits) {
  const Source source{bytes, name};
  if (bytes.empty()) fail("{}: the image is empty (0 bytes)", name);
  if (bytes.size() > limits.max_file_bytes || bytes.size() > std::size_t{INT32_MAX}) {
    fail("{}: {} bytes are above the limit of {} for an image file", name, bytes.size(),
         limits.max_file_bytes);
  }
  if (starts_with(bytes, "BM")) return detail::decode_bmp(source, limits);
  if (starts_with(bytes, "\xFF\xD8")) {
    return decode_with_stb(source, bytes, detail::check_jpeg(source, limits).extent, limits);
  }
  if (starts_with(bytes, "\x89PNG\r\n\x1A\n")) {
    const Header header = detail::check_png(source, limits);
    if (header.palette_entries < header.palette_capacity) {
      return decode_with_stb(source, with_full_palette(bytes, header), header.extent, limits);
    }
    return decode_with_stb(source, bytes, header.extent, limits);
  }
  fail_unknown_format(source);
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

}  // namespace pipit
