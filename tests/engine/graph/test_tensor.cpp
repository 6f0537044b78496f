#include "engine/graph/tensor.h"

#include <gmock/gmock.h>

#include <numeric>

namespace pipit::internal {
namespace {

TEST(TensorDesc, StridesFollowTheLayout) {
  const TensorDesc rows{Shape({2, 3, 4, 5}), DType::f32, Layout::row_major};
  const TensorDesc last{Shape({2, 3, 4, 5}), DType::f32, Layout::channels_last};
  const auto first4 = [](const Strides& s) { return std::vector<std::int64_t>(s.begin(), s.begin() + 4); };
  EXPECT_THAT(first4(rows.strides()), testing::ElementsAre(60, 20, 5, 1));
  EXPECT_THAT(first4(last.strides()), testing::ElementsAre(60, 1, 15, 3));
}

TEST(TensorDesc, KnowsWhenLayoutsCoincide) {
  EXPECT_TRUE((TensorDesc{Shape({2, 3, 1, 1})}.layouts_coincide()));
  EXPECT_TRUE((TensorDesc{Shape({2, 1, 4, 5})}.layouts_coincide()));
  EXPECT_TRUE((TensorDesc{Shape({2, 3})}.layouts_coincide()));
  EXPECT_FALSE((TensorDesc{Shape({1, 3, 1, 2})}.layouts_coincide()));
}

TEST(TensorDesc, RefusesSizesBeyondMemory) {
  EXPECT_THROW((TensorDesc{Shape({std::int64_t{1} << 61, 2}), DType::f64}.bytes()), Error);
}

TEST(Tensor, RejectsAWrongElementCount) {
  const std::vector<float> five(5);
  EXPECT_THROW(Tensor::from<float>(Shape({2, 3}), std::span<const float>(five)), Error);
}

TEST(Tensor, ReadingAsAnotherTypeThrows) {
  const Tensor t = Tensor::scalar<std::int64_t>(7);
  EXPECT_EQ(t.values<std::int64_t>()[0], 7);
  EXPECT_THROW(t.view().as<float>(), Error);
}

TEST(Tensor, LayoutsRoundTripForEveryElementSize) {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    std::vector<T> values(2 * 3 * 4 * 5);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i % 120);
    const Tensor t = Tensor::from<T>(Shape({2, 3, 4, 5}), std::span<const T>(values));
    const Tensor last = to_layout(t.view(), Layout::channels_last);
    // Element (1, 2, 3, 4) is the last of both; (0, 1, 0, 0) is the second in channels_last.
    EXPECT_EQ(last.values<T>()[1], values[20]);
    EXPECT_EQ(last.values<T>()[119], values[119]);
    const Tensor back = to_layout(last.view(), Layout::row_major);
    EXPECT_THAT(back.values<T>(), testing::ElementsAreArray(values));
  };
  check(std::int8_t{});
  check(float{});
  check(std::int64_t{});
}

TEST(HostBuffer, IsAlignedAndNeverNull) {
  const HostBuffer empty(0);
  EXPECT_NE(empty.data(), nullptr);
  const HostBuffer some(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(some.data()) % HostBuffer::kAlignment, 0U);
  // Small and large ones, below and above a huge page.
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{300} << 10, (std::size_t{5} << 20) + 1}) {
    HostBuffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % HostBuffer::kAlignment, 0U);
    // The line that the end lies in may be read in full, and one begins at the end of full lines.
    std::memset(buffer.data(), 1, (bytes / HostBuffer::kAlignment + 1) * HostBuffer::kAlignment);
    const HostBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data()[bytes - 1], std::byte{1});
  }
}

}  // namespace
}  // namespace pipit::internal
