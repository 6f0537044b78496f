// What "unpacked_gemm" runs before the library's product, on a CPU: weights of few bits as halves, and copied rows.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include "layers/cuda/conv/unpacked_gemm/kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::kUnpackUnit;
using cuda::UnpackArgs;

// Random operands, and by plain loops what becomes of them.
struct Case {
  WeightFormat format;
  std::int64_t outputs, depth, rows;
  bool copies;
  int exponent = 0;
  std::vector<std::byte> integers;
  std::vector<float> scales;
  std::vector<std::uint16_t> x;
  std::vector<int> pixels;  // of an image of y; empty: rows correspond
  std::int64_t image = 0;   // elements of one of x

  Case(std::mt19937& random, const WeightFormat& f, std::int64_t o, std::int64_t k, std::int64_t r)
      : format(f), outputs(o), depth(k), rows(r), copies(k % kUnpackUnit != 0 || coin(random)) {
    integers.resize(static_cast<std::size_t>(outputs * format.row_bytes(depth)));
    for (std::byte& b : integers) b = static_cast<std::byte>(draw(random, 0, 255));
    if (format.bits == 4 && depth % 2 != 0) {  // the last half-byte of a row
      for (std::int64_t i = 1; i <= outputs; ++i)
        integers[static_cast<std::size_t>(i * format.row_bytes(depth)) - 1] &= std::byte{15};
    }
    const float size = std::ldexp(1.0F, draw(random, -40, 20));
    scales.resize(static_cast<std::size_t>(outputs * format.groups(depth)));
    for (float& scale : scales) scale = draw(random, 0, 30) == 0 ? 0 : size * real(random, -1, 1);
    exponent = cuda::unpack_exponent(format, scales);
    if (!copies) return;
    if (coin(random)) {
      // Some images of y, each position with a pixel of x or none.
      const int positions = draw(random, 1, 12), of_x = draw(random, 1, 9);
      const std::int64_t images = std::max<std::int64_t>(1, rows / positions);
      rows = images * positions, image = of_x * depth;
      for (int i = 0; i < positions; ++i)
        pixels.push_back(draw(random, 0, 4) == 0 ? -1 : static_cast<int>(draw(random, 0, of_x - 1) * depth));
      x.resize(static_cast<std::size_t>(images * image));
    } else {
      x.resize(static_cast<std::size_t>(rows * depth));
    }
    for (std::uint16_t& v : x) v = to_half(real(random, -1, 1)).bits;
  }

  std::int64_t units() const { return cuda::unpack_units(depth); }
  std::vector<std::uint16_t> weights() const {
    std::vector<std::uint16_t> halves;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t k = 0; k < units() * kUnpackUnit; ++k) {
        if (k >= depth) {
          halves.push_back(0);
          continue;
        }
        const float scale =
            scales[static_cast<std::size_t>(o * format.groups(depth) + k / format.group(depth))];
        const auto q = static_cast<float>(format.at(integers.data() + o * format.row_bytes(depth), k));
        halves.push_back(to_half(q * std::ldexp(scale, exponent)).bits);
      }
    }
    return halves;
  }
  std::vector<std::uint16_t> copied() const {
    std::vector<std::uint16_t> halves;
    const auto positions = static_cast<std::int64_t>(pixels.size());
    for (std::int64_t r = 0; copies && r < rows; ++r) {
      std::int64_t begin = r * depth;
      if (positions > 0) {
        const int pixel = pixels[static_cast<std::size_t>(r % positions)];
        begin = pixel < 0 ? -1 : r / positions * image + pixel;
      }
      for (std::int64_t k = 0; k < units() * kUnpackUnit; ++k)
        halves.push_back(k < depth && begin >= 0 ? x[static_cast<std::size_t>(begin + k)] : 0);
    }
    return halves;
  }
};

// Halves that differ by more than the sign of a zero: of padding a kernel may write either.
int differences(const std::vector<std::uint16_t>& got, const std::vector<std::uint16_t>& expected) {
  int count = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    count += static_cast<int>(got[i] != expected[i] && ((got[i] | expected[i]) & 0x7FFFU) != 0);
  return count;
}

