#include <gmock/gmock.h>

#include <numeric>

#include "layers/ops/reshaping.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::iota;
using test::make;
using test::results;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Dims = std::vector<std::int64_t>;

constexpr DType kSizes[] = {DType::u8, DType::f32, DType::f64};  // one of every element size
constexpr Layout kLayouts[] = {Layout::row_major, Layout::channels_last};

TEST(Reshape, KeepsRowMajorOrder) {
  test::Random random;
  EXPECT_THAT(results<float>(Reshape({Shape{3, 2}}), {iota(Shape{2, 3})}), ElementsAre(0, 1, 2, 3, 4, 5));
  for (const DType type : kSizes) {
    test::expect_conformance(
        Reshape({Shape{3, 4, 10}}),
        {.inputs = {{random.tensor(Shape{2, 5, 3, 4}, 0, 9, type)}}, .expected = {"reference"}});
  }
  EXPECT_THROW(test::infer(Reshape({Shape{5}}), {{Shape{2, 3}}}), Error);
}

TEST(Reshape, IsAViewWhereMemoryOrderStays) {
  const Reshape flatten({Shape{2, 12}});
  const auto is_view = [&](const Shape& shape, Layout layout) {
    return flatten.is_view({shape, DType::f32, layout}, {Shape{2, 12}});
  };
  EXPECT_TRUE(is_view(Shape{2, 3, 4}, Layout::row_major));
  EXPECT_FALSE(is_view(Shape{2, 3, 4}, Layout::channels_last));
  EXPECT_TRUE(is_view(Shape{2, 12, 1, 1}, Layout::channels_last));
  EXPECT_TRUE(is_view(Shape{2, 1, 3, 4}, Layout::channels_last));
  const TensorDesc image{Shape{2, 3, 4}, DType::f32, Layout::channels_last};
  EXPECT_TRUE(Reshape({image.shape}).is_view(image, image));
}

TEST(Transpose, PermutesDimensions) {
  EXPECT_THAT(results<float>(Transpose({{1, 0}}), {iota(Shape{2, 3})}), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(results<float>(Transpose({{2, 0, 1}}), {iota(Shape{1, 2, 3})}), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Transpose, KernelsMatchTheReference) {
  test::Random random;
  for (int round = 0; round < 60; ++round) {
    Dims dims(static_cast<std::size_t>(random.integer(0, kMaxRank)));
    for (std::int64_t& d : dims) d = random.integer(1, 6);
    Dims permutation(dims.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    for (std::size_t d = dims.size(); d > 1; --d) {
      std::swap(permutation[d - 1],
                permutation[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(d) - 1))]);
    }
    test::expect_conformance(Transpose({permutation}),
                             {.inputs = {{random.tensor(Shape(dims), 0, 100, kSizes[random.integer(0, 2)])}},
                              .expected = {"strided_copy"}});
  }
  // Several tiles with ragged ends.
  for (const DType type : kSizes) {
    test::expect_conformance(
        Transpose({{0, 2, 1}}),
        {.inputs = {{random.tensor(Shape{3, 71, 100}, 0, 100, type)}}, .expected = {"strided_copy"}});
  }
}

// Tiles that end anywhere, of three rows or columns, and with rows of the target that share sets of a cache.
TEST(Transpose, MatchesTheReferenceOnTilesOfAllSizes) {
  test::Random random;
  const auto extent = [&] {
    const std::int64_t kinds[] = {3, random.integer(1, 20), random.integer(21, 70)};
    return kinds[random.integer(0, 2)];
  };
  for (int round = 0; round < 40; ++round) {
    const Shape shape{random.integer(1, 2), round % 4 == 0 ? 512 : extent(), extent()};
    test::expect_conformance(Transpose({{0, 2, 1}}),
                             {.inputs = {{random.tensor(shape, 0, 100, kSizes[random.integer(0, 2)])}},
                              .expected = {"strided_copy"}});
  }
}

// A view exactly where the elements of a transposed iota lie in memory as they did.
TEST(Transpose, IsAViewExactlyWhereTheCopyWouldMoveNothing) {
  Dims permutation = {0, 1, 2, 3};
  int views = 0;
  do {
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 3, 4, 5}, Shape{2, 3, 1, 5}, Shape{2, 1, 4, 5}}) {
      for (const Layout from : kLayouts) {
        for (const Layout to : kLayouts) {
          const auto x =
              test::TensorPtr(std::make_shared<const Tensor>(to_layout(iota(shape)->view(), from)));
          // Numbered by position in memory.
          Tensor numbered(x->desc());
          std::iota(numbered.values<float>().begin(), numbered.values<float>().end(), 0.0F);
          const Transpose layer({permutation});
          const auto in = std::make_shared<const Tensor>(std::move(numbered));
          const Tensor out = to_layout(evaluate(layer, std::vector<test::TensorPtr>{in})[0].view(), to);
          const auto values = out.values<float>();
          const bool moves_nothing = std::is_sorted(values.begin(), values.end());
          EXPECT_EQ(layer.is_view(in->desc(), out.desc()), moves_nothing)
              << layer.summary() << " of " << shape.str() << " " << layout_name(from) << " to "
              << layout_name(to);
          views += moves_nothing ? 1 : 0;
        }
      }
    }
  } while (std::next_permutation(permutation.begin(), permutation.end()));
  EXPECT_GT(views, 10);
}

