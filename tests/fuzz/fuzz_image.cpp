// libFuzzer target: bytes of an image file -> decode -> resize -> preprocess. Only pipit::Error may come out.
//   Seeds: any small JPEG, PNG and BMP files. Run with -rss_limit_mb=512 -max_len=65536.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "models/image/decode.h"
#include "models/image/preprocess.h"
#include "models/image/resize.h"
#include "models/image/stb/crc32.h"

namespace {

// Makes the checksums of a PNG right: a mutation would otherwise never get past them.
void repair_png(std::vector<std::uint8_t>& bytes) {
  std::size_t at = 8;
  while (at + 12 <= bytes.size()) {
    const std::size_t length = std::size_t{bytes[at]} << 24 | std::size_t{bytes[at + 1]} << 16 |
                               std::size_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (length > bytes.size() - at - 12) return;
    const std::uint32_t crc = pipit::internal::detail::crc32(std::span(bytes).subspan(at + 4, length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      bytes[at + 8 + length + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipit;
  using namespace pipit::internal;
  std::vector<std::uint8_t> bytes(data, data + size);
  if (size > 1 && bytes[0] == 0x89) repair_png(bytes);
  // Small enough for thousands of runs per second; the checks are the same as with the default limits.
  const DecodeLimits limits{.max_side = 2048,
                            .max_pixels = 1 << 16,
                            .max_file_bytes = 1 << 20,
                            .max_decoder_bytes = std::uint64_t{16} << 20};
  try {
    const Image image = decode_image(bytes, "fuzz", limits);
    check_image(image, "fuzz");
    // The last byte, which the formats ignore, selects the variant.
    const std::uint8_t way = bytes.back();
    const auto interpolation = static_cast<Interpolation>(way % 3);
    const Image stretched = resize(image, {1 + way % 16, 1 + way / 16}, interpolation);
    check_image(stretched, "fuzz");
    Preprocess p = preprocess_preset((way & 4) != 0 ? "caffe" : "timm");
    p.interpolation = interpolation;
    p = fit_to_input(p, 8 + way % 5, 8 + way % 7);
    const Extent out = preprocessed_extent(p, image.extent());
    const std::size_t plane = static_cast<std::size_t>(out.height) * static_cast<std::size_t>(out.width);
    std::vector<float> values(3 * plane);
    preprocess(image, p, values);
    preprocess_gray(image, p, std::span(values).first(plane));
  } catch (const Error&) {
  }
  return 0;
}
