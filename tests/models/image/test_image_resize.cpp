#include <gmock/gmock.h>

#include "models/image/resize.h"
#include "tests/models/image/image_test_util.h"
#include "tests/models/image/resize_expectations.h"

namespace pipit::internal {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

std::uint64_t fnv1a(const Bytes& bytes) {
  std::uint64_t value = 0xCBF29CE484222325u;
  for (const std::uint8_t b : bytes) value = (value ^ b) * 0x100000001B3u;
  return value;
}

TEST(Resize, SmallImagesHaveThePixelsOfPillow) {
  for (const test::SmallResize& r : test::kSmallResizes) {
    SCOPED_TRACE(fmt::format("{} {} x {} to {} x {} (h x w), {}", r.source, r.from_height, r.from_width,
                             r.to_height, r.to_width, r.interpolation));
    const Image source = test::source_image(r.source, r.from_height, r.from_width);
    const Image out = resize(source, {r.to_height, r.to_width}, parse_interpolation(r.interpolation));
    EXPECT_EQ(out.extent(), (Extent{r.to_height, r.to_width}));
    EXPECT_EQ(out.pixels, r.pixels);
  }
}

TEST(Resize, LargeImagesHaveTheChecksumsOfPillow) {
  for (const test::LargeResize& r : test::kLargeResizes) {
    SCOPED_TRACE(fmt::format("{} {} x {} to {} x {} (h x w), {}", r.source, r.from_height, r.from_width,
                             r.to_height, r.to_width, r.interpolation));
    const Image source = test::source_image(r.source, r.from_height, r.from_width);
    const Image out = resize(source, {r.to_height, r.to_width}, parse_interpolation(r.interpolation));
    EXPECT_EQ(fnv1a(out.pixels), r.fnv1a);
  }
}

TEST(Resize, ToTheSameSizeIsACopy) {
  const Image image = test::random_image(9, 4);
  for (const auto i : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    EXPECT_EQ(resize(image, {9, 4}, i).pixels, image.pixels);
  }
}

TEST(Resize, AUniformImageStaysUniform) {
  Image image = make_image({13, 29}, "test");
  std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{255});
  for (const auto i : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    for (const Extent target : {Extent{1, 1}, Extent{7, 11}, Extent{100, 3}, Extent{40, 80}}) {
      const Image out = resize(image, target, i);
      EXPECT_THAT(out.pixels, ::testing::Each(255));
    }
  }
}

TEST(Resize, BadSizesAreErrors) {
  const Image image = test::random_image(4, 4);
  const auto error = [&](Extent target) {
    return test::error_of([&] { resize(image, target, Interpolation::bilinear); });
  };
  EXPECT_THAT(error({0, 4}), HasSubstr("at least 1"));
  EXPECT_THAT(error({4, -1}), HasSubstr("at least 1"));
  EXPECT_THAT(error({kMaxImageSide + 1, 4}), HasSubstr("limit"));
  EXPECT_THAT(error({20'000, 20'000}), HasSubstr("limit"));
  EXPECT_THROW(resize(image, {0, 4}, Interpolation::nearest), Error);
  EXPECT_THROW(resize(image, {kMaxImageSide + 1, 4}, Interpolation::nearest), Error);
  Image lying = image;
  lying.width = 5;
  EXPECT_THAT(test::error_of([&] { resize(lying, {2, 2}, Interpolation::bilinear); }), HasSubstr("holds 48"));
  EXPECT_THROW(center_crop(lying, {2, 2}), Error);
}