TEST(Transpose, RefusesWhatIsNoPermutation) {
  EXPECT_THROW(Transpose({{0, 0}}), Error);
  EXPECT_THROW(Transpose({{1, 2}}), Error);
  EXPECT_THROW(Transpose({{-1, 0}}), Error);
  EXPECT_THROW(test::infer(Transpose({{1, 0}}), {{Shape{2, 3, 4}}}), Error);
}

// The example of the ONNX specification of DepthToSpace.
TEST(DepthToSpace, FollowsOnnx) {
  const auto x = make<float>(Shape{1, 8, 2, 3}, [] {
    std::vector<float> v;
    for (int c = 0; c < 8; ++c) {
      for (int i = 0; i < 6; ++i) v.push_back(static_cast<float>(9 * c + i));
    }
    return v;
  }());
  EXPECT_THAT(results<float>(DepthToSpace({.block = 2}), {x}),
              ElementsAre(0, 18, 1, 19, 2, 20, 36, 54, 37, 55, 38, 56, 3, 21, 4, 22, 5, 23, 39, 57, 40, 58,
                          41, 59,  //
                          9, 27, 10, 28, 11, 29, 45, 63, 46, 64, 47, 65, 12, 30, 13, 31, 14, 32, 48, 66, 49,
                          67, 50, 68));
  EXPECT_THAT(
      results<float>(DepthToSpace({.block = 2, .column_row_depth = true}), {x}),
      ElementsAre(0, 9, 1, 10, 2, 11, 18, 27, 19, 28, 20, 29, 3, 12, 4, 13, 5, 14, 21, 30, 22, 31, 23, 32,  //
                  36, 45, 37, 46, 38, 47, 54, 63, 55, 64, 56, 65, 39, 48, 40, 49, 41, 50, 57, 66, 58, 67, 59,
                  68));
}

TEST(DepthToSpace, InverseRestoresAndKernelsMatch) {
  test::Random random;
  for (const bool column_row_depth : {false, true}) {
    const auto x = random.tensor(Shape{2, 18, 3, 5});
    const DepthToSpace forward({.block = 3, .column_row_depth = column_row_depth});
    const DepthToSpace back({.block = 3, .column_row_depth = column_row_depth, .inverse = true});
    const auto wide = make<float>(Shape{2, 2, 9, 15}, results<float>(forward, {x}));
    EXPECT_THAT(results<float>(back, {wide}), ElementsAreArray(x->values<float>()));
    for (const DType type : kSizes) {
      test::expect_conformance(
          forward, {.inputs = {{random.tensor(x->shape(), 0, 9, type)}}, .expected = {"table_copy"}});
      test::expect_conformance(
          back, {.inputs = {{random.tensor(wide->shape(), 0, 9, type)}}, .expected = {"table_copy"}});
    }
  }
}

