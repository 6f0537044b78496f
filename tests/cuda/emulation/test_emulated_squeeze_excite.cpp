// squeeze_excite on a CPU, against plain loops: clusters of every width.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "layers/cuda/conv/squeeze_excite/kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::SqueezePlan;
using cuda::SqueezeShape;

cuda::SqueezeShape random_shape(std::mt19937& random, bool int8, int number) {
  SqueezeShape s;
  s.element_bytes = int8 ? 1 : 2;
  s.images = draw(random, 1, 3);
  // Few and many vectors a position; one position, and more than threads read at once.
  s.channels = 8 * (number % 3 == 0 ? draw(random, 20, 90) : draw(random, 1, 12));
  s.positions = number % 4 == 0 ? draw(random, 1, 9) : draw(random, 10, 400);
  s.squeezed = draw(random, 1, 70);
  s.gates = number % 2 == 0 ? s.channels : draw(random, 1, 150);
  return s;
}

template <typename T>
std::vector<std::byte> in_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// A layer and the function after it: in INT8 any bytes, in halves SiLU or none.
struct Layer {
  RandomConv conv;
  std::vector<std::uint8_t> table;
  bool function;

  Layer(std::mt19937& random, bool int8, int in, int out)
      : conv(random, int8, in, out, 1, coin(random)), function(coin(random)) {
    for (int i = 0; i < 256; ++i)
      table.push_back(static_cast<std::uint8_t>(function ? draw(random, 0, 255) : i));
  }
  float result(int output, const std::vector<float>& x) const {
    const float v = output_of(conv, output, x, nullptr, 0);
    if (conv.int8)
      return static_cast<std::int8_t>(table[static_cast<std::uint8_t>(static_cast<std::int8_t>(v))]);
    return function ? to_float(to_half(v / (1 + std::exp(-v)))) : v;
  }
  std::vector<float> results(const std::vector<float>& x) const {
    std::vector<float> y;
    for (int o = 0; o < conv.out_c; ++o) y.push_back(result(o, x));
    return y;
  }
  cuda::SqueezeLayer packed() const {
    return {conv.int8 ? in_bytes(conv.bytes) : in_bytes(conv.halves),
            conv.int8 ? in_bytes(conv.whole_bias) : in_bytes(conv.bias), in_bytes(conv.multiplier),
            conv.int8 ? in_bytes(table) : std::vector<std::byte>()};
  }
  cuda::HalfFunction half_function() const {
    if (function) return {cuda::HalfGate::logistic, true, -1.442695F, 0};
    return {cuda::HalfGate::sign, true, 1, 0};
  }
};

void expect_gates(std::mt19937& random, const SqueezePlan& plan) {
  const SqueezeShape& s = plan.shape;
  const bool int8 = s.element_bytes == 1;
  const Image x(random, int8, s.images, 1, s.positions, s.channels);
  const Layer first(random, int8, s.channels, s.squeezed), second(random, int8, s.squeezed, s.gates);

  cuda::SqueezeArgs args = cuda::squeeze_args(plan);
  // Means of random bytes are small.
  args.factor = (int8 ? std::sqrt(static_cast<float>(s.positions)) : 1) / static_cast<float>(s.positions);
  args.mean = {-127, coin(random) ? 127.0F : 30.25F};
  args.layers[0] = {first.conv.bounds.low, first.conv.bounds.high};
  args.layers[1] = {second.conv.bounds.low, second.conv.bounds.high};
  args.functions[0] = first.half_function(), args.functions[1] = second.half_function();
  const Global<std::byte> in_memory(x.bytes(int8)),
      weights(cuda::pack_squeeze_excite(plan, first.packed(), second.packed()));
  Global<std::byte> y(static_cast<std::size_t>(s.images) * s.gates * s.element_bytes, 0x5A);
  args.x = in_memory.data(), args.weights = weights.data(), args.y = y.data();

  std::vector<float> expected;
  for (int n = 0; n < s.images; ++n) {
    std::vector<float> means;
    for (int c = 0; c < s.channels; ++c) {
      float sum = 0;  // of whole numbers below 2^24, or of halves
      for (int p = 0; p < s.positions; ++p) sum += x.at(n, 0, p, c);
      const float mean = sum * args.factor;
      means.push_back(int8 ? static_cast<float>(requantize(mean, {args.mean.low, args.mean.high}, 0))
                           : to_float(to_half(mean)));
    }
    const std::vector<float> gates = second.results(first.results(means));
    expected.insert(expected.end(), gates.begin(), gates.end());
  }

  Launch how = launch_of(random, s.images * plan.blocks, cuda::kSqueezeThreads, plan.shared_bytes);
  how.cluster = static_cast<unsigned>(plan.blocks);
  how.resident = draw(random, 1, 2);
  const Outcome outcome = int8 ? run(cuda::run_squeeze_excite<cuda::SqueezeInt8>, how, args)
                               : run(cuda::run_squeeze_excite<cuda::SqueezeHalf<__half>>, how, args);
  if (expect_no_error(outcome)) expect_values(y, expected, int8);
}

void expect_shapes(bool int8, unsigned test) {
  std::mt19937 random = numbers(test);
  std::set<int> slices;
  for (int i = 0; i < 12; ++i) {
    const SqueezeShape s = random_shape(random, int8, i);
    for (int blocks = 1; blocks <= cuda::kSqueezeMaxBlocks; blocks *= 2) {
      SCOPED_TRACE(
          fmt::format("case {}: {} images of {} positions, {} channels to {} to {}, {} blocks, seed {}", i,
                      s.images, s.positions, s.channels, s.squeezed, s.gates, blocks, gpu_seed()));
      const SqueezePlan plan = cuda::lay_out_squeeze_excite(s, blocks);
      slices.insert(plan.slices);
      expect_gates(random, plan);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(slices.size(), 3U);
}

TEST(EmulatedSqueezeExcite, IsTheSpecificationInInt8) {
  expect_shapes(true, 81);
}
TEST(EmulatedSqueezeExcite, AgreesInHalves) {
  expect_shapes(false, 82);
}
TEST(SqueezeExcitePlan, IsAsWideAsItPays) {
  const auto blocks_of = [](const SqueezeShape& s) {
    return std::get<SqueezePlan>(cuda::plan_squeeze_excite(s, 132)).blocks;
  };
  // One wave of blocks; two of them a multiprocessor where there would be no cluster.
  EXPECT_EQ(blocks_of({1, 3136, 96, 4, 96, 2}), 8);
  EXPECT_EQ(blocks_of({32, 3136, 96, 4, 96, 2}), 4);
  EXPECT_EQ(blocks_of({128, 3136, 96, 4, 96, 2}), 2);
  EXPECT_EQ(blocks_of({256, 3136, 96, 4, 96, 2}), 1);
  EXPECT_EQ(blocks_of({1, 1, 96, 4, 96, 2}), 1);
  // The shared memory of one block has no room for the weights.
  EXPECT_EQ(blocks_of({1, 3, 960, 240, 960, 2}), 8);
  for (const SqueezeShape& s :
       {SqueezeShape{1, 49, 4096, 4096, 4096, 2}, {1, 49, 4104, 8, 8, 1}, {1, 49, 12, 8, 8, 1}})
    EXPECT_TRUE(std::holds_alternative<std::string>(cuda::plan_squeeze_excite(s, 132)));
}

}  // namespace
}  // namespace pipit::internal::test::emulation
