// implicit_gemm's kernels that average what they compute, on a CPU, against plain loops: every tile, whole depths and
// shared ones.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "layers/cuda/conv/implicit_gemm/kernel.cuh"
#include "tests/cuda/emulation/conv_reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::AverageResult;
using cuda::ConvShape;
using cuda::ConvTile;
using cuda::StoredType;

constexpr float kResidualScale = 0.83F;

enum class Kind { halves, function_halves, bytes, small_bytes, bytes_to_halves };

bool is_int8(Kind kind) {
  return kind != Kind::halves && kind != Kind::function_halves;
}
bool is_half(Kind kind) {
  return !is_int8(kind) || kind == Kind::bytes_to_halves;
}

// Positions that fill tiles or few rows of them; in_c in units of 16 bits.
ConvShape random_shape(std::mt19937& random, bool int8, int number) {
  constexpr std::pair<int, int> kSizes[] = {{7, 7},  {6, 6},  {5, 5},  {4, 4},  {1, 1}, {8, 8},
                                            {3, 11}, {1, 63}, {10, 9}, {8, 16}, {2, 3}};
  ConvShape s;
  s.int8 = int8, s.real_output = int8, s.averaged = true;
  s.batch = draw(random, 1, 5);
  s.in_c = 8 * draw(random, 1, number % 2 == 0 ? 40 : 12);
  s.out_c = number % 3 == 0 ? draw(random, 1, 140) : 8 * draw(random, 1, 18);
  std::tie(s.out_h, s.out_w) = kSizes[static_cast<std::size_t>(number) % std::size(kSizes)];
  if (number % 4 == 3) s.kernel_h = s.kernel_w = 3, s.pad_h = s.pad_w = 1, s.in_c = 8 * draw(random, 1, 5);
  s.in_h = s.out_h, s.in_w = s.out_w;
  s.unstored = int8 && number % 5 == 1 ? 4 : 0;
  return s;
}

AverageResult random_result(std::mt19937& random, Kind kind) {
  const DType average = is_half(kind) ? DType::f16 : DType::f32;
  if (coin(random)) return {average, nullptr};
  const Quantization y =
      coin(random) ? Quantization{0.21F, 0, DType::i8} : Quantization{0.013F, 77, DType::u8};
  return {average, &y};
}

// As "global_average" adds up: positions that are 32 apart, then these sums.
std::vector<float> averaged(const Image& y, Kind kind) {
  const int positions = y.height * y.width;
  std::vector<float> means;
  for (int n = 0; n < y.images; ++n) {
    for (int c = 0; c < y.channels; ++c) {
      float total = 0;
      for (int first = 0; first < std::min(positions, 32); ++first) {
        float sum = 0;
        for (int p = first; p < positions; p += 32) {
          float v = y.at(n, p / y.width, p % y.width, c);
          if (kind == Kind::function_halves) v = v / (1 + std::exp(-v));
          sum += is_half(kind) ? to_float(to_half(v)) : v;
        }
        total += sum;
      }
      means.push_back(total * (1 / static_cast<float>(positions)));
    }
  }
  return means;
}

std::size_t bytes_of(StoredType type) {
  return type == StoredType::f32 ? 4 : type == StoredType::f16 ? 2 : 1;
}

// What lies in memory as numbers.
std::vector<float> stored(const Global<std::byte>& memory, StoredType type) {
  std::vector<float> values;
  for (std::size_t at = 0; at < memory.size(); at += bytes_of(type)) {
    float v = 0;
    Half half{};
    if (type == StoredType::f32) std::memcpy(&v, memory.data() + at, 4);
    if (type == StoredType::f16) std::memcpy(&half, memory.data() + at, 2), v = to_float(half);
    if (type == StoredType::i8) v = static_cast<std::int8_t>(memory.data()[at]);
    if (type == StoredType::u8) v = static_cast<float>(std::to_integer<int>(memory.data()[at]));
    values.push_back(v);
  }
  return values;
}

