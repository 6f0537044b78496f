// row_chain on a CPU, against plain loops: clusters, all of which are alive at once.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <memory>
#include <variant>

#include "layers/cuda/conv/row_chain/kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ConvChainShape;
using cuda::RowChainPlan;

constexpr float kResidualScale = 0.83F;

ConvChainShape random_shape(std::mt19937& random, bool int8) {
  // Few long rows: they take most of the time.
  ConvChainShape shape = random_chain(random, 32 << draw(random, int8 ? 1 : 0, 2), int8 ? 1 : 2);
  shape.images = draw(random, 1, 2), shape.height = draw(random, 1, 3);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 17, 24) : draw(random, 1, 16);
  return shape;
}

struct Packed {
  std::vector<cuda::RowPart> parts;
  std::vector<std::byte> streams, constants;
};

Packed pack(const ConvChainShape& shape, const RowChainPlan& plan, const std::vector<RandomConv>& convs) {
  Packed packed;
  packed.parts = plan.parts;
  packed.streams.resize(static_cast<std::size_t>(plan.stream_bytes) * plan.ranks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::byte* to = packed.streams.data() + std::ptrdiff_t{plan.stream_bytes} * rank;
    for (std::size_t p = 0; p < plan.parts.size(); ++p) {
      const RandomConv& conv = convs[static_cast<std::size_t>(plan.conv_of_part[p])];
      to += cuda::pack_row_part(plan.parts[p], rank, conv.taps, conv.in_c, shape.element_bytes,
                                conv.weights(), to);
      const std::ptrdiff_t first = cuda::first_row_output(plan.parts[p], rank, shape.element_bytes);
      for (const std::byte* values : conv.constants())
        packed.constants.insert(packed.constants.end(), values + first * 4,
                                values + first * 4 + (std::ptrdiff_t{128} << plan.parts[p].quads_log2));
      const auto* places = reinterpret_cast<const std::byte*>(plan.places[p].data());
      packed.constants.insert(packed.constants.end(), places,
                              places + plan.places[p].size() * sizeof plan.places[p][0]);
    }
  }
  for (std::size_t p = 0; p < packed.parts.size(); ++p) {
    const auto c = static_cast<std::size_t>(plan.conv_of_part[p]);
    packed.parts[p].low = convs[c].bounds.low, packed.parts[p].high = convs[c].bounds.high;
    packed.parts[p].residual_scale =
        shape.element_bytes == 1 && shape.convs[c].residual >= 0 ? kResidualScale : 0;
  }
  return packed;
}

cuda::RowChainArgs args_of(const ConvChainShape& shape, const RowChainPlan& plan) {
  cuda::RowChainArgs args;
  args.images = shape.images, args.height = shape.height, args.width = shape.width;
  args.ranks = plan.ranks;
  args.ring = plan.ring, args.ring_units = plan.ring_units, args.sums = plan.sums,
  args.constants = plan.constants;
  args.values_bytes = plan.values_bytes, args.constants_bytes = plan.constants_bytes;
  args.stream_bytes = plan.stream_bytes;
  args.input_count = static_cast<int>(plan.inputs.size());
  args.part_count = static_cast<int>(plan.parts.size());
  args.exchange_count = static_cast<int>(plan.exchanges.size());
  std::copy(plan.inputs.begin(), plan.inputs.end(), args.inputs);
  std::copy(plan.exchanges.begin(), plan.exchanges.end(), args.exchanges);
  return args;
}

Launch chain_launch(std::mt19937& random, const ConvChainShape& shape, const RowChainPlan& plan) {
  Launch how = launch_of(random, shape.rows() * plan.ranks, cuda::kRowThreads, plan.shared_bytes);
  how.cluster = static_cast<unsigned>(plan.ranks);
  how.resident = 0;
  return how;
}