// How many halves differ after a launch whose arguments `change` has had; -1: it failed.
template <typename Change>
int run_case(std::mt19937& random, const Case& c, const Change& change) {
  UnpackArgs args = cuda::unpack_args(c.format, c.outputs, c.depth, c.rows, c.copies);
  const Global<std::uint8_t> weights(cuda::padded_rows(c.format, c.outputs, c.depth, c.integers.data()));
  const Global<float> scales(cuda::unpack_scales(c.scales, c.exponent));
  const Global<int> pixels(c.pixels);
  const Global<std::uint16_t> x(c.x);
  const std::vector<std::uint16_t> expected = c.weights(), expected_rows = c.copied();
  Global<std::uint16_t> unpacked(expected.size()), copied(expected_rows.size());
  args.weights = weights.data(), args.scales = scales.data(), args.unpacked = unpacked.data();
  args.x = x.data(), args.copied = copied.data();
  if (!c.pixels.empty()) {
    args.pixels = pixels.data();
    args.positions = cuda::Divisor(c.pixels.size());
    args.image = static_cast<int>(c.image);
  }
  change(args);
  const Outcome outcome =
      run(cuda::unpack::kernel_of(args),
          launch_of(random, args.weight_blocks + args.copy_blocks, cuda::kUnpackThreads, 0), args);
  if (!outcome.error.empty()) return -1;
  return differences(unpacked.values(), expected) + differences(copied.values(), expected_rows);
}

Case random_case(std::mt19937& random, int i) {
  constexpr std::int64_t kGroups[] = {0, 8, 32, 64, 128};
  const WeightFormat format{coin(random) ? 8 : 4, kGroups[draw(random, 0, 4)]};
  const std::int64_t depth = i % 3 == 0   ? draw(random, 1, 70)
                             : i % 3 == 1 ? 8 * draw(random, 1, 60)
                                          : draw(random, 100, 700);
  return {random, format, draw(random, 1, i % 4 == 0 ? 150 : 20), depth, draw(random, 1, 90)};
}

// Depths that fill units and groups or not, blocks that are full or not: the bits of one rounding.
TEST(EmulatedUnpackedGemm, WeightsAndRows) {
  std::mt19937 random = numbers(111);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const Case c = random_case(random, i);
    SCOPED_TRACE(fmt::format("{} x {}, {} rows, {} bits, groups of {}, 2^{}, {} positions, seed {}",
                             c.outputs, c.depth, c.rows, c.format.bits, c.format.group_size, c.exponent,
                             c.pixels.size(), gpu_seed()));
    EXPECT_EQ(run_case(random, c, [](UnpackArgs&) {}), 0);
  }
}

// The exponent uses the range of halves: the largest weight is below 2^15, and not below 2^14.
TEST(EmulatedUnpackedGemm, Exponents) {
  std::mt19937 random = numbers(112);
  for (int i = 0; i < 1000; ++i) {
    const WeightFormat format{coin(random) ? 8 : 4, 0};
    const std::vector<float> scales{0, std::ldexp(real(random, 0.5F, 1), draw(random, -80, 80)), NAN,
                                    kInfinity};
    const float weight =
        std::ldexp(scales[1], cuda::unpack_exponent(format, scales)) * (format.bits == 8 ? 128.0F : 8.0F);
    EXPECT_LT(weight, 0x1p15F) << scales[1];
    EXPECT_GE(weight, 0x1p14F) << scales[1];
  }
  EXPECT_EQ(cuda::unpack_exponent({8, 0}, std::vector<float>{0, 0}), 0);
}

// Comparing finds what is wrong in one respect.
TEST(EmulatedUnpackedGemm, WrongArgumentsAreNoticed) {
  std::mt19937 random = numbers(113);
  Case c(random, {4, 32}, 40, 300, 50);
  while (c.pixels.empty() || c.rows < 2 * static_cast<std::int64_t>(c.pixels.size()) || c.image == c.depth ||
         std::ranges::count(c.pixels, -1) == std::ssize(c.pixels))
    c = Case(random, {4, 32}, 40, 300, 50);
  ASSERT_EQ(run_case(random, c, [](UnpackArgs&) {}), 0);
  const auto noticed = [&](const auto& change) { return run_case(random, c, change) != 0; };
  EXPECT_TRUE(noticed([](UnpackArgs& args) { args.units_of_group = cuda::Divisor(8); })) << "groups of 64";
  EXPECT_TRUE(noticed([](UnpackArgs& args) { --args.weight_units; })) << "a unit stays as it was";
  EXPECT_TRUE(noticed([](UnpackArgs& args) { args.copied_units -= 1; })) << "the same of a row";
  EXPECT_TRUE(noticed([](UnpackArgs& args) { args.image -= args.depth; })) << "smaller images";
  EXPECT_TRUE(noticed([](UnpackArgs& args) {
    args.units_of_row = cuda::Divisor(args.units_of_row.value - 1);
  })) << "shorter rows";
  EXPECT_TRUE(noticed([](UnpackArgs& args) { args.depth -= 1; })) << "a channel less";
  EXPECT_TRUE(noticed([](UnpackArgs& args) { args.pixels = nullptr; })) << "rows without a table";
}

}  // namespace
}  // namespace pipit::internal::test::emulation