float as_result(const AverageResult& r, float mean) {
  if (r.type == StoredType::f32) return mean;
  if (r.type == StoredType::f16 || r.read_as == StoredType::f16) mean = to_float(to_half(mean));
  if (r.type == StoredType::f16) return mean;
  return std::nearbyint(std::min(std::max(mean / r.scale, r.low), r.high)) + static_cast<float>(r.zero_point);
}

// A convolution and all that its kernels read but for what depends on the tile.
struct Problem {
  Kind kind;
  ConvShape shape;
  RandomConv conv;
  Image x, added;
  bool adds;
  AverageResult result;

  Problem(std::mt19937& random, Kind of_kind, const ConvShape& s)
      : kind(of_kind),
        shape(s),
        conv(random, s.int8, s.pixel_units() * (s.int8 ? 2 : 1), s.out_c, s.kernel_h * s.kernel_w,
             coin(random), of_kind == Kind::small_bytes ? 10 : 127),
        x(random, s.int8, s.batch, s.in_h, s.in_w, conv.in_c),
        added(random, s.int8, s.batch, s.out_h, s.out_w, s.out_c),
        adds(coin(random)),
        result(random_result(random, of_kind)) {}

  std::vector<float> expected() const {
    std::vector<float> means =
        averaged(convolved(conv, shape, x, adds ? &added : nullptr, kResidualScale), kind);
    for (float& v : means) v = as_result(result, v);
    return means;
  }
  std::unique_ptr<Global<std::byte>> weights(int columns) const {
    const cuda::KeptDepth all(shape);
    if (shape.int8)
      return std::make_unique<Global<std::byte>>(
          cuda::pack_qconv_weights(shape, all, conv.in_c, by_input(conv, conv.bytes).data(), columns));
    std::vector<float> values;
    for (const Half v : by_input(conv, conv.halves)) values.push_back(to_float(v));
    return std::make_unique<Global<std::byte>>(
        cuda::pack_conv_weights(shape, all, conv.in_c, values.data(), columns));
  }
};

// Values of the outputs, padded to the columns of the last tile.
template <typename T>
std::unique_ptr<Global<std::byte>> padded(std::vector<T> values, const ConvShape& s, const ConvTile& tile) {
  const auto rows = static_cast<std::size_t>(ceil_div(s.out_c, tile.columns) * tile.columns);
  values.resize(rows);
  if (s.int8) values = cuda::in_packed_order(std::move(values), rows);
  return std::make_unique<Global<std::byte>>(values);
}

using Kernel = void (*)(cuda::ConvGemmArgs);
struct Instance {
  Kernel kernel;
  int threads, shared;
};
template <typename T, template <typename> typename Average>
Instance instance() {
  return {cuda::conv_gemm<T, false, Average<T>>, T::kThreads, T::kShared};
}
template <typename Sum, bool Ends, template <typename> typename Average>
Instance instance_of(const ConvTile& tile) {
  using cuda::ConvGemmTraits;
  if (tile.columns == 128) return instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>, Average>();
  if (tile.rows == 128) return instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum, Ends>, Average>();
  if (tile.columns == 64) return instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum, Ends>, Average>();
  return instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum, Ends>, Average>();
}