void expect_chain(std::mt19937& random, const ConvChainShape& shape, const RowChainPlan& plan) {
  const bool int8 = shape.element_bytes == 1;
  std::vector<RandomConv> convs;
  for (const cuda::ChainConv& c : shape.convs)
    convs.emplace_back(random, int8, c.in_c, c.out_c, c.window ? 9 : 1, coin(random), 127);
  const Packed packed = pack(shape, plan, convs);
  const std::size_t positions = static_cast<std::size_t>(shape.images) * shape.height * shape.width;
  cuda::RowChainArgs args = args_of(shape, plan);
  Global<std::byte> weights(packed.streams), constants(packed.constants),
      rows(static_cast<std::size_t>(plan.exchange_bytes) + 16);
  Global<cuda::RowPart> parts(packed.parts);
  Global<std::uint32_t> counters(cuda::row_chain_counters(args), 0);
  args.weights = weights.data(), args.of_outputs = constants.data(), args.parts = parts.data();
  args.rows = rows.data(), args.counters = counters.data();
  for (int replay = 0; replay < 2; ++replay) {  // counters go on where the launch before has left them
    std::vector<Image> values;
    std::vector<std::unique_ptr<Global<std::byte>>> inputs;
    for (std::size_t i = 0; i < shape.inputs.size(); ++i) {
      values.emplace_back(random, int8, shape.images, shape.height, shape.width, shape.inputs[i]);
      inputs.push_back(std::make_unique<Global<std::byte>>(values[i].bytes(int8)));
      args.x[i] = inputs.back()->data();
    }
    Global<std::byte> y(positions * static_cast<std::size_t>(shape.convs.back().out_c) * (int8 ? 1 : 2),
                        0x5A);
    args.y = y.data();
    const Launch how = chain_launch(random, shape, plan);
    auto* const kernel = int8 ? cuda::run_row_chain<std::int32_t> : cuda::run_row_chain<float>;
    if (!expect_no_error(run(kernel, how, args))) return;
    for (std::size_t c = 0; c < convs.size(); ++c) {
      const cuda::ChainConv& conv = shape.convs[c];
      const Image* added = conv.residual < 0 ? nullptr : &values[static_cast<std::size_t>(conv.residual)];
      values.push_back(convolved(convs[c], values[static_cast<std::size_t>(conv.x)], added, kResidualScale));
    }
    // Every convolution of a chain may add a step of its own.
    expect_values(y, values.back().values, int8, 4.0F * static_cast<float>(convs.size()));
  }
}

void expect_chains(bool int8, int count, unsigned test) {
  std::mt19937 random = numbers(test);
  int chains = 0;
  for (int i = 0; i < count; ++i) {
    const ConvChainShape shape = random_shape(random, int8);
    const int ranks = draw(random, 1, 8);
    SCOPED_TRACE(fmt::format("case {}: {} convolutions, {} images of {} x {}, at most {} ranks, seed {}", i,
                             shape.convs.size(), shape.images, shape.height, shape.width, ranks, gpu_seed()));
    const auto planned = cuda::plan_row_chain(shape, shape.rows() * ranks);
    const auto* plan = std::get_if<RowChainPlan>(&planned);
    if (plan == nullptr) continue;
    ++chains;
    expect_chain(random, shape, *plan);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(chains, count / 2);
}

TEST(EmulatedRowChain, IsTheSpecificationInInt8) {
  expect_chains(true, 10, 41);
}
TEST(EmulatedRowChain, AgreesInHalves) {
  expect_chains(false, 10, 42);
}

// A neighbour has the first rows that it exchanges without having waited for this block, which may not have read yet
// what lies around its input.
TEST(EmulatedRowChain, ReadsItsInputBeforeNeighboursRowsTakeItsPlace) {
  std::mt19937 random = numbers(43);
  const ConvChainShape shape{1, 3,    9,
                             1, {64}, {{0, -1, 64, 96, true}, {1, 0, 96, 64, false}, {2, -1, 64, 64, true}}};
  const auto planned = cuda::plan_row_chain(shape, 6);
  const auto* plan = std::get_if<RowChainPlan>(&planned);
  ASSERT_NE(plan, nullptr) << std::get<std::string>(planned);
  for (int i = 0; i < 4; ++i) expect_chain(random, shape, *plan);
}

// A sum takes the place of the projection before it, which nothing else reads: were that sent too, words of both could
// arrive in any order.
TEST(EmulatedRowChain, SendsNothingThatOnlyASumReads) {
  std::mt19937 random = numbers(44);
  const ConvChainShape shape{
      1,
      2,
      9,
      1,
      {64},
      {{0, -1, 64, 64, true}, {0, -1, 64, 128, false}, {1, 2, 64, 128, false}, {3, -1, 128, 64, false}}};
  const auto planned = cuda::plan_row_chain(shape, 4);
  const auto* plan = std::get_if<RowChainPlan>(&planned);
  ASSERT_NE(plan, nullptr) << std::get<std::string>(planned);
  EXPECT_EQ(plan->parts[1].y, plan->parts[2].y);
  for (int i = 0; i < 4; ++i) expect_chain(random, shape, *plan);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
