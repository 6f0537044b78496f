#include "layers/cpu/movement/picked_row.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/platform/isa.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

struct PickCase {
  DType type;
  std::int64_t count;    // of the row
  std::int64_t windows;  // that each part of it is picked from
  std::int64_t width;    // of a window
};

// Copies a row of random places, of a source that ends with the last one, and compares every element.
void expect_picked(const PickCase& c, bool in_registers, test::Random& random) {
  SCOPED_TRACE(testing::Message() << c.count << " elements of " << dtype_bytes(c.type) << " bytes from "
                                  << c.windows << " windows of " << c.width << ", seed "
                                  << test::test_seed());
  const auto bytes = dtype_bytes(c.type);
  const std::int64_t in_register = 64 / static_cast<std::int64_t>(bytes);
  std::vector<std::int32_t> places;
  while (std::ssize(places) < c.count) {
    std::vector<std::int64_t> windows;
    for (std::int64_t w = 0; w < c.windows; ++w) windows.push_back(random.integer(0, 300));
    for (std::int64_t i = 0; i < in_register && std::ssize(places) < c.count; ++i) {
      places.push_back(
          static_cast<std::int32_t>(windows[static_cast<std::size_t>(random.integer(0, c.windows - 1))] +
                                    random.integer(0, c.width - 1)));
    }
  }
  const std::size_t elements = static_cast<std::size_t>(*std::max_element(places.begin(), places.end())) + 1;
  const auto source = std::make_unique<std::byte[]>(elements * bytes);
  for (std::size_t i = 0; i < elements * bytes; ++i)
    source[i] = static_cast<std::byte>(random.integer(0, 255));
  std::vector<std::byte> target(places.size() * bytes + 64, std::byte{0xA5});

  const PickedRow row(places, c.type);
  EXPECT_EQ(row.in_registers(), in_registers);
  row.copy(target.data(), source.get());
  for (std::size_t i = 0; i < places.size(); ++i) {
    ASSERT_EQ(
        std::memcmp(target.data() + i * bytes, &source[static_cast<std::size_t>(places[i]) * bytes], bytes),
        0)
        << "element " << i << " of place " << places[i];
  }
  for (std::size_t i = places.size() * bytes; i < target.size(); ++i)
    ASSERT_EQ(target[i], std::byte{0xA5}) << "byte " << i << " after the row";
}

TEST(PickedRow, PicksWhatItsPlacesSay) {
  test::Random random;
  for (const DType type : {DType::u8, DType::f16, DType::f32, DType::i64}) {
    const bool registers =
        chosen_isa() >= Isa::avx512 && (type != DType::u8 || __builtin_cpu_supports("avx512vbmi"));
    const std::int64_t in_register = 64 / static_cast<std::int64_t>(dtype_bytes(type));
    for (int round = 0; round < 50; ++round) {
      const std::int64_t windows = random.integer(1, 4);
      expect_picked({type, random.integer(1, 5 * in_register), windows, random.integer(1, in_register)},
                    registers, random);
    }
  }
}

TEST(PickedRow, PicksFromMoreWindowsElementByElement) {
  test::Random random;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::int32_t> places;
    for (int i = 0; i < 40; ++i) places.push_back(40 * ((i * 7 + round) % 40));
    const PickedRow row(places, DType::f32);
    EXPECT_FALSE(row.in_registers());
    const auto source = random.tensor(Shape{1600});
    std::vector<float> target(places.size());
    row.copy(reinterpret_cast<std::byte*>(target.data()), source->view().data);
    for (std::size_t i = 0; i < places.size(); ++i)
      ASSERT_EQ(target[i], source->values<float>()[static_cast<std::size_t>(places[i])]);
  }
}

}  // namespace
}  // namespace pipit::internal
