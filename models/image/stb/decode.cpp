// JPEG and PNG by stb_image, for builds without libjpeg-turbo and libpng.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "engine/base/error.h"
#include "models/image/stb/container.h"

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

namespace pipit::internal {
namespace detail {
namespace {

// A copy of the PNG whose palette has an entry for every index that its bit depth allows. stb_image looks an
// index beyond the palette up in uninitialized memory; with this it is black, as with Pillow.
std::vector<std::uint8_t> with_full_palette(std::span<const std::uint8_t> png, const PngHeader& header) {
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

// The values of stbi_load or stbi_load_16, called with pointers to width and height.
template <typename Call>
auto load(const Source& source, Extent extent, const DecodeLimits& limits, Call call) {
  decoder_budget = limits.max_decoder_bytes;
  decoder_refused = false;
  Extent decoded;
  const auto values = call(&decoded.width, &decoded.height);
  std::unique_ptr<std::remove_pointer_t<decltype(values)>, void (*)(void*)> data(values, stbi_image_free);
  if (data == nullptr) {
    if (decoder_refused) {
      fail("{}: decoding {} x {} pixels takes more than {} bytes of memory, or more than there are",
           source.name, extent.width, extent.height, limits.max_decoder_bytes);
    }
    const char* reason = stbi_failure_reason();
    fail("{}: damaged image: {}", source.name, reason != nullptr ? reason : "the decoder gives no reason");
  }
  if (decoded != extent) {
    fail("{}: damaged image: {} x {} pixels decoded, {} x {} announced", source.name, decoded.width,
         decoded.height, extent.width, extent.height);
  }
  return data;
}

Image load_rgb(const Source& source, std::span<const std::uint8_t> bytes, Extent extent,
               const DecodeLimits& limits) {
  int channels = 0;
  const auto data = load(source, extent, limits, [&](int* width, int* height) {
    return stbi_load_from_memory(bytes.data(), static_cast<int>(bytes.size()), width, height, &channels, 3);
  });
  Image image{extent.width, extent.height, {}};
  image.pixels.assign(data.get(), data.get() + std::size_t(extent.width) * std::size_t(extent.height) * 3);
  return image;
}

Image load_grey16(const Source& source, Extent extent, const DecodeLimits& limits) {
  int channels = 0;
  const auto data = load(source, extent, limits, [&](int* width, int* height) {
    return stbi_load_16_from_memory(source.bytes.data(), static_cast<int>(source.bytes.size()), width, height,
                                    &channels, 1);
  });
  Image image = make_image(extent, source.name.c_str());
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const unsigned value = data.get()[i / 3];
    image.pixels[i] = clipped_grey(std::uint8_t(value >> 8), std::uint8_t(value & 255));
  }
  return image;
}

}  // namespace

Image decode_jpeg(const Source& source, const DecodeLimits& limits) {
  return load_rgb(source, source.bytes, check_jpeg(source, limits), limits);
}

Image decode_png(const Source& source, const DecodeLimits& limits) {
  const PngHeader header = check_png(source, limits);
  if (header.colour == 0 && header.depth == 16) return load_grey16(source, header.extent, limits);
  if (header.palette_entries < header.palette_capacity) {
    return load_rgb(source, with_full_palette(source.bytes, header), header.extent, limits);
  }
  return load_rgb(source, source.bytes, header.extent, limits);
}

}  // namespace detail

ImageDecoders image_decoders() {
  return {"stb_image", "stb_image", detail::webp_library()};
}

}  // namespace pipit::internal
