// resident_block on a CPU, in its three forms, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <optional>
#include <variant>

#include "layers/cuda/conv/resident_block/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::BlockAdds;
using cuda::BlockForm;
using cuda::BlockPlan;
using cuda::ConvChainShape;

struct Extents {
  int images, height, width, workers;
};

// A block's convolutions, and what is packed of them. largest: of INT8 weights.
class Block {
 public:
  // In INT8 all but what is added first ends in ReLU: the kernels are for nothing else.
  Block(std::mt19937& random, const ConvChainShape& shape, const BlockPlan& plan, int largest) : plan_(plan) {
    const bool basic = plan.form == BlockForm::basic;
    const int in_c = shape.inputs[0], inner = plan.inner(), out_c = shape.convs.back().out_c;
    const auto made = [&](int in, int out, int taps, bool stored, bool added_first) -> RandomConv& {
      return convs_
          .emplace_back(Part{RandomConv(random, int8(), in, out, taps, !added_first, largest), stored})
          .conv;
    };
    convs_.reserve(4);
    head_ = &made(in_c, inner, basic ? 9 : 1, true, false);
    if (!basic) window_ = &made(inner, inner, 9, false, false);
    tail_ = &made(inner, out_c, basic ? 9 : 1, true, plan.adds == BlockAdds::tail);
    if (plan.projects()) projection_ = &made(in_c, out_c, 1, true, plan.adds == BlockAdds::projection);
  }

  bool int8() const { return plan_.element_bytes == 1; }
  cuda::ResidentBlockArgs args() const {
    cuda::ResidentBlockArgs args(plan_);
    const auto bounds = [](const RandomConv* conv) {
      return conv ? conv->unit_bounds() : cuda::PairBounds{};
    };
    args.head = bounds(head_), args.window = bounds(window_);
    args.tail = bounds(tail_), args.projection = bounds(projection_);
    args.residual_scale = int8() && plan_.adds != BlockAdds::nothing ? 0.83F : 0;
    return args;
  }
  std::vector<std::byte> weights() const {
    std::vector<std::byte> to;
    for (const Part& part : convs_) {
      const RandomConv& conv = part.conv;
      cuda::append_units(conv.weights(), {conv.in_c, conv.out_c, conv.taps, plan_.element_bytes}, part.stored,
                         plan_.inner(), to);
    }
    return to;
  }
  std::vector<std::byte> constants() const {
    std::vector<std::byte> to;
    for (const Part& part : convs_) append_constants(to, part.conv, part.stored);
    return to;
  }
  Image expected(const Image& x, float scale) const {
    const Image head = convolved(*head_, x), inner = window_ ? convolved(*window_, head) : head;
    if (plan_.adds == BlockAdds::tail) {
      const Image last = convolved(*tail_, inner);
      return convolved(*projection_, x, &last, scale);
    }
    const std::optional<Image> projected =
        projection_ ? std::optional(convolved(*projection_, x)) : std::nullopt;
    return convolved(*tail_, inner,
                     projected                    ? &*projected
                     : plan_.adds == BlockAdds::x ? &x
                                                  : nullptr,
                     scale);
  }

 private:
  struct Part {
    RandomConv conv;
    bool stored;
  };
  BlockPlan plan_;
  std::vector<Part> convs_;
  const RandomConv *head_ = nullptr, *window_ = nullptr, *tail_ = nullptr, *projection_ = nullptr;
};

template <typename Sum>
Outcome run_by_groups(const Launch& how, const cuda::ResidentBlockArgs& args) {
  using cuda::run_resident_block;
  const BlockAdds adds = args.plan.adds;
  if (args.plan.form == BlockForm::basic)
    return adds == BlockAdds::x
               ? run(run_resident_block<Sum, BlockForm::basic, BlockAdds::x>, how, args)
               : run(run_resident_block<Sum, BlockForm::basic, BlockAdds::nothing>, how, args);
  switch (adds) {
    case BlockAdds::x:
      return run(run_resident_block<Sum, BlockForm::bottleneck, BlockAdds::x>, how, args);
    case BlockAdds::projection:
      return run(run_resident_block<Sum, BlockForm::bottleneck, BlockAdds::projection>, how, args);
    case BlockAdds::tail:
      return run(run_resident_block<Sum, BlockForm::bottleneck, BlockAdds::tail>, how, args);
    default:
      return run(run_resident_block<Sum, BlockForm::bottleneck, BlockAdds::nothing>, how, args);
  }
}

Outcome run_block(const Launch& how, const cuda::ResidentBlockArgs& args) {
  if (args.plan.form != BlockForm::streamed)
    return args.plan.element_bytes == 1 ? run_by_groups<std::int32_t>(how, args)
                                        : run_by_groups<float>(how, args);
  using cuda::run_streamed_block;
  if (args.plan.adds == BlockAdds::x)
    return args.small_sums ? run(run_streamed_block<true, true>, how, args)
                           : run(run_streamed_block<true, false>, how, args);
  return args.small_sums ? run(run_streamed_block<false, true>, how, args)
                         : run(run_streamed_block<false, false>, how, args);
}