void expect_tile(std::mt19937& random, const Problem& p, const ConvTile& tile,
                 const std::vector<float>& expected) {
  const ConvShape& s = p.shape;
  const Global<std::byte> x(p.x.bytes(s.int8)), added(p.added.bytes(s.int8));
  const auto weights = p.weights(tile.columns), multipliers = padded(p.conv.multiplier, s, tile),
             bias = s.int8 ? padded(p.conv.whole_bias, s, tile) : padded(p.conv.bias, s, tile);
  Global<std::byte> y(expected.size() * bytes_of(p.result.type), 0x5A);
  cuda::ConvGemmArgs args = cuda::conv_gemm_args(s, cuda::KeptDepth(s), tile);
  args.x = x.data(), args.weights = weights->data(), args.bias = bias->data(), args.y = y.data();
  args.residual = p.adds ? added.data() : nullptr;
  args.low = p.conv.bounds.low, args.high = p.conv.bounds.high;
  args.multipliers = reinterpret_cast<const float*>(multipliers->data());
  args.residual_scale = kResidualScale;
  args.small = p.kind == Kind::small_bytes;
  args.stored = p.kind == Kind::bytes_to_halves ? cuda::StoredType::f16 : cuda::StoredType::f32;
  if (p.kind == Kind::function_halves)
    args.function = {cuda::HalfGate::logistic, true, -1.442695F, 0};  // SiLU
  args.average = {cuda::images_of(s, tile), static_cast<int>(cuda::used_rows(s, tile)),
                  static_cast<int>(s.positions()), 1 / static_cast<float>(s.positions()), p.result};
  const Instance instance = s.unstored > 0 ? instance_of<std::int32_t, true, cuda::Int8Average>(tile)
                            : s.int8       ? instance_of<std::int32_t, false, cuda::Int8Average>(tile)
                                           : instance_of<float, false, cuda::HalfAverage>(tile);
  Launch how = launch_of(random, static_cast<int>(ceil_div(args.rows, args.average.rows)) * args.column_tiles,
                         instance.threads, instance.shared);
  how.grid.y = how.cluster = static_cast<unsigned>(tile.splits);
  how.cluster_along_y = true;
  how.resident = draw(random, 1, 2);
  if (!expect_no_error(run(instance.kernel, how, args))) return;
  const std::vector<float> got = stored(y, p.result.type);
  ASSERT_EQ(got.size(), expected.size());
  // In halves sums in another order round differently (expect_values()), by up to 2^-8 of what is of order 1: of
  // integers that is up to a step of a scale as fine as that, and one more where it crosses the middle between two.
  const bool integers = bytes_of(p.result.type) == 1;
  const float allowed = is_int8(p.kind) ? 0 : integers ? 1 + 0x1p-8F / p.result.scale : 0x1p-8F;
  int wrong = 0;
  for (std::size_t i = 0; i < got.size() && wrong < 3; ++i) {
    if (std::abs(got[i] - expected[i]) <= allowed * (integers ? 1 : std::max(1.0F, std::abs(expected[i]))))
      continue;
    ++wrong;
    ADD_FAILURE() << "image " << i / s.out_c << ", channel " << i % s.out_c << ": " << got[i] << ", not "
                  << expected[i];
  }
}

void expect_averages(Kind kind, unsigned test, int count) {
  std::mt19937 random = numbers(test);
  std::set<std::pair<int, int>> tiles;
  std::set<int> splits;
  for (int i = 0; i < count; ++i) {
    const ConvShape s = random_shape(random, is_int8(kind), i);
    const Problem problem(random, kind, s);
    const std::vector<float> expected = problem.expected();
    for (const cuda::ConvVariant& way :
         cuda::conv_variants(s, 132, true, [](const cuda::ConvVariant&) { return 0; })) {
      SCOPED_TRACE(fmt::format(
          "case {}: {} images of {} x {} x {} to {}, window {}, residual {}, tile {}, seed {}", i, s.batch,
          s.in_h, s.in_w, problem.conv.in_c, s.out_c, s.kernel_h, problem.adds, way.name(), gpu_seed()));
      tiles.insert({way.tile.rows, way.tile.columns}), splits.insert(way.tile.splits);
      expect_tile(random, problem, way.tile, expected);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_EQ(tiles.size(), 4U);
  EXPECT_GE(splits.size(), 3U);
}

TEST(EmulatedAverage, IsThatOfTheSpecificationInInt8) {
  expect_averages(Kind::bytes, 71, 22);
}
TEST(EmulatedAverage, IsThatOfSmallSums) {
  expect_averages(Kind::small_bytes, 72, 11);
}
TEST(EmulatedAverage, IsThatOfHalvesFromInt8) {
  expect_averages(Kind::bytes_to_halves, 73, 11);
}
TEST(EmulatedAverage, AgreesInHalves) {
  expect_averages(Kind::halves, 74, 22);
}
TEST(EmulatedAverage, AgreesBehindAFunctionOfHalves) {
  expect_averages(Kind::function_halves, 75, 11);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
