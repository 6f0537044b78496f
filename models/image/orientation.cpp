#include "models/image/orientation.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace pipit::internal {
namespace {

using Bytes = std::span<const std::uint8_t>;

bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

constexpr std::string_view kExif{"Exif\0\0", 6};
constexpr std::string_view kPng{"\x89PNG\r\n\x1A\n"};

// An unsigned integer of `count` bytes; the caller has checked that they are there.
std::uint32_t number(Bytes bytes, std::size_t at, std::size_t count, bool little) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + (little ? count - 1 - i : i)];
  return value;
}

// EXIF data is a TIFF file; the orientation is an entry of its first directory.
int orientation_of_tiff(Bytes tiff) {
  while (begins_with(tiff, kExif)) tiff = tiff.subspan(kExif.size());
  const bool little = begins_with(tiff, {"II*\0", 4});
  if (tiff.size() < 8 || (!little && !begins_with(tiff, {"MM\0*", 4}))) return 1;
  const std::size_t directory = number(tiff, 4, 4, little);
  if (directory > tiff.size() - 2) return 1;
  const std::size_t entries = number(tiff, directory, 2, little);
  int orientation = 1;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = directory + 2 + i * 12;
    if (at + 12 > tiff.size()) break;
    constexpr std::uint32_t kOrientation = 0x0112;
    constexpr std::uint32_t kShort = 3;
    constexpr std::uint32_t kLong =
        4;  // what some cameras write and Pillow takes, where EXIF asks for a SHORT
    const std::uint32_t type = number(tiff, at + 2, 2, little);
    if (number(tiff, at, 2, little) != kOrientation || (type != kShort && type != kLong) ||
        number(tiff, at + 4, 4, little) != 1)
      continue;
    const std::uint32_t value = number(tiff, at + 8, type == kShort ? 2 : 4, little);
    orientation = value >= 1 && value <= 8 ? int(value) : 1;
  }
  return orientation;
}

// The first APP1 segment with EXIF data, before the first scan.
Bytes exif_of_jpeg(Bytes file) {
  std::size_t at = 2;
  while (at + 4 <= file.size() && file[at] == 0xFF) {
    const std::uint8_t marker = file[at + 1];
    if (marker == 0xFF) {  // a fill byte
      ++at;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;
    const std::size_t length = number(file, at + 2, 2, false);
    if (length < 2 || length > file.size() - at - 2) break;
    const Bytes data = file.subspan(at + 4, length - 2);
    if (marker == 0xE1 && begins_with(data, kExif)) return data;
    at += 2 + length;
  }
  return {};
}

Bytes exif_of_png(Bytes file) {
  std::size_t at = kPng.size();
  while (at + 12 <= file.size()) {
    const std::size_t length = number(file, at, 4, false);
    if (length > file.size() - at - 12) break;
    if (begins_with(file.subspan(at + 4), "eXIf")) return file.subspan(at + 8, length);
    at += length + 12;
  }
  return {};
}

Bytes exif_of_webp(Bytes file) {
  std::size_t at = 12;
  while (at + 8 <= file.size()) {
    const std::size_t length = number(file, at + 4, 4, true);
    if (length > file.size() - at - 8) break;
    if (begins_with(file.subspan(at), "EXIF")) return file.subspan(at + 8, length);
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace

int exif_orientation(Bytes file) {
  if (begins_with(file, "\xFF\xD8")) return orientation_of_tiff(exif_of_jpeg(file));
  if (begins_with(file, kPng)) return orientation_of_tiff(exif_of_png(file));
  if (begins_with(file, "RIFF")) return orientation_of_tiff(exif_of_webp(file));
  return 1;
}

Image upright(Image image) {
  const int orientation = image.exif_orientation;
  image.exif_orientation = 1;
  if (orientation <= 1 || orientation > 8) return image;
  check_image(image, "turning upright");
  // Stored rows run upwards for 3, 4, 6 and 7, columns leftwards for 2, 3, 7 and 8; from 5 on they change places.
  const bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool swapped = orientation >= 5;
  Image out = make_image(swapped ? Extent{image.width, image.height} : image.extent(), "turning upright");
  for (int y = 0; y < out.height; ++y) {
    std::uint8_t* to = out.row(y);
    for (int x = 0; x < out.width; ++x, to += 3) {
      const int row = swapped ? x : y;
      const int column = swapped ? y : x;
      const std::uint8_t* from = image.row(up ? image.height - 1 - row : row) +
                                 std::ptrdiff_t(left ? image.width - 1 - column : column) * 3;
      std::memcpy(to, from, 3);
    }
  }
  return out;
}

}  // namespace pipit::internal