// Whether there is a plan: wide rows leave no room beside many weights. small: weights, whose sums are floats as they
// are; others are converted.
bool expect_block(std::mt19937& random, ConvChainShape shape, BlockForm form, const Extents& e,
                  bool small = true) {
  shape.images = e.images, shape.height = e.height, shape.width = e.width;
  const auto roles = cuda::block_roles(shape);
  if (!roles || roles->form != form) {
    ADD_FAILURE() << "the chain is no such block";
    return false;
  }
  const auto planned = cuda::plan_block(shape, *roles, e.workers);
  const auto* plan = std::get_if<BlockPlan>(&planned);
  if (plan == nullptr) return false;
  const Block block(random, shape, *plan, !small ? 127 : form == BlockForm::streamed ? 25 : 40);
  const bool int8 = block.int8();
  const int in_c = shape.inputs[0], out_c = shape.convs.back().out_c;
  const Image x(random, int8, e.images, e.height, e.width, in_c);
  Global<std::byte> in_memory(x.bytes(int8)), weights(block.weights()), constants(block.constants());
  Global<std::byte> y(x.values.size() / static_cast<std::size_t>(in_c) * out_c * (int8 ? 1 : 2), 0x5A);
  cuda::ResidentBlockArgs args = block.args();
  args.small_sums = small;
  args.weights = weights.data(), args.constants = constants.data();
  args.x = cuda::matrix_map(in_memory.data(), std::int64_t{plan->in_units} * plan->row_bytes(),
                            plan->positions, plan->copy_bytes(), cuda::kUnitRows);
  args.residual = in_memory.data();
  args.y = y.data();
  const Launch how =
      launch_of(random, plan->workers, plan->threads(), plan->shared_bytes() - cuda::kBlockReserved + 1024);
  if (!expect_no_error(run_block(how, args))) return false;
  expect_values(y, block.expected(x, args.residual_scale).values, int8);
  return true;
}

// How many blocks were planned, of all that the shapes and extents make; adds: as random_block() names it.
template <typename ShapeOf>
void expect_blocks(BlockForm form, std::span<const Extents> extents, int kinds, unsigned test, int least,
                   const ShapeOf& shape_of) {
  std::mt19937 random = numbers(test);
  int blocks = 0, number = 0;
  for (const Extents& e : extents) {
    for (int kind = 0; kind < kinds; ++kind, ++number) {
      SCOPED_TRACE(fmt::format("case {}: kind {}, {} images of {} x {}, {} workers, seed {}", number, kind,
                               e.images, e.height, e.width, e.workers, gpu_seed()));
      const auto [shape, small] = shape_of(random, kind, number);
      blocks += expect_block(random, shape, form, e, small);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(blocks, least);
}

// A tile and less, several workers, one image after another in a worker's range, rows of more than a tile.
constexpr Extents kExtents[] = {{1, 7, 9, 1},   {3, 7, 9, 2},  {2, 14, 14, 3},
                                {1, 20, 28, 2}, {2, 5, 70, 2}, {1, 1, 1, 4}};

// Nothing is added, x, a projection of x to the result, or the result to that.
void expect_bottlenecks(int element_bytes, unsigned test) {
  expect_blocks(BlockForm::bottleneck, kExtents, 4, test, 12, [&](std::mt19937& random, int adds, int) {
    return std::pair(random_block(random, element_bytes, adds), true);
  });
}

TEST(EmulatedResidentBlock, IsTheSpecificationInInt8) {
  expect_bottlenecks(1, 1);
}
TEST(EmulatedResidentBlock, AgreesInHalves) {
  expect_bottlenecks(2, 2);
}

// Besides rounds of both rings and of the barriers of x, and rows of as many tiles as there are barriers for.
constexpr Extents kBasicExtents[] = {{1, 7, 9, 1},   {3, 7, 9, 2},  {2, 14, 14, 3}, {1, 20, 28, 7},
                                     {3, 28, 28, 1}, {2, 5, 70, 2}, {1, 1, 1, 4},   {1, 2, 440, 1}};

void expect_basic_blocks(int element_bytes, unsigned test, int least) {
  expect_blocks(BlockForm::basic, kBasicExtents, 2, test, least, [&](std::mt19937&, int adds, int) {
    constexpr int kC = cuda::kUnitChannels;
    const ConvChainShape shape{
        1, 1, 1, element_bytes, {kC}, {{0, -1, kC, kC, true}, {1, adds - 1, kC, kC, true}}};
    return std::pair(shape, true);
  });
}

TEST(EmulatedResidentBlock, IsTheSpecificationOfTwoWindowsInInt8) {
  expect_basic_blocks(1, 3, 16);
}
// In halves rows of more than two tiles leave no room beside the weights.
TEST(EmulatedResidentBlock, AgreesOfTwoWindowsInHalves) {
  expect_basic_blocks(2, 4, 14);
}

constexpr Extents kStreamedExtents[] = {{1, 7, 9, 1},   {3, 14, 14, 2}, {2, 28, 28, 3},
                                        {1, 20, 28, 1}, {2, 5, 70, 2},  {1, 6, 127, 2}};

TEST(EmulatedResidentBlock, IsTheSpecificationWithStreamedWeights) {
  constexpr int kIn[] = {256, 512, 256, 384, 512, 256}, kOut[] = {128, 256, 256, 512, 128, 512};
  expect_blocks(BlockForm::streamed, kStreamedExtents, 4, 11, 24, [&](std::mt19937&, int kind, int number) {
    const bool adds = kind % 2 == 1;
    const int in_c = kIn[number / 4], out_c = adds ? in_c : kOut[number / 4];
    const ConvChainShape shape{
        1,      1,
        1,      1,
        {in_c}, {{0, -1, in_c, 128, false}, {1, -1, 128, 128, true}, {2, adds ? 0 : -1, 128, out_c, false}}};
    return std::pair(shape, kind / 2 == 1);
  });
}

}  // namespace
}  // namespace pipit::internal::test::emulation
