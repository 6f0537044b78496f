#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "models/image/decode.h"
#include "models/image/stb/crc32.h"
#include "tests/models/image/image_samples.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

// This file is compiled twice, with the decoders of the build and with stb_image.
bool with_libraries() {
  return image_decoders().jpeg != "stb_image";
}

Bytes sample(std::string_view name) {
  for (const test::Sample& s : test::kSamples) {
    if (s.name == name) return test::from_hex(s.file);
  }
  ADD_FAILURE() << "no sample " << name;
  return {};
}

std::string decode_error(const Bytes& bytes) {
  return test::error_of([&] { decode_image(bytes, "x.img"); });
}

void put32(Bytes& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}
void put32_big(Bytes& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}
// After a change of the header chunk.
void repair_png_header(Bytes& png) {
  put32_big(png, 29, detail::crc32(std::span(png).subspan(12, 17)));
}

std::size_t find_marker(const Bytes& jpeg, std::uint8_t marker) {
  for (std::size_t i = 0; i + 1 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xFF && jpeg[i + 1] == marker) return i;
  }
  ADD_FAILURE() << "no marker";
  return 0;
}

class DecodeSample : public ::testing::TestWithParam<test::Sample> {
 protected:
  void SetUp() override {
    if (GetParam().name.starts_with("webp") && image_decoders().webp.empty())
      GTEST_SKIP() << "this build reads no WebP";
  }
};

TEST_P(DecodeSample, GivesThePixelsOfPillow) {
  const test::Sample& s = GetParam();
  const Image image = decode_image(test::from_hex(s.file));
  const Bytes expected = test::from_hex(s.pixels);
  ASSERT_EQ(image.height, s.height);
  ASSERT_EQ(image.width, s.width);
  ASSERT_EQ(image.pixels.size(), expected.size());
  const int tolerance = with_libraries() ? 0 : s.tolerance;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(image.pixels[i] - expected[i]), tolerance)
        << "pixel " << i / 3 << " channel " << i % 3 << ": " << int{image.pixels[i]} << ", Pillow "
        << int{expected[i]};
  }
}

TEST_P(DecodeSample, EveryTruncationIsAnError) {
  const Bytes whole = test::from_hex(GetParam().file);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A BMP may lack the padding of its last row.
    if (whole[0] == 'B' && whole.size() - size <= 3) continue;
    // What comes after the pixels of a PNG may be missing.
    if (whole[0] == 0x89 && with_libraries()) {
      try {
        EXPECT_EQ(decode_image(std::span(whole).first(size)).pixels, decode_image(whole).pixels) << size;
        EXPECT_GT(size + 24, whole.size());
      } catch (const Error&) {
      }
      continue;
    }
    EXPECT_THROW(decode_image(std::span(whole).first(size)), Error) << size << " of " << whole.size();
  }
}

TEST_P(DecodeSample, BytesBehindTheEndAreIgnored) {
  Bytes bytes = test::from_hex(GetParam().file);
  const Image expected = decode_image(bytes);
  for (int i = 0; i < 100; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 37));
  EXPECT_EQ(decode_image(bytes).pixels, expected.pixels);
}

