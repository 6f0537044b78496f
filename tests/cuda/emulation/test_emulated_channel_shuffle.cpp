// The rows of ChannelShuffle on a CPU, against its definition.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <deque>
#include <numeric>

#include "layers/cuda/movement/rows_kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ShuffleArgs;

// `parts` multiples of `unit` of which the sum is `total`, none of them 0.
std::vector<int> cut(std::mt19937& random, int total, int unit, int parts) {
  std::vector<int> widths;
  for (; parts > 1 && total > unit; --parts) {
    widths.push_back(unit * draw(random, 1, total / unit - 1));
    total -= widths.back();
  }
  widths.push_back(total);
  return widths;
}

template <typename T>
struct Side {
  std::deque<Global<T>> memory;
  std::vector<std::pair<int, int>> place;  // per channel: which one, and which of its channels
  std::vector<int> used, widths;

  // wide: up to that many units of channels after those that count.
  Side(std::mt19937& random, std::vector<int> of, int unit, int wide, int rows) : used(std::move(of)) {
    for (const int channels : used) {
      for (int c = 0; c < channels; ++c) place.emplace_back(static_cast<int>(memory.size()), c);
      widths.push_back((channels + unit - 1) / unit * unit + unit * draw(random, 0, wide));
      memory.emplace_back(static_cast<std::size_t>(rows) * widths.back(), 0x5A);
    }
  }
  T& at(int row, int channel) {
    const auto [which, c] = place[static_cast<std::size_t>(channel)];
    return memory[static_cast<std::size_t>(which)].data()[row * widths[static_cast<std::size_t>(which)] + c];
  }
  template <typename Pointer>
  void hand_to(cuda::ShuffledRows<Pointer>* rows) {
    int end = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) rows[i] = {memory[i].data(), end += used[i], widths[i]};
  }
};

template <typename T>
T random_value(std::mt19937& random) {
  static_assert(sizeof(T) <= 16);
  unsigned words[4];
  for (unsigned& word : words) word = static_cast<unsigned>(random());
  T value;
  std::memcpy(&value, words, sizeof value);
  return value;
}

template <typename T, int N>
void expect_shuffled(std::mt19937& random, int groups) {
  const bool wide = coin(random);
  const int of_group = (wide ? 1 : N) * draw(random, 1, coin(random) ? 4 : 40), channels = groups * of_group;
  const int rows = draw(random, 1, coin(random) ? 5 : 90);
  Side<T> x(random, cut(random, channels, 1, draw(random, 1, cuda::kShuffleMax)), 1, wide ? 3 : 0, rows);
  Side<T> y(random, cut(random, channels, wide ? 1 : N, draw(random, 1, cuda::kShuffleMax)), N, wide ? 2 : 0,
            rows);
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < channels; ++c) x.at(row, c) = random_value<T>(random);
  }
  ShuffleArgs args;
  args.groups = static_cast<unsigned>(groups), args.of_group = static_cast<unsigned>(of_group);
  args.rows = rows, args.row_step = draw(random, 1, rows);
  args.units = std::accumulate(y.widths.begin(), y.widths.end(), 0) / N;
  x.hand_to(args.x), y.hand_to(args.y);
  const int blocks = (args.row_step * args.units + 255) / 256;
  const Outcome outcome =
      run(cuda::shuffle_rows<T, N>, launch_of(random, blocks, cuda::kShuffleThreads, 0), args);
  if (!expect_no_error(outcome)) return;
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < channels; ++c) {
      const int from = c % groups * of_group + c / groups;
      ASSERT_EQ(std::memcmp(&y.at(row, c), &x.at(row, from), sizeof(T)), 0)
          << "row " << row << ", channel " << c << " of " << channels << " in " << groups << " groups, seed "
          << gpu_seed();
    }
    for (std::size_t i = 0; i < y.widths.size(); ++i) {
      for (int c = y.used[i]; c < y.widths[i]; ++c) {
        const T* const first = y.memory[i].data() + row * y.widths[i];
        ASSERT_EQ(std::memcmp(first + c, first + y.used[i] - 1, sizeof(T)), 0)
            << "row " << row << ", channel " << c << " of output " << i << ", seed " << gpu_seed();
      }
    }
  }
}

template <typename T, int N>
void expect_shapes(unsigned test) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 12 && !::testing::Test::HasFailure(); ++i)
    expect_shuffled<T, N>(random, coin(random) ? 2 : draw(random, 1, 7));
}

TEST(EmulatedChannelShuffle, OfBytes) {
  expect_shapes<unsigned char, 4>(101);
  expect_shapes<unsigned char, 2>(102);
  expect_shapes<unsigned char, 1>(103);
}
TEST(EmulatedChannelShuffle, OfWiderElements) {
  expect_shapes<unsigned short, 4>(104);
  expect_shapes<unsigned, 2>(105);
  expect_shapes<unsigned long long, 1>(106);
}
// As Split has it. What moves does not matter to units of 16 bytes.
TEST(EmulatedChannelShuffle, OfOneGroup) {
  std::mt19937 random = numbers(107);
  for (int i = 0; i < 12 && !::testing::Test::HasFailure(); ++i) expect_shuffled<uint4, 1>(random, 1);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
