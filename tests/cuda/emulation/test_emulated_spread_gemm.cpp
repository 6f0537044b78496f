// spread_gemm on a CPU, against plain loops: clusters of every width that a plan has.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "layers/cuda/conv/spread_gemm/kernel.cuh"
#include "tests/cuda/emulation/conv_reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ConvShape;
using cuda::SpreadPixels;
using cuda::SpreadPlan;

constexpr float kResidualScale = 0.83F;

// What is computed after the sums.
enum class Kind {
  bytes,
  small_bytes,  // sums that begin as floats
  table_bytes,  // a function of bytes
  bytes_to_halves,
  bytes_to_floats,
  halves,
  function_halves,
};

bool is_int8(Kind kind) {
  return kind != Kind::halves && kind != Kind::function_halves;
}
cuda::StoredType stored_by(Kind kind) {
  if (kind == Kind::bytes_to_halves) return cuda::StoredType::f16;
  return kind == Kind::bytes_to_floats ? cuda::StoredType::f32 : cuda::StoredType::i8;
}

// in_c in units of 16 bits. Every third is a window; of the others blocks hold the positions' pixels.
ConvShape random_shape(std::mt19937& random, bool int8, int number) {
  ConvShape s;
  s.int8 = int8;
  s.batch = draw(random, 1, 3);
  // Deep ones have the widest clusters.
  s.in_c = 8 * (number % 2 == 0 ? draw(random, 16, 36) : draw(random, 1, 16));
  const int unit = 1 << draw(random, 0, 3);  // of whole groups of four outputs or not
  s.out_c = unit * draw(random, 1, 80 / unit);
  const auto extent = [&](int& in, int& out, int& kernel, int& stride, int& dilation, int& pad) {
    in = draw(random, 1, 9);
    int after = 0;
    if (number % 3 == 0) {
      kernel = draw(random, 1, 5), stride = draw(random, 1, 3), dilation = draw(random, 1, 2);
      const int span = (kernel - 1) * dilation;
      pad = draw(random, 0, span + 1), after = draw(random, 0, span + 1);
      in = std::max(in, span + 1 - pad - after);
    } else if (number % 3 == 1) {
      stride = draw(random, 2, 3);
    }
    out = (in + pad + after - (kernel - 1) * dilation - 1) / stride + 1;
  };
  extent(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.dilation_h, s.pad_h);
  extent(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.dilation_w, s.pad_w);
  return s;
}

template <typename T>
std::vector<std::byte> in_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// What tests of a kind have seen.
struct Seen {
  std::set<int> slices;
  std::set<SpreadPixels> held;
};

// A convolution, and all that its kernels read but the weights, whose order is a plan's.
struct Problem {
  Kind kind;
  ConvShape shape;
  RandomConv conv;
  Image x, added;
  bool adds;
  std::vector<std::byte> weights;
  std::vector<std::uint8_t> table;
  cuda::HalfFunction function;

  Problem(std::mt19937& random, Kind of_kind, const ConvShape& s)
      : kind(of_kind),
        shape(s),
        conv(random, s.int8, s.in_c * (s.int8 ? 2 : 1), s.out_c, s.kernel_h * s.kernel_w, coin(random),
             of_kind == Kind::small_bytes ? largest_of_small(s) : 127),
        x(random, s.int8, s.batch, s.in_h, s.in_w, conv.in_c),
        added(random, s.int8, s.batch, s.out_h, s.out_w, s.out_c),
        adds(coin(random)),
        weights(s.int8 ? in_bytes(by_input(conv, conv.bytes)) : in_bytes(by_input(conv, conv.halves))) {
    for (int i = 0; i < 256; ++i) table.push_back(static_cast<std::uint8_t>(draw(random, 0, 255)));
    if (kind == Kind::function_halves) function = {cuda::HalfGate::logistic, true, -1.442695F, 0};  // SiLU
  }
  // No sum of such weights reaches kSmallSum.
  static int largest_of_small(const ConvShape& s) {
    constexpr std::int64_t kBias = 3000;
    return static_cast<int>(
        std::min<std::int64_t>(25, (cuda::kSmallSum - 1 - kBias) / (s.depth() * 2 * 127)));
  }

  std::vector<float> expected() const {
    std::vector<float> values = convolved(conv, shape, x, adds ? &added : nullptr, kResidualScale).values;
    for (float& v : values) {
      if (kind == Kind::table_bytes)
        v = static_cast<std::int8_t>(table[static_cast<std::uint8_t>(static_cast<std::int8_t>(v))]);
      if (kind == Kind::bytes_to_halves) v = to_float(to_half(v));
      if (kind == Kind::function_halves) v = v / (1 + std::exp(-v));
    }
    return values;
  }
};

auto* kernel_of(Kind kind) {
  if (kind == Kind::halves) return cuda::spread_gemm<float, cuda::SpreadHalf<float, false>>;
  if (kind == Kind::function_halves) return cuda::spread_gemm<float, cuda::SpreadHalf<float, true>>;
  return kind == Kind::table_bytes ? cuda::spread_gemm<std::int32_t, cuda::SpreadInt8<true>>
                                   : cuda::spread_gemm<std::int32_t, cuda::SpreadInt8<false>>;
}

