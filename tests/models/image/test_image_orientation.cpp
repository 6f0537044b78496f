#include <gmock/gmock.h>

#include <string>

#include "models/image/decode.h"
#include "models/image/orientation.h"
#include "tests/models/image/image_samples.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

using Bytes = std::vector<std::uint8_t>;

void put(Bytes& bytes, std::uint32_t value, int count, bool little) {
  for (int i = 0; i < count; ++i)
    bytes.push_back(static_cast<std::uint8_t>(value >> (8 * (little ? i : count - 1 - i))));
}

constexpr std::uint32_t kLong = 4;

// EXIF data with one entry before and one after the orientation.
Bytes exif(std::uint32_t orientation, bool little, std::uint32_t type = 3, std::uint32_t count = 1) {
  Bytes tiff = little ? Bytes{'I', 'I', 42, 0} : Bytes{'M', 'M', 0, 42};
  put(tiff, 8, 4, little);
  put(tiff, 3, 2, little);
  const auto entry = [&](std::uint32_t tag, std::uint32_t entry_type, std::uint32_t entry_count,
                         std::uint32_t value) {
    put(tiff, tag, 2, little);
    put(tiff, entry_type, 2, little);
    put(tiff, entry_count, 4, little);
    if (entry_type == kLong) {
      put(tiff, value, 4, little);
    } else {
      put(tiff, value, 2, little);
      put(tiff, 0, 2, little);
    }
  };
  entry(0x0100, 3, 1, 7);
  entry(0x0112, type, count, orientation);
  entry(0x0128, 3, 1, 2);
  put(tiff, 0, 4, little);
  return tiff;
}

Bytes jpeg_with(const Bytes& tiff) {
  Bytes file = {0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, 0xE1};
  put(file, static_cast<std::uint32_t>(tiff.size() + 8), 2, false);
  file.insert(file.end(), {'E', 'x', 'i', 'f', 0, 0});
  file.insert(file.end(), tiff.begin(), tiff.end());
  file.insert(file.end(), {0xFF, 0xDA, 0, 2, 0xFF, 0xD9});
  return file;
}

Bytes png_with(const Bytes& tiff) {
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0, 0, 0, 'I', 'D', 'A', 'T', 1, 2, 3, 4};
  put(file, static_cast<std::uint32_t>(tiff.size()), 4, false);
  file.insert(file.end(), {'e', 'X', 'I', 'f'});
  file.insert(file.end(), tiff.begin(), tiff.end());
  file.insert(file.end(), 16, 0);
  return file;
}

TEST(Orientation, IsReadFromBothFormatsInBothByteOrders) {
  for (std::uint32_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little : {false, true}) {
      EXPECT_EQ(exif_orientation(jpeg_with(exif(orientation, little))), int(orientation));
      EXPECT_EQ(exif_orientation(png_with(exif(orientation, little))), int(orientation));
      EXPECT_EQ(exif_orientation(jpeg_with(exif(orientation, little, kLong))), int(orientation));
    }
  }
}

TEST(Orientation, WhatIsNoOrientationMeansUpright) {
  for (const std::uint32_t value : {0u, 9u, 0xFFFFu})
    EXPECT_EQ(exif_orientation(jpeg_with(exif(value, true))), 1);
  EXPECT_EQ(exif_orientation(jpeg_with(exif(6, true, 5))), 1);  // neither SHORT nor LONG
  EXPECT_EQ(exif_orientation(jpeg_with(exif(0x10006, true, kLong))), 1);
  EXPECT_EQ(exif_orientation(jpeg_with(exif(6, true, 3, 2))), 1);  // two of them
  EXPECT_EQ(exif_orientation(jpeg_with({})), 1);
  EXPECT_EQ(exif_orientation(Bytes{'B', 'M', 0, 0}), 1);
  EXPECT_EQ(exif_orientation({}), 1);
  Bytes far = exif(6, true);
  far[4] = far[5] = far[6] = far[7] = 0xFF;  // the place of the directory
  EXPECT_EQ(exif_orientation(jpeg_with(far)), 1);
}

// Under AddressSanitizer: nothing is read beyond the end.
TEST(Orientation, DamagedFilesAreReadWithinTheirBounds) {
  for (const Bytes& whole : {jpeg_with(exif(6, true)), png_with(exif(6, false))}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + std::ptrdiff_t(size));
      EXPECT_THAT(exif_orientation(cut), ::testing::AnyOf(1, 6)) << size;
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const std::uint8_t flip : {0x01, 0x80, 0xFF}) {
        Bytes damaged = whole;
        damaged[at] ^= flip;
        const int orientation = exif_orientation(damaged);
        EXPECT_GE(orientation, 1);
        EXPECT_LE(orientation, 8);
      }
    }
  }
}

// Pixels by one letter each: two rows of three, "ABC" over "DEF".
TEST(Orientation, UprightTurnsAsPillowsExifTranspose) {
  const std::string expected[] = {"ABC/DEF",  "ABC/DEF",  "CBA/FED",  "FED/CBA", "DEF/ABC",
                                  "AD/BE/CF", "DA/EB/FC", "FC/EB/DA", "CF/BE/AD"};
  for (int orientation = 0; orientation <= 8; ++orientation) {
    Image image = make_image({2, 3}, "test");
    for (int i = 0; i < 18; ++i)
      image.pixels[std::size_t(i)] = static_cast<std::uint8_t>('A' + i / 3 + i % 3 * 32);
    image.exif_orientation = orientation;
    const Image turned = upright(image);
    std::string text;
    for (int y = 0; y < turned.height; ++y) {
      if (y > 0) text += '/';
      for (int x = 0; x < turned.width; ++x) {
        const std::uint8_t* pixel = turned.row(y) + x * 3;
        text += static_cast<char>(pixel[0]);
        EXPECT_EQ(pixel[1], pixel[0] + 32);
        EXPECT_EQ(pixel[2], pixel[0] + 64);
      }
    }
    EXPECT_EQ(text, expected[orientation]) << orientation;
    EXPECT_EQ(turned.exif_orientation, 1);
  }
}

TEST(Orientation, DecodingTellsItAndLeavesPixelsAsStored) {
  for (const test::Sample& sample : test::kSamples) {
    if (sample.name.starts_with("webp") && image_decoders().webp.empty()) continue;
    const Image image = decode_image(test::from_hex(sample.file));
    EXPECT_EQ(image.exif_orientation, sample.name.ends_with("_rotated") ? 6 : 1) << sample.name;
    EXPECT_EQ(image.width, sample.width);
  }
}

}  // namespace
}  // namespace pipit::internal
