#include "models/prepared_images.h"

#include <gmock/gmock.h>

#include "engine/platform/thread_pool.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Prepared : public ::testing::Test {
 protected:
  // A BMP of one pixel, whose grey says which it is.
  fs::path image(int number) const {
    std::vector<std::uint8_t> bmp = test::from_hex(
        "424d3a0000000000000036000000280000000100000001000000010018000000000004000000000000000000000000000000"
        "00000000");
    bmp.resize(58, static_cast<std::uint8_t>(number));
    return folder_.write(fmt::format("{:03}.bmp", number), bmp);
  }
  fs::path broken(int number) const { return folder_.write(fmt::format("{:03}.bmp", number), "BM"); }

  PreparedImages prepared(std::vector<fs::path> images, std::size_t cache = 0) const {
    Preprocess as_they_are;
    as_they_are.scale = 1;
    return {std::move(images), as_they_are, SampleInputs({"x"}, {TensorDesc{Shape{3, 1, 1, 1}}}),
            std::make_shared<ThreadPool>(2), cache};
  }
  // The greys of all images, batch after batch.
  static std::vector<int> greys(PreparedImages& images) {
    std::vector<int> all;
    images.for_each_batch(
        [&](std::span<const ConstTensorView> batch, std::int64_t first, std::int64_t count) {
          EXPECT_EQ(first, std::ssize(all));
          for (std::int64_t i = 0; i < count; ++i)
            all.push_back(static_cast<int>(std::lround(batch[0].as<float>()[i])));
        });
    return all;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(Prepared, UnreadableImagesEndTheRunUnlessTheyAreSkipped) {
  PreparedImages images = prepared({image(1), broken(2), image(3)});
  EXPECT_THAT(test::error_of([&] { greys(images); }), HasSubstr("002.bmp"));
  images.skip_unreadable();
  EXPECT_THAT(greys(images), ElementsAre(1, 3));
  ASSERT_EQ(images.unreadable().size(), 1U);
  EXPECT_EQ(images.unreadable()[0].path.filename(), "002.bmp");
  EXPECT_THAT(images.unreadable()[0].error, HasSubstr("002.bmp"));
}

TEST_F(Prepared, OthersMoveUpWhereverSomeAreSkipped) {
  // Several patterns of broken images among 40, with and without a cache.
  for (const int every : {2, 3, 5, 39}) {
    for (const std::size_t cache : {std::size_t{0}, std::size_t{3 * 3 * 4 * 2}, std::size_t{1} << 20}) {
      std::vector<fs::path> paths;
      std::vector<int> expected;
      for (int i = 0; i < 40; ++i) {
        const bool good = i % every != 0 && i < 34;
        paths.push_back(good ? image(i) : broken(i));
        if (good) expected.push_back(i);
      }
      PreparedImages images = prepared(paths, cache);
      images.skip_unreadable();
      EXPECT_EQ(greys(images), expected) << every << ", cache " << cache;
      EXPECT_EQ(greys(images), expected) << "again, " << every << ", cache " << cache;
      EXPECT_EQ(images.size(), std::ssize(expected));
      EXPECT_EQ(images.unreadable().size(), paths.size() - expected.size());
      EXPECT_TRUE(std::ranges::is_sorted(images.unreadable(), {}, &UnreadableImage::path));
    }
  }
}

TEST_F(Prepared, NoneThatCanBeReadIsAnError) {
  PreparedImages images = prepared({broken(1), broken(2), broken(3), broken(4), broken(5)});
  images.skip_unreadable();
  EXPECT_THAT(test::error_of([&] { greys(images); }), AllOf(HasSubstr("001.bmp"), HasSubstr("none of")));
  PreparedImages one = prepared({broken(1)});
  one.skip_unreadable();
  EXPECT_THAT(test::error_of([&] { greys(one); }), HasSubstr("001.bmp"));
}

}  // namespace
}  // namespace pipit::internal