// Values of outputs, and as many after them as the last tile has columns.
template <typename T>
std::vector<T> padded(std::vector<T> values, bool int8) {
  const auto columns = static_cast<std::size_t>(cuda::kSpreadColumns);
  const std::size_t rows = (values.size() + columns - 1) / columns * columns;
  if (int8) return cuda::in_packed_order(std::move(values), rows);
  values.resize(rows);
  return values;
}

void expect_plan(std::mt19937& random, const Problem& p, const SpreadPlan& plan,
                 const std::vector<float>& expected) {
  const bool int8 = p.shape.int8;
  const Global<std::byte> x(p.x.bytes(int8)), added(p.added.bytes(int8)),
      weights(cuda::pack_spread(p.shape, plan, int8 ? 1 : 2, p.weights.data())),
      multipliers(padded(p.conv.multiplier, true));
  const auto bias = int8 ? std::make_unique<Global<std::byte>>(padded(p.conv.whole_bias, true))
                         : std::make_unique<Global<std::byte>>(padded(p.conv.bias, false));
  const Global<std::uint8_t> table(p.table);
  const cuda::StoredType stored = stored_by(p.kind);
  const int bytes = stored == cuda::StoredType::f32 ? 4 : stored == cuda::StoredType::f16 || !int8 ? 2 : 1;
  Global<std::byte> y(expected.size() * static_cast<std::size_t>(bytes), 0x5A);
  cuda::SpreadArgs args = cuda::spread_args(p.shape, plan);
  args.conv.x = x.data(), args.conv.weights = weights.data(), args.conv.bias = bias->data();
  args.conv.residual = p.adds ? added.data() : nullptr;
  args.conv.y = y.data();
  args.conv.low = p.conv.bounds.low, args.conv.high = p.conv.bounds.high;
  if (int8) {
    args.conv.multipliers = reinterpret_cast<const float*>(multipliers.data());
    args.conv.residual_scale = kResidualScale;
    args.conv.whole_bounds = p.conv.unit_bounds();
    args.conv.small = p.kind == Kind::small_bytes;
    args.conv.stored = stored;
    if (p.kind == Kind::table_bytes) args.conv.table = table.data();
  }
  args.conv.function = p.function;
  const std::int64_t tiles = ceil_div(p.shape.rows(), cuda::kSpreadRows) * args.conv.column_tiles;
  Launch how =
      launch_of(random, static_cast<int>(tiles) * plan.slices, cuda::kSpreadThreads, plan.shared_bytes());
  how.cluster = static_cast<unsigned>(plan.slices);
  how.resident = draw(random, 1, 2);
  if (!expect_no_error(run(kernel_of(p.kind), how, args))) return;
  if (bytes == 4) {
    std::vector<float> values(expected.size());
    std::memcpy(values.data(), y.data(), y.size());
    EXPECT_TRUE(values == expected);
  } else {
    expect_values(y, expected, bytes == 1, int8 ? 0 : 4);
  }
}

void expect_convolutions(Kind kind, unsigned test, int count) {
  std::mt19937 random = numbers(test);
  Seen seen;
  for (int i = 0; i < count; ++i) {
    ConvShape s = random_shape(random, is_int8(kind), i);
    s.real_output = stored_by(kind) != cuda::StoredType::i8;
    const Problem problem(random, kind, s);
    const std::vector<float> expected = problem.expected();
    for (const SpreadPlan& plan : cuda::spread_plans(s, 132)) {
      SCOPED_TRACE(fmt::format(
          "case {}: {} images of {} x {} x {} to {} x {} x {}, window {} x {}, stride {} {}, dilation {} {}, "
          "padding {} {}, residual {}, plan {}, seed {}",
          i, s.batch, s.in_h, s.in_w, problem.conv.in_c, s.out_h, s.out_w, s.out_c, s.kernel_h, s.kernel_w,
          s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.pad_h, s.pad_w, problem.adds, plan.name(),
          gpu_seed()));
      seen.slices.insert(plan.slices), seen.held.insert(plan.held);
      expect_plan(random, problem, plan, expected);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_EQ(seen.slices, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(seen.held.size(), 3U);
}

TEST(EmulatedSpreadGemm, IsTheSpecificationInInt8) {
  expect_convolutions(Kind::bytes, 61, 24);
}
TEST(EmulatedSpreadGemm, IsTheSpecificationOfSmallSums) {
  expect_convolutions(Kind::small_bytes, 62, 12);
}
TEST(EmulatedSpreadGemm, LooksBytesUp) {
  expect_convolutions(Kind::table_bytes, 63, 12);
}
TEST(EmulatedSpreadGemm, StoresRealValues) {
  expect_convolutions(Kind::bytes_to_halves, 64, 9);
  expect_convolutions(Kind::bytes_to_floats, 65, 9);
}
TEST(EmulatedSpreadGemm, AgreesInHalves) {
  expect_convolutions(Kind::halves, 66, 24);
}
TEST(EmulatedSpreadGemm, ComputesAFunctionOfHalves) {
  expect_convolutions(Kind::function_halves, 67, 9);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