TEST_P(DecodeSample, DamagedBytesNeverCrashAndGiveTheSameResultTwice) {
  const Bytes whole = test::from_hex(GetParam().file);
  const bool png = whole[0] == 0x89;
  const Image intact = decode_image(whole);
  int decoded = 0;
  for (std::size_t at = 2; at < whole.size(); ++at) {
    for (const std::uint8_t flip : {0x01, 0x80, 0xFF}) {
      Bytes damaged = whole;
      damaged[at] ^= flip;
      try {
        const Image first = decode_image(damaged);
        ++decoded;
        ASSERT_EQ(first.pixels, decode_image(damaged).pixels) << "byte " << at;
        // In a PNG every byte of what makes the pixels is under a checksum, which libpng leaves alone as Pillow does.
        if (png && !with_libraries()) {
          ASSERT_EQ(first.pixels, intact.pixels) << "byte " << at;
        }
      } catch (const Error&) {
      }
    }
  }
  // Elsewhere a change of pixel data is not seen.
  if (!png) {
    EXPECT_GT(decoded, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, DecodeSample, ::testing::ValuesIn(test::kSamples),
                         [](const auto& sample_info) { return std::string(sample_info.param.name); });

TEST(Decode, ReadsAFileWhateverItsName) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("really-a-png.jpg", sample("png_rgb"));
  EXPECT_EQ(decode_image(path).pixels, decode_image(sample("png_rgb")).pixels);
}

TEST(Decode, FileErrorsNameThePathAndTheReason) {
  const test::TemporaryFolder folder;
  const auto error = [](const std::filesystem::path& path) {
    return test::error_of([&] { decode_image(path); });
  };
  EXPECT_THAT(error(folder.path() / "none.png"), AllOf(HasSubstr("none.png"), HasSubstr("no such file")));
  EXPECT_THAT(error(folder.path()), HasSubstr("directory"));
  EXPECT_THAT(error("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(error(folder.write("empty.png", "")), AllOf(HasSubstr("empty.png"), HasSubstr("empty")));
  EXPECT_THAT(error(folder.write("text.jpg", "hello")),
              AllOf(HasSubstr("text.jpg"), HasSubstr("68 65 6c 6c 6f")));
  const Bytes png = sample("png_rgb");
  EXPECT_THAT(error(folder.write("cut.png", std::span(png).first(40))),
              AllOf(HasSubstr("cut.png"), HasSubstr("truncated")));
}

TEST(Decode, OtherFormatsAreNamed) {
  const auto error = [](std::string_view text) {
    return test::error_of<UnsupportedError>([&] { decode_image(Bytes(text.begin(), text.end())); });
  };
  EXPECT_THAT(error("GIF89a......"), HasSubstr("GIF"));
  EXPECT_THAT(error(std::string_view("RIFF....WEBPVP8X\x0a\0\0\0\x02\0\0\0", 24)),
              HasSubstr("animated WebP"));
  if (image_decoders().webp.empty()) {
    EXPECT_THAT(error("RIFF....WEBPVP8 "), HasSubstr("WebP"));
  }
  EXPECT_THAT(error(std::string_view("II*\0....", 8)), HasSubstr("TIFF"));
  EXPECT_THAT(error(std::string_view("\0\0\0\x18"
                                     "ftypheic",
                                     12)),
              HasSubstr("HEIC"));
  EXPECT_THAT(error("P6\n4 4\n255\n"), HasSubstr("PPM"));
}

TEST(Decode, WebPIsHeldToTheLimits) {
  if (image_decoders().webp.empty()) GTEST_SKIP() << "this build reads no WebP";
  const Bytes webp = sample("webp_lossless");  // 6 x 5
  EXPECT_NO_THROW(decode_image(webp, "x", {.max_side = 6, .max_pixels = 30}));
  EXPECT_THROW(decode_image(webp, "x", {.max_side = 5}), Error);
  EXPECT_THROW(decode_image(webp, "x", {.max_pixels = 29}), Error);
  EXPECT_THAT(test::error_of([&] { decode_image(webp, "x", {.max_decoder_bytes = 100}); }),
              HasSubstr("memory"));
  Bytes longer = webp;
  longer[4] = 0xFF;  // of the length in its header
  EXPECT_THAT(decode_error(longer), HasSubstr("truncated"));
  EXPECT_EQ(decode_image(sample("webp_rotated")).exif_orientation, 6);
}

TEST(Decode, LimitsAreCheckedBeforeDecoding) {
  const Bytes png = sample("png_rgb");  // 6 x 5
  EXPECT_NO_THROW(decode_image(png, "x", {.max_side = 6, .max_pixels = 30}));
  EXPECT_THROW(decode_image(png, "x", {.max_side = 5}), Error);
  EXPECT_THROW(decode_image(png, "x", {.max_pixels = 29}), Error);
  EXPECT_THROW(decode_image(png, "x", {.max_file_bytes = png.size() - 1}), Error);
  const test::TemporaryFolder folder;
  const auto path = folder.write("x.png", png);
  EXPECT_THROW(decode_image(path, {.max_file_bytes = png.size() - 1}), Error);
  EXPECT_THAT(
      test::error_of([&] { decode_image(sample("jpeg_progressive"), "x", {.max_decoder_bytes = 100}); }),
      HasSubstr("memory"));
}

TEST(Decode, HugeSidesInASmallFileAreRefused) {
  for (const auto& [width, height] : {std::pair{65'536u, 1u},
                                      {1u, 65'536u},
                                      {30'000u, 30'000u},
                                      {8'000u, 8'000u},
                                      {0u, 5u},
                                      {5u, 0u},
                                      {0xFFFFFFFFu, 0xFFFFFFFFu},
                                      {0x80000000u, 0x80000000u}}) {
    SCOPED_TRACE(fmt::format("{} x {}", width, height));
    Bytes png = sample("png_rgb");
    put32_big(png, 16, width);
    put32_big(png, 20, height);
    repair_png_header(png);
    EXPECT_THROW(decode_image(png), Error);
    Bytes bmp = sample("bmp_rgb");
    put32(bmp, 18, width);
    put32(bmp, 22, height);
    EXPECT_THROW(decode_image(bmp), Error);
    Bytes jpeg = sample("jpeg_baseline");
    const std::size_t frame = find_marker(jpeg, 0xC0);
    jpeg[frame + 5] = static_cast<std::uint8_t>(height >> 8);
    jpeg[frame + 6] = static_cast<std::uint8_t>(height);
    jpeg[frame + 7] = static_cast<std::uint8_t>(width >> 8);
    jpeg[frame + 8] = static_cast<std::uint8_t>(width);
    if (height <= 0xFFFF) {
      EXPECT_THROW(decode_image(jpeg), Error);
    }
  }
}

TEST(Decode, MoreDataThanPixelsStaysWithinTheMemoryLimit) {
  // 13 MB of stored zeros after a header of 1 x 1.
  Bytes data = {0x78, 0x01};
  for (int block = 0; block < 200; ++block) {
    data.insert(data.end(), {static_cast<std::uint8_t>(block == 199), 0xFF, 0xFF, 0x00, 0x00});
    data.resize(data.size() + 0xFFFF);
  }
  Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const auto chunk = [&png](std::string_view type, const Bytes& content) {
    const std::size_t at = png.size();
    png.resize(at + 4);
    png.insert(png.end(), type.begin(), type.end());
    png.insert(png.end(), content.begin(), content.end());
    put32_big(png, at, static_cast<std::uint32_t>(content.size()));
    const std::uint32_t crc = detail::crc32(std::span(png).subspan(at + 4));
    png.resize(png.size() + 4);
    put32_big(png, png.size() - 4, crc);
  };
  chunk("IHDR", {0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0});
  chunk("IDAT", data);
  chunk("IEND", {});
  const DecodeLimits little{.max_decoder_bytes = 20'000'000};
  if (with_libraries()) {
    EXPECT_EQ(decode_image(png, "x", little).pixels, (Bytes{0, 0, 0}));  // it stops at the last pixel
  } else {
    EXPECT_THAT(test::error_of([&] { decode_image(png, "x", little); }), HasSubstr("memory"));
  }
}

TEST(DecodePng, AWrongChecksumOfTheHeaderIsAnError) {
  Bytes png = sample("png_rgb");
  png[32] ^= 1;
  EXPECT_THAT(decode_error(png), AnyOf(HasSubstr("checksum"), HasSubstr("CRC")));
}

TEST(DecodePng, WhatComesAfterThePixelsMayBeLostOrDamaged) {
  if (!with_libraries()) GTEST_SKIP() << "stb_image wants the whole file";
  const Bytes png = sample("png_rgb");
  const Image whole = decode_image(png);
  for (const std::size_t lost :
       {1U, 4U, 8U, 11U, 12U, 14U, 16U}) {  // of IEND, then of the checksum before it
    EXPECT_EQ(decode_image(std::span(png).first(png.size() - lost)).pixels, whole.pixels) << lost;
  }
  for (const std::size_t from_end : {1U, 5U, 9U, 13U}) {
    Bytes damaged = png;
    damaged[png.size() - from_end] ^= 0x10;
    EXPECT_EQ(decode_image(damaged).pixels, whole.pixels) << from_end;
  }
}

// A PNG of grey rows, 2 pixels each, stored without compression.
Bytes stored_png(int rows, const Bytes& data, std::uint32_t adler, bool whole_stream) {
  Bytes stream = {0x78, 0x01, 0x01};
  const auto length = static_cast<std::uint8_t>(data.size());
  stream.insert(stream.end(), {length, 0, static_cast<std::uint8_t>(~length), 0xFF});
  stream.insert(stream.end(), data.begin(), data.end());
  stream.resize(stream.size() + 4);
  put32_big(stream, stream.size() - 4, adler);
  if (!whole_stream) stream.resize(stream.size() - 6);
  Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const auto chunk = [&png](std::string_view type, const Bytes& content) {
    const std::size_t at = png.size();
    png.resize(at + 4);
    png.insert(png.end(), type.begin(), type.end());
    png.insert(png.end(), content.begin(), content.end());
    put32_big(png, at, static_cast<std::uint32_t>(content.size()));
    const std::uint32_t crc = detail::crc32(std::span(png).subspan(at + 4));
    png.resize(png.size() + 4);
    put32_big(png, png.size() - 4, crc);
  };
  chunk("IHDR", {0, 0, 0, 2, 0, 0, 0, static_cast<std::uint8_t>(rows), 8, 0, 0, 0, 0});
  chunk("IDAT", stream);
  chunk("IEND", {});
  return png;
}

TEST(DecodePng, RowsThatTheDataLacksAreBlackAndDataThatIsCutIsAnError) {
  if (!with_libraries()) GTEST_SKIP() << "stb_image wants all rows";
  const Bytes data = {0, 10, 20, 0, 30, 40};
  std::uint32_t a = 1, b = 0;
  for (const std::uint8_t byte : data) {
    a += byte;
    b += a;
  }
  const Image image = decode_image(stored_png(4, data, b << 16 | a, true));
  EXPECT_EQ(image.pixels,
            (Bytes{10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_THAT(decode_error(stored_png(4, data, b << 16 | a, false)), HasSubstr("damaged PNG"));
}

// A BMP of 5 x 3 pixels with a palette whose entry i is grey i * step.
Bytes run_length_bmp(int bits, const Bytes& runs) {
  Bytes bmp(54);
  const std::size_t entries = std::size_t{1} << bits;
  bmp[0] = 'B';
  bmp[1] = 'M';
  put32(bmp, 10, static_cast<std::uint32_t>(54 + 4 * entries));
  put32(bmp, 14, 40);
  put32(bmp, 18, 5);
  put32(bmp, 22, 3);
  bmp[26] = 1;
  bmp[28] = static_cast<std::uint8_t>(bits);
  put32(bmp, 30, bits == 8 ? 1 : 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const auto grey = static_cast<std::uint8_t>(bits == 8 ? i : 17 * i);
    bmp.insert(bmp.end(), {grey, grey, grey, 0});
  }
  bmp.insert(bmp.end(), runs.begin(), runs.end());
  return bmp;
}

std::vector<int> greys(const Image& image) {
  std::vector<int> values;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
  return values;
}

TEST(DecodeBmp, RunsAreReadAsPillowReadsThem) {
  // A run, a list with its padding, the end of a row, a jump, and a run that is longer than its row.
  const Image bytes = decode_image(
      run_length_bmp(8, {2, 7, 0, 3, 11, 12, 13, 99, 0, 0, 0, 2, 3, 0, 2, 21, 0, 0, 9, 31, 0, 1}));
  EXPECT_THAT(greys(bytes), ::testing::ElementsAre(31, 31, 31, 31, 31, 0, 0, 0, 21, 21, 7, 7, 11, 12, 13));
  const Image halves =
      decode_image(run_length_bmp(4, {5, 0x12, 0, 0, 0, 5, 0x34, 0x56, 0x70, 0, 0, 0, 5, 0x80, 0, 1}));
  EXPECT_THAT(greys(halves),
              ::testing::ElementsAre(136, 0, 136, 0, 136, 51, 68, 85, 102, 119, 17, 34, 17, 34, 17));
  EXPECT_THAT(decode_error(run_length_bmp(8, {2, 7, 0, 1})), HasSubstr("its runs give 2 of 5 x 3 pixels"));
  EXPECT_THAT(decode_error(run_length_bmp(8, {5, 7, 5})), HasSubstr("truncated BMP"));
}

TEST(DecodePng, ChunksOutOfOrderAreAnError) {
  const Bytes png = sample("png_rgb");
  Bytes twice = png;
  twice.insert(twice.begin() + 33, png.begin() + 8, png.begin() + 33);
  EXPECT_THAT(decode_error(twice), HasSubstr("IHDR"));
  Bytes none(png.begin(), png.begin() + 33);
  std::copy(png.end() - 12, png.end(), std::back_inserter(none));
  EXPECT_THAT(decode_error(none), AnyOf(HasSubstr("IDAT"), HasSubstr("IEND: out of place")));
}

TEST(DecodeJpeg, OneThatIsTooLargeIsNotDamaged) {
  Bytes jpeg = sample("jpeg_baseline");
  const std::size_t frame = find_marker(jpeg, 0xC0);
  for (std::size_t i = 5; i < 9; ++i) jpeg[frame + i] = 0xFF;
  EXPECT_THAT(decode_error(jpeg), HasSubstr("65535 x 65535 pixels are above the limit"));
}

TEST(DecodeJpeg, UnimplementedProcessesAreNamed) {
  Bytes jpeg = sample("jpeg_baseline");
  const std::size_t frame = find_marker(jpeg, 0xC0);
  jpeg[frame + 1] = 0xC5;  // hierarchical
  EXPECT_THAT(test::error_of<UnsupportedError>([&] { decode_image(jpeg); }), HasSubstr("JPEG process"));
  jpeg[frame + 1] = 0xC0;
  jpeg[frame + 4] = 12;
  EXPECT_THAT(test::error_of<UnsupportedError>([&] { decode_image(jpeg); }), HasSubstr("12"));
}

TEST(DecodeJpeg, TablesHaveToBeDefinedAndToFit) {
  Bytes no_huffman = sample("jpeg_baseline");
  no_huffman[find_marker(no_huffman, 0xC4) + 1] = 0xFE;  // the first table becomes a comment
  if (with_libraries()) {
    EXPECT_NO_THROW(
        decode_image(no_huffman));  // the standard's example tables, as frames of Motion JPEG need
  } else {
    EXPECT_THAT(decode_error(no_huffman), HasSubstr("Huffman"));
  }
  Bytes no_quantization = sample("jpeg_baseline");
  no_quantization[find_marker(no_quantization, 0xDB) + 1] = 0xFE;
  EXPECT_THAT(decode_error(no_quantization), AnyOf(HasSubstr("quantization"), HasSubstr("Quantization")));
  Bytes oversized = sample("jpeg_baseline");
  for (std::size_t i = 0; i < 16; ++i) oversized[find_marker(oversized, 0xC4) + 5 + i] = 0xFF;
  EXPECT_THAT(decode_error(oversized), AnyOf(HasSubstr("symbols"), HasSubstr("Bogus Huffman table")));
}

TEST(DecodeJpeg, TooManyScansAreRefused) {
  const Bytes jpeg = sample("jpeg_progressive");
  std::size_t scan = find_marker(jpeg, 0xDA);
  for (std::size_t i = scan; i + 1 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xDA) scan = i;
  }
  Bytes many(jpeg.begin(), jpeg.begin() + std::ptrdiff_t(scan));
  for (int i = 0; i < 101; ++i) many.insert(many.end(), jpeg.begin() + std::ptrdiff_t(scan), jpeg.end() - 2);
  many.insert(many.end(), {0xFF, 0xD9});
  EXPECT_THAT(decode_error(many), HasSubstr("scans"));
}

// Pillow's rule too: such a file shows what was read up to the damage.
TEST(DecodeJpeg, DataThatEndsEarlyIsDecodedAsFarAsItGoes) {
  const Bytes whole = sample("jpeg_noise");
  const std::size_t scan = find_marker(whole, 0xDA);
  Bytes early(whole.begin(), whole.begin() + std::ptrdiff_t((scan + 2 * whole.size()) / 3));
  early.insert(early.end(), {0xFF, 0xD9});
  const Image image = decode_image(early);
  const Image expected = decode_image(whole);
  EXPECT_EQ(image.extent(), expected.extent());
  EXPECT_TRUE(std::equal(image.row(0), image.row(0) + 8 * 3, expected.row(0)));
  EXPECT_NE(image.pixels, expected.pixels);
}

TEST(DecodeJpeg, FillBytesBeforeAMarkerAreAllowed) {
  Bytes jpeg = sample("jpeg_baseline");
  const Image expected = decode_image(jpeg);
  jpeg.insert(jpeg.begin() + std::ptrdiff_t(find_marker(jpeg, 0xC0)), {0xFF, 0xFF});
  EXPECT_EQ(decode_image(jpeg).pixels, expected.pixels);
}

// A BMP with a 40-byte header and nothing after it.
Bytes bmp_header(int width, int height, int bits, std::uint32_t compression, std::uint32_t pixels_at) {
  Bytes bmp(54);
  bmp[0] = 'B';
  bmp[1] = 'M';
  put32(bmp, 10, pixels_at);
  put32(bmp, 14, 40);
  put32(bmp, 18, static_cast<std::uint32_t>(width));
  put32(bmp, 22, static_cast<std::uint32_t>(height));
  bmp[26] = 1;
  bmp[28] = static_cast<std::uint8_t>(bits);
  put32(bmp, 30, compression);
  return bmp;
}

TEST(DecodeBmp, RowsMayRunDownwards) {
  Bytes up = bmp_header(1, 2, 24, 0, 54);
  Bytes down = bmp_header(1, -2, 24, 0, 54);
  for (Bytes* bmp : {&up, &down}) bmp->insert(bmp->end(), {1, 2, 3, 0, 4, 5, 6, 0});
  EXPECT_EQ(decode_image(up).pixels, (Bytes{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(decode_image(down).pixels, (Bytes{3, 2, 1, 6, 5, 4}));
}

TEST(DecodeBmp, SixteenBitsAndBitFields) {
  Bytes plain = bmp_header(2, 1, 16, 0, 54);
  plain.insert(plain.end(), {0xFF, 0x7F, 0x10, 0x00});
  EXPECT_EQ(decode_image(plain).pixels, (Bytes{255, 255, 255, 0, 0, 131}));
  Bytes fields = bmp_header(1, 1, 16, 3, 66);
  fields.resize(66);
  put32(fields, 54, 0xF800);
  put32(fields, 58, 0x07E0);
  put32(fields, 62, 0x001F);
  Bytes good = fields;
  good.insert(good.end(), {0xE0, 0x07, 0, 0});
  EXPECT_EQ(decode_image(good).pixels, (Bytes{0, 255, 0}));
  for (const std::uint32_t mask : {0u, 0x5000u, 0x1FF0u, 0xF0000u, 0xFFFFFFFFu}) {
    Bytes bad = good;
    put32(bad, 54, mask);
    EXPECT_THAT(decode_error(bad), HasSubstr("mask")) << mask;
  }
}

TEST(DecodeBmp, AnIndexBeyondThePaletteIsBlack) {
  Bytes bmp = bmp_header(2, 1, 4, 0, 58);
  put32(bmp, 46, 1);
  bmp.insert(bmp.end(), {10, 20, 30, 0, 0x01, 0, 0, 0});
  EXPECT_EQ(decode_image(bmp).pixels, (Bytes{30, 20, 10, 0, 0, 0}));
}

TEST(DecodeBmp, BadHeadersAreErrors) {
  EXPECT_THAT(test::error_of<UnsupportedError>([&] { decode_image(bmp_header(4, 4, 8, 4, 54)); }),
              HasSubstr("compression 4"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 24, 1, 54)), HasSubstr("24 bits per pixel with compression 1"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 7, 0, 54)), HasSubstr("7 bits"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 24, 0, 54)), HasSubstr("truncated"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 24, 0, 10)), HasSubstr("inside the header"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 24, 0, 0xFFFFFFFF)), HasSubstr("truncated"));
  EXPECT_THAT(decode_error(bmp_header(4, 4, 8, 0, 54)), HasSubstr("palette"));
  EXPECT_THAT(decode_error(bmp_header(-4, 4, 24, 0, 54)), HasSubstr("-4"));
  EXPECT_THROW(decode_image(bmp_header(4, INT32_MIN, 24, 0, 54)), Error);
  Bytes header_size = bmp_header(4, 4, 24, 0, 54);
  put32(header_size, 14, 0xFFFFFFFF);
  EXPECT_THAT(decode_error(header_size), HasSubstr("header"));
}

}  // namespace
}  // namespace pipit::internal