TEST(Resize, TheImageBetweenThePassesIsBoundedToo) {
  const Image tall = test::random_image(30'000, 1);
  EXPECT_THAT(test::error_of([&] {
                resize(tall, {1, 30'000}, Interpolation::bilinear);
              }),
              HasSubstr("between"));
  EXPECT_EQ(resize(tall, {1, 2}, Interpolation::bicubic).extent(), (Extent{1, 2}));
}

TEST(Resize, InterpolationNamesReadBack) {
  for (const auto i : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    EXPECT_EQ(parse_interpolation(interpolation_name(i)), i);
  }
  EXPECT_THAT(test::error_of([] { parse_interpolation("lanczos"); }),
              ::testing::AllOf(HasSubstr("lanczos"), HasSubstr("nearest, bilinear or bicubic")));
}

// The values are those of torchvision.transforms.functional.resize for an integer size.
TEST(ShortSide, RoundsTheLongSideDown) {
  EXPECT_EQ(short_side_extent({375, 500}, 256), (Extent{256, 341}));
  EXPECT_EQ(short_side_extent({500, 375}, 256), (Extent{341, 256}));
  EXPECT_EQ(short_side_extent({333, 333}, 256), (Extent{256, 256}));
  EXPECT_EQ(short_side_extent({3, 7}, 2), (Extent{2, 4}));
  EXPECT_EQ(short_side_extent({32, 48}, 256), (Extent{256, 384}));
  EXPECT_EQ(short_side_extent({256, 777}, 256), (Extent{256, 777}));
  EXPECT_EQ(short_side_extent({3, 29'999}, 3), (Extent{3, 29'999}));
}

TEST(ShortSide, ExtremeAspectRatiosAreErrors) {
  EXPECT_THAT(test::error_of([] { short_side_extent({1, 30'000}, 256); }), HasSubstr("7680000"));
  EXPECT_THROW(short_side_extent({10, 10}, 0), Error);
  EXPECT_THROW(short_side_extent({0, 10}, 10), Error);
  EXPECT_THROW(short_side_extent({10, 10}, 2'000'000'000), Error);
}

// A one-row image whose red channel counts its columns.
Image ramp(int width) {
  Image image = make_image({1, width}, "test");
  for (int x = 0; x < width; ++x) image.row(0)[x * 3] = static_cast<std::uint8_t>(x + 1);
  return image;
}

std::vector<int> reds(const Image& image) {
  std::vector<int> out;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) out.push_back(image.pixels[i]);
  return out;
}

TEST(CenterCrop, HalfPixelsGoToTheEvenOffset) {
  EXPECT_EQ(reds(center_crop(ramp(6), {1, 4})), (std::vector{2, 3, 4, 5}));  // 1
  EXPECT_EQ(reds(center_crop(ramp(5), {1, 4})), (std::vector{1, 2, 3, 4}));  // 0.5 -> 0
  EXPECT_EQ(reds(center_crop(ramp(7), {1, 4})), (std::vector{3, 4, 5, 6}));  // 1.5 -> 2
  EXPECT_EQ(reds(center_crop(ramp(9), {1, 4})), (std::vector{3, 4, 5, 6}));  // 2.5 -> 2
}

TEST(CenterCrop, PadsASmallerImageWithBlack) {
  EXPECT_EQ(reds(center_crop(ramp(2), {1, 4})), (std::vector{0, 1, 2, 0}));
  EXPECT_EQ(reds(center_crop(ramp(2), {1, 5})), (std::vector{0, 1, 2, 0, 0}));
  EXPECT_EQ(reds(center_crop(ramp(2), {2, 2})), (std::vector{1, 2, 0, 0}));
  EXPECT_EQ(reds(center_crop(ramp(2), {3, 2})), (std::vector{0, 0, 1, 2, 0, 0}));
}

TEST(CenterCrop, CropsOneSideAndPadsTheOther) {
  EXPECT_EQ(reds(center_crop(ramp(6), {3, 2})), (std::vector{0, 0, 3, 4, 0, 0}));
  EXPECT_THROW(center_crop(ramp(6), {0, 2}), Error);
}

TEST(CenterCrop, KeepsAllChannels) {
  const Image image = test::random_image(9, 8);
  const Image out = center_crop(image, {5, 4});
  for (int y = 0; y < 5; ++y) {
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out.row(y)[i], image.row(y + 2)[i + 6]);
  }
}

}  // namespace
}  // namespace pipit::internal
