#include <gmock/gmock.h>

#include "layers/ops/normalize_image.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::make;
using test::results;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Channel c of byte v is v + 1000 c.
test::TensorPtr table_of(std::int64_t channels) {
  std::vector<float> values;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (int v = 0; v < 256; ++v) values.push_back(static_cast<float>(v + 1000 * c));
  }
  return make<float>(Shape{channels, 256}, values);
}

NormalizeImage plain() {
  return NormalizeImage(NormalizeImageAttributes{});
}

std::string error_of(const NormalizeImage& layer, const std::vector<TensorDesc>& inputs) {
  try {
    test::infer(layer, inputs);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(NormalizeImage, LooksUpEachChannelInItsTable) {
  const auto x = make<std::uint8_t>(Shape{1, 1, 2, 3}, {1, 2, 3, 254, 255, 0});
  const std::vector<test::TensorPtr> inputs{x, table_of(3)};
  EXPECT_THAT(results<float>(plain(), inputs), ElementsAre(1, 254, 1002, 1255, 2003, 2000));
  EXPECT_THAT(results<float>(NormalizeImage({.channels_first = false}), inputs),
              ElementsAre(1, 1002, 2003, 254, 1255, 2000));
  EXPECT_THAT(results<float>(NormalizeImage({.reverse_channels = true}), inputs),
              ElementsAre(3, 0, 1002, 1255, 2001, 2254));
}

TEST(NormalizeImage, InfersShapes) {
  const TensorDesc x{Shape{2, 5, 7, 3}, DType::u8}, table{Shape{3, 256}};
  EXPECT_EQ(test::infer(plain(), {x, table})[0].str(), (TensorDesc{Shape{2, 3, 5, 7}}.str()));
  EXPECT_EQ(test::infer(NormalizeImage({.channels_first = false}), {x, table})[0].str(),
            (TensorDesc{Shape{2, 5, 7, 3}}.str()));
}

TEST(NormalizeImage, RefusesWhatIsNoImage) {
  const TensorDesc table{Shape{3, 256}};
  EXPECT_THAT(error_of(plain(), {{Shape{2, 5, 7, 3}}, table}), HasSubstr("expected u8 [N, H, W, C]"));
  EXPECT_THAT(error_of(plain(), {{Shape{2, 5, 7, 5}, DType::u8}, table}), HasSubstr("1 to 4 channels"));
  EXPECT_THAT(error_of(plain(), {{Shape{5, 7, 3}, DType::u8}, table}), HasSubstr("expected u8"));
  EXPECT_THAT(error_of(plain(), {{Shape{2, 5, 7, 1}, DType::u8}, table}), HasSubstr("the table"));
}

TEST(NormalizeImage, IsTheSameInEveryLayout) {
  test::Random random;
  for (const Shape& shape : {Shape{2, 5, 7, 3}, Shape{1, 1, 9, 1}, Shape{3, 4, 4, 4}, Shape{2, 0, 3, 2}}) {
    for (const bool first : {false, true}) {
      for (const bool reverse : {false, true}) {
        const auto x = random.tensor(shape, 0, 256, DType::u8);
        const auto table = random.tensor(Shape{shape[3], 256}, -3, 3);
        test::expect_conformance(NormalizeImage({first, reverse}),
                                 {.inputs = {{x}, {table, true}}, .expected = {"table", "reference"}});
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace pipit::internal