TEST(DepthToSpace, RefusesWhatDoesNotFit) {
  const std::int64_t huge = std::int64_t{1} << 33;
  EXPECT_THROW(DepthToSpace({.block = 0}), Error);
  EXPECT_THROW(test::infer(DepthToSpace({.block = 2}), {{Shape{1, 6, 2, 2}}}), Error);
  EXPECT_THROW(test::infer(DepthToSpace({.block = 2}), {{Shape{4, 2, 2}}}), Error);
  EXPECT_THROW(test::infer(DepthToSpace({.block = 2, .inverse = true}), {{Shape{1, 4, 3, 2}}}), Error);
  EXPECT_THROW(test::infer(DepthToSpace({.block = huge}), {{Shape{1, 0, 2, 2}}}), Error) << "overflow";
}

TEST(Expand, Broadcasts) {
  test::Random random;
  EXPECT_THAT(results<float>(Expand({Shape{2, 2, 2}}), {iota(Shape{2, 1})}),
              ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  for (const DType type : kSizes) {
    for (const Shape& shape :
         {Shape{3, 1, 5, 1}, Shape{4, 1, 7}, Shape{}, Shape{3, 4, 5, 7}, Shape{1, 1, 5, 7}}) {
      test::expect_conformance(Expand({Shape{3, 4, 5, 7}}),
                               {.inputs = {{random.tensor(shape, 0, 9, type)}}, .expected = {"table_copy"}});
    }
  }
  EXPECT_THROW(test::infer(Expand({Shape{2, 3}}), {{Shape{2, 2}}}), Error);
  EXPECT_THROW(test::infer(Expand({Shape{3}}), {{Shape{2, 3}}}), Error);
}

TEST(Tile, Repeats) {
  test::Random random;
  EXPECT_THAT(results<float>(Tile({{2, 2}}), {iota(Shape{1, 2})}), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  for (const DType type : kSizes) {
    for (const Dims& repeats : {Dims{1, 1, 1, 1}, Dims{2, 3, 1, 2}, Dims{3, 2, 4, 1}, Dims{1, 0, 2, 2}}) {
      test::expect_conformance(Tile({repeats}), {.inputs = {{random.tensor(Shape{2, 3, 4, 5}, 0, 9, type)}},
                                                 .expected = {"table_copy"}});
    }
  }
  EXPECT_THROW(test::infer(Tile({{2}}), {{Shape{2, 2}}}), Error);
  EXPECT_THROW(test::infer(Tile({{-1}}), {{Shape{2}}}), Error);
  EXPECT_THROW(test::infer(Tile({{INT64_MAX}}), {{Shape{2}}}), Error);
}

TEST(Gather, PicksAlongTheAxis) {
  const auto indices = make<std::int64_t>(Shape{2, 1}, {-1, 0});
  EXPECT_THAT(results<float>(Gather({1}), {iota(Shape{2, 3}), indices}), ElementsAre(2, 0, 5, 3));
  const auto scalar = make<std::int32_t>(Shape{}, {1});
  EXPECT_EQ(test::infer(Gather({0}), {{Shape{3}}, scalar->desc()})[0].shape, Shape{});
  EXPECT_THAT(results<std::int64_t>(Gather({0}), {make<std::int64_t>({7, 8, 9}), scalar}), ElementsAre(8));
}

TEST(Gather, KernelsMatchTheReference) {
  test::Random random;
  for (const DType type : kSizes) {
    for (const DType index_type : {DType::i32, DType::i64}) {
      for (std::int64_t axis = -3; axis < 3; ++axis) {
        const Shape shape{4, 5, 3};
        const std::int64_t extent = shape[normalize_axis(axis, 3, "test")];
        const auto indices = random.tensor(Shape{2, 1, 4}, static_cast<double>(-extent),
                                           static_cast<double>(extent), index_type);
        test::expect_conformance(Gather({axis}), {.inputs = {{random.tensor(shape, 0, 9, type)}, {indices}},
                                                  .expected = {"block_copy"}});
      }
    }
  }
  const auto many = random.tensor(Shape{3000}, -50, 50, DType::i64);
  test::expect_conformance(Gather({0}),
                           {.inputs = {{random.tensor(Shape{50, 9})}, {many}}, .expected = {"block_copy"}});
}

TEST(Gather, KernelsMatchTheReferenceOnIndicesThatAreKnown) {
  test::Random random;
  const Shape shape{2, 7, 5, 3};
  for (const DType type : kSizes) {
    for (const Shape& count : {Shape{}, Shape{0}, Shape{1}, Shape{9}, Shape{3, 2}}) {
      for (std::int64_t axis = -4; axis < 4; ++axis) {
        const auto extent = static_cast<double>(shape[normalize_axis(axis, 4, "test")]);
        test::expect_conformance(
            Gather({axis}),
            {.inputs = {{random.tensor(shape, 0, 9, type)},
                        {random.tensor(count, -extent, extent, random.coin() ? DType::i32 : DType::i64),
                         true}},
             .expected = {"table_copy"}});
      }
    }
  }
  const auto outside = make<std::int64_t>({5});
  EXPECT_TRUE(
      test::refusal(Gather({2}), {{random.tensor(shape)}, {outside, true}}, "table_copy").has_value());
}

// Short runs in rows of several registers: permuted channels, every second pixel, blocks that become channels.
TEST(Gather, MatchesTheReferenceOnPermutedChannels) {
  test::Random random;
  for (const DType type : kSizes) {
    for (int round = 0; round < 3; ++round) {
      const Shape shape{1, random.integer(20, 90), 3, random.integer(30, 70)};
      const auto extent = static_cast<double>(shape[1]);
      const auto indices = random.tensor(Shape{random.integer(10, 130)}, -extent, extent, DType::i64);
      test::expect_conformance(Gather({1}), {.inputs = {{random.tensor(shape, 0, 99, type)}, {indices, true}},
                                             .expected = {"table_copy"}});
      test::expect_conformance(Tile({{1, 1, 1, 2}}),
                               {.inputs = {{random.tensor(shape, 0, 99, type)}}, .expected = {"table_copy"}});
      const std::int64_t block = random.integer(2, 3);
      const Shape deep{2, block * block * random.integer(1, 5), random.integer(1, 5), random.integer(1, 40)};
      test::expect_conformance(DepthToSpace({.block = block}),
                               {.inputs = {{random.tensor(deep, 0, 99, type)}}, .expected = {"table_copy"}});
    }
  }
}

TEST(Gather, RefusesWhatDoesNotFit) {
  const auto gather = [](std::int64_t index) {
    return results<float>(Gather({0}), {iota(Shape{3}), make<std::int64_t>({index})});
  };
  for (const std::int64_t index : {std::int64_t{3}, std::int64_t{-4}, INT64_MAX, INT64_MIN}) {
    EXPECT_THROW(gather(index), Error) << index;
  }
  EXPECT_THROW(test::infer(Gather({1}), {{Shape{3}}, {Shape{1}, DType::i64}}), Error);
  EXPECT_THROW(test::infer(Gather({0}), {{Shape{3}}, {Shape{1}, DType::f32}}), Error);
  EXPECT_THROW(test::infer(Gather({0}), {{Shape{1, 2, 3, 4}}, {Shape{1, 1, 1, 1}, DType::i64}}), Error)
      << "rank 7";
}

TEST(ToLayout, KeepsTheLogicalTensor) {
  test::Random random;
  for (const DType type : kSizes) {
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{2, 37, 9, 70}, Shape{1, 3, 33, 35},
                               Shape{1, 4, 3, 50}, Shape{2, 3}, Shape{2, 3, 2, 2, 2, 3}}) {
      test::expect_conformance(
          ToLayout({Layout::channels_last}),
          {.inputs = {{random.tensor(shape, 0, 100, type)}}, .expected = {"strided_copy"}});
    }
  }
}

TEST(ToLayout, IsAViewWhereTheLayoutsCoincide) {
  const ToLayout layer({Layout::channels_last});
  const auto is_view = [&](const Shape& shape) {
    return layer.is_view({shape}, {shape, DType::f32, Layout::channels_last});
  };
  EXPECT_FALSE(is_view(Shape{1, 3, 2, 2}));
  EXPECT_TRUE(is_view(Shape{1, 3, 1, 1}));
  EXPECT_TRUE(is_view(Shape{2, 1, 4, 4}));
  EXPECT_TRUE(is_view(Shape{2, 3}));
}

}  // namespace
}  // namespace pipit::internal
