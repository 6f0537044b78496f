// Rows side by side on a CPU, and what their channels are multiplied by, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <deque>

#include "layers/cuda/movement/rows_kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ConcatRowsArgs;
using namespace cuda::concat;

// Some rows of parts, whose widths are multiples of `unit` bytes, in a y whose rows have bytes before and after them,
// which must stay as they are.
struct Rows {
  int rows, columns = 0, front, behind;
  std::vector<int> widths;
  std::vector<std::vector<std::byte>> values;  // of each part
  std::deque<Global<std::byte>> memory;

  template <typename Value>
  Rows(std::mt19937& random, int unit, const Value& value)
      : rows(draw(random, 1, coin(random) ? 6 : 60)),
        front(unit * draw(random, 0, 2)),
        behind(unit * draw(random, 0, 2)) {
    const int parts = coin(random) ? draw(random, 1, 5) : draw(random, 6, cuda::kConcatMaxParts);
    for (int p = 0; p < parts; ++p) {
      widths.push_back(unit * draw(random, 1, parts > 5 ? 3 : 12));
      columns += widths.back();
      std::vector<std::byte> bytes;
      while (static_cast<int>(bytes.size()) < rows * widths.back()) value(bytes);
      values.push_back(std::move(bytes));
      memory.emplace_back(values.back());
    }
  }
  int pitch() const { return front + columns + behind; }
  // Byte `column` of the parts side by side.
  const std::byte* at(int row, int column) const {
    std::size_t p = 0;
    while (column >= widths[p]) column -= widths[p++];
    return &values[p][static_cast<std::size_t>(row * widths[p] + column)];
  }
};

constexpr std::byte kPoison{0x5A};

// `expected(at, channel)`: the bytes of one element, which lies at `at` and is of that channel.
template <typename Then, typename Expected>
void expect_rows(std::mt19937& random, const Rows& x, ConcatRowsArgs args, int element,
                 const Expected& expected) {
  Global<std::byte> y(static_cast<std::size_t>(x.rows * x.pitch()), std::to_integer<int>(kPoison));
  args.y = y.data() + x.front, args.pitch = x.pitch(), args.rows = x.rows;
  for (std::size_t p = 0; p < x.widths.size(); ++p) {
    args.part[args.count++] = {x.memory[p].data(), args.columns, args.columns + x.widths[p]};
    args.columns += x.widths[p];
  }
  const int units = args.columns / static_cast<int>(sizeof(typename Then::Unit));
  const int row_step = draw(random, 1, x.rows), blocks = (row_step * units + 255) / 256;
  if (!expect_no_error(run(copy_rows<Then>, launch_of(random, blocks, kThreads, 0), args, units, row_step)))
    return;
  std::vector<std::byte> wanted(y.size(), kPoison);
  for (int row = 0; row < x.rows; ++row) {
    for (int column = 0; column < x.columns; column += element) {
      const std::vector<std::byte> value =
          expected(x.at(row, column), static_cast<std::size_t>(column / element));
      std::ranges::copy(value, wanted.begin() + row * x.pitch() + x.front + column);
    }
  }
  const std::vector<std::byte> got = y.values();
  const auto [a, b] = std::ranges::mismatch(got, wanted);
  ASSERT_TRUE(a == got.end()) << "byte " << a - got.begin() << " of " << got.size() << " in rows of "
                              << x.pitch() << ", of which " << x.front << " are before it, seed "
                              << gpu_seed();
}

template <typename T>
void append(std::vector<std::byte>& to, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}
template <typename T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> result;
  append(result, value);
  return result;
}
template <typename T>
T value_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void append_byte(std::mt19937& random, std::vector<std::byte>& to) {
  to.push_back(static_cast<std::byte>(draw(random, 0, 255)));
}

template <typename T>
void expect_copies(unsigned test) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 8 && !testing::Test::HasFailure(); ++i) {
    const Rows x(random, sizeof(T), [&](auto& to) { append_byte(random, to); });
    expect_rows<Unchanged<T>>(random, x, {}, 1,
                              [](const std::byte* at, std::size_t) { return std::vector{*at}; });
  }
}

TEST(EmulatedConcatRows, CopiesUnitsOfEverySize) {
  expect_copies<uint4>(241);
  expect_copies<uint2>(242);
  expect_copies<unsigned>(243);
  expect_copies<unsigned char>(244);
}

template <int N>
void expect_requantized(unsigned test) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 8 && !testing::Test::HasFailure(); ++i) {
    const Rows x(random, N, [&](auto& to) { append_byte(random, to); });
    const RandomConv conv(random, true, 1, x.columns, 1, coin(random), 127);
    const Global<std::int32_t> weights(std::vector<std::int32_t>(conv.bytes.begin(), conv.bytes.end())),
        biases(conv.whole_bias);
    const Global<float> multipliers(conv.multiplier);
    ConcatRowsArgs args;
    args.weights = weights.data(), args.biases = biases.data(), args.multipliers = multipliers.data();
    args.low = conv.bounds.low, args.high = conv.bounds.high;
    expect_rows<Requantized<N>>(random, x, args, 1, [&](const std::byte* at, std::size_t c) {
      const float v =
          output_of(conv, static_cast<int>(c), {static_cast<float>(value_at<std::int8_t>(at))}, nullptr, 0);
      return bytes_of(static_cast<std::int8_t>(v));
    });
  }
}

TEST(EmulatedConcatRows, RequantizesBitForBit) {
  expect_requantized<8>(245);
  expect_requantized<1>(246);
}

// The product and the sum are rounded once, as fmaf does.
template <typename T, int N, typename Read, typename Write>
void expect_scaled(unsigned test, const Read& read, const Write& write) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 8 && !testing::Test::HasFailure(); ++i) {
    const Rows x(random, N * static_cast<int>(sizeof(T)),
                 [&](auto& to) { append(to, write(real(random, -2, 2))); });
    std::vector<float> factors, shifts;
    for (std::size_t c = 0; c < static_cast<std::size_t>(x.columns) / sizeof(T); ++c)
      factors.push_back(real(random, -2, 2)), shifts.push_back(real(random, -1, 1));
    const Global<float> factors_of(factors), shifts_of(shifts);
    ConcatRowsArgs args;
    args.factors = factors_of.data(), args.shifts = shifts_of.data();
    args.low = coin(random) ? 0 : -kInfinity, args.high = coin(random) ? 1.5F : kInfinity;
    expect_rows<Scaled<T, N>>(random, x, args, sizeof(T), [&](const std::byte* at, std::size_t c) {
      const float v = std::fma(read(at), factors[c], shifts[c]);
      return bytes_of(write(std::min(std::max(v, args.low), args.high)));
    });
  }
}

TEST(EmulatedConcatRows, ScalesHalvesAndFloats) {
  const auto half = [](const std::byte* at) { return to_float(value_at<Half>(at)); };
  const auto same = [](float v) { return v; };
  expect_scaled<__half, 8>(247, half, [](float v) { return to_half(v); });
  expect_scaled<__half, 1>(248, half, [](float v) { return to_half(v); });
  expect_scaled<float, 4>(249, value_at<float>, same);
  expect_scaled<float, 1>(250, value_at<float>, same);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
