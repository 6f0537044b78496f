// "packed_gemm" on a CPU, against the plain kernels of WLinear and WConv.
#include <map>

#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include "layers/cuda/conv/packed_gemm/kernel.cuh"
#include "layers/ops/unary.h"
#include "layers/ops/weight_only.h"
#include "layers/reference/reference.h"
#include "tests/cuda/emulation/layer_run.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::PackedGemmArgs;
using cuda::PackedShape;
using cuda::PackedVariant;

Tensor random_floats(std::mt19937& random, const Shape& shape, float low, float high) {
  Tensor tensor{TensorDesc{shape}};
  for (float& v : tensor.values<float>()) v = real(random, low, high);
  return tensor;
}

using Inputs = std::vector<std::shared_ptr<const Tensor>>;

/// x, the weights, their scales, and perhaps a bias. Sums come out about as large as x.
Inputs random_inputs(std::mt19937& random, const WeightFormat& format, const Shape& x, std::int64_t depth,
                     std::int64_t outputs) {
  const auto share = [](Tensor tensor) { return std::make_shared<const Tensor>(std::move(tensor)); };
  Tensor integers(
      TensorDesc{Shape{outputs, format.row_bytes(depth)}, format.bits == 8 ? DType::i8 : DType::u8});
  std::byte* const bytes = integers.view().data;
  for (std::size_t i = 0; i < integers.desc().bytes(); ++i)
    bytes[i] = static_cast<std::byte>(draw(random, 0, 255));
  if (format.bits == 4 && depth % 2 != 0) {  // the last half-byte of a row
    for (std::int64_t o = 1; o <= outputs; ++o) bytes[o * format.row_bytes(depth) - 1] &= std::byte{15};
  }
  const float scale = 1 / ((format.bits == 8 ? 74.0F : 4.6F) * std::sqrt(static_cast<float>(depth)));
  Inputs inputs{share(as_halves(random_floats(random, x, -1, 1))), share(std::move(integers)),
                share(random_floats(random, Shape{outputs, format.groups(depth)}, -2 * scale, 2 * scale)),
                nullptr};
  if (coin(random)) inputs[3] = share(random_floats(random, Shape{outputs}, -1, 1));
  return inputs;
}

Clamp random_clamp(std::mt19937& random) {
  return coin(random) ? Clamp{} : coin(random) ? Clamp::relu() : Clamp{-0.5F, 0.75F};
}

/// The product of the layer in a random variant; rows of x begin where `pixels` says.
void expect_product(std::mt19937& random, const Layer& layer, const WeightFormat& format,
                    const Clamp& activation, const Inputs& inputs, const std::vector<int>& pixels,
                    std::int64_t depth, bool channels_last) {
  const std::vector<Tensor> expected = referenced(register_reference_weight_only, layer, inputs);
  const std::int64_t outputs = inputs[1]->shape()[0];
  const bool wide = coin(random) && inputs.size() <= 4, function = !wide && draw(random, 0, 3) == 0;
  const PackedShape shape(format, outputs, depth);
  const std::int64_t rows = expected[0].shape().elements() / outputs;
  const auto variants = cuda::packed_variants(shape, rows);
  const PackedVariant variant =
      variants[static_cast<std::size_t>(draw(random, 0, static_cast<int>(variants.size()) - 1))];
  PackedGemmArgs args = cuda::packed_args(shape, variant, static_cast<int>(rows));
  args.wide = wide;
  args.low = activation.low, args.high = activation.high;
  if (function) args.function = {cuda::HalfGate::sign, true, 0.125F, 0};

  const auto placed = [&](const Tensor& tensor) {
    return channels_last ? to_layout(tensor.view(), Layout::channels_last) : tensor.clone();
  };
  Operands operands(true), floats(false);
  const Global<std::uint8_t> weights(cuda::pack_weights(shape, format, inputs[1]->view().data));
  const Global<float> scales(cuda::pack_scales(shape, inputs[2]->values<float>().data()));
  std::vector<float> biases(static_cast<std::size_t>(shape.tiles()) * cuda::kPackedOutputs);
  if (inputs[3]) std::ranges::copy(inputs[3]->values<float>(), biases.begin());
  const Global<float> bias(biases);
  const Global<int> positions(pixels);
  args.weights = weights.data(), args.scales = scales.data(), args.bias = bias.data();
  args.x = operands.in(placed(*inputs[0])).data;
  if (inputs.size() > 4) args.residual = operands.in(placed(*inputs[4])).data;
  if (!pixels.empty()) {
    args.pixels = positions.data();
    args.positions = cuda::Divisor(pixels.size());
    args.image = static_cast<int>(inputs[0]->shape().elements() / inputs[0]->shape()[0]);
  }
  const TensorView y = (wide ? floats : operands).out(expected[0].desc());
  args.y = y.data;
  Launch how = launch_of(random, cuda::packed_parts(args.rows, variant.rows()), variant.warps() * 32,
                         cuda::packed_shared_bytes(args));
  how.grid.y = static_cast<unsigned>(cuda::packed_parts(args.outputs, variant.outputs()));
  SCOPED_TRACE(fmt::format("{} {} of {} rows, {} x {}, {} bits, groups of {}, seed {}", layer.type(),
                           variant.name(), rows, outputs, depth, format.bits, format.group_size, gpu_seed()));
  if (!expect_no_error(run(cuda::packed::kernel_of(args), how, args))) return;
  Tensor target = placed(expected[0]);
  if (function) {
    for (float& v : target.values<float>()) v = v < 0 ? 0.125F * v : v;
  }
  // f32 sums of exact products, in another order than the reference's; y is rounded once.
  const double rounding = 0x1p-23 * std::sqrt(static_cast<double>(depth)) + (wide ? 0 : 0x1p-11);
  expect_same(y, target, 4 * rounding);
}

WeightFormat random_format(std::mt19937& random) {
  constexpr std::int64_t kGroups[] = {32, 64, 128, 256, 0};
  if (draw(random, 0, 2) == 0) return {8, 0};
  return {4, kGroups[draw(random, 0, 4)]};
}

// Depths that fill chunks, spans and 16 bytes or not, rows and outputs that fill tiles or not.
TEST(EmulatedPackedGemm, LinearLayers) {
  std::mt19937 random = numbers(97);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const WeightFormat format = random_format(random);
    const std::int64_t rows = i % 3 == 0 ? 1 : i % 3 == 1 ? draw(random, 2, 20) : draw(random, 21, 150);
    const std::int64_t depth = i % 4 == 0   ? draw(random, 1, 70)
                               : i % 4 == 1 ? 8 * draw(random, 1, 60)
                               : i % 4 == 2 ? draw(random, 100, 700)
                                            : 128 * draw(random, 4, 20);
    const std::int64_t outputs = draw(random, 1, 100);
    const WLinearAttributes attributes{format, random_clamp(random)};
    const Inputs inputs = random_inputs(
        random, format, i % 2 == 0 ? Shape{rows, depth} : Shape{1, rows, depth}, depth, outputs);
    expect_product(random, WLinear(attributes), format, attributes.activation, inputs, {}, depth, false);
  }
}

// Fewer spans than stages of a ring, as many, and several times as many, for each number of warps along k; depths that
// end inside of a span, also odd ones; all groups, and up to 17 rows.
TEST(EmulatedPackedGemm, Rings) {
  std::mt19937 random = numbers(100);
  constexpr WeightFormat kFormats[] = {{8, 0}, {4, 32}, {4, 64}, {4, 128}, {4, 0}};
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const WeightFormat& format = kFormats[i % 5];
    const std::int64_t rows = 1 + i * 7 % 17;
    const int spans = i % 3 == 0   ? draw(random, 1, 8)
                      : i % 3 == 1 ? draw(random, 9, 40)
                                   : draw(random, 41, 120);
    const int missing = draw(random, 0, 2);
    const std::int64_t depth = cuda::kPackedSpan * spans - (missing == 0   ? 0
                                                            : missing == 1 ? 8 * draw(random, 1, 15)
                                                                           : draw(random, 1, 127));
    const std::int64_t outputs = draw(random, 1, 50);
    const WLinearAttributes attributes{format, random_clamp(random)};
    const Inputs inputs = random_inputs(random, format, Shape{rows, depth}, depth, outputs);
    expect_product(random, WLinear(attributes), format, attributes.activation, inputs, {}, depth, false);
  }
}

// With strides, padding and residuals.
TEST(EmulatedPackedGemm, Convolutions) {
  std::mt19937 random = numbers(98);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const WeightFormat format = random_format(random);
    WConvAttributes attributes{format, {}};
    Window& window = attributes.conv.window;
    window.rank = 2;
    const Shape x{draw(random, 1, 3), draw(random, 1, 200), draw(random, 1, 9), draw(random, 1, 9)};
    std::vector<int> pixels;
    if (i % 3 != 0) {
      for (const std::size_t axis : {0, 1}) {
        window.stride[axis] = draw(random, 1, 3);
        window.pad_begin[axis] = draw(random, 0, 2), window.pad_end[axis] = draw(random, 0, 2);
      }
    }
    attributes.conv.activation = random_clamp(random);
    const std::int64_t outputs = draw(random, 1, 70);
    Inputs inputs = random_inputs(random, format, x, x[1], outputs);
    const WConv layer(attributes);
    std::vector<const TensorDesc*> descs;
    for (const auto& input : inputs) descs.push_back(input ? &input->desc() : nullptr);
    const Shape y = layer.infer(descs)[0].shape;
    if (coin(random))
      inputs.push_back(std::make_shared<const Tensor>(as_halves(random_floats(random, y, -1, 1))));
    for (std::int64_t h = 0; i % 3 != 0 && h < y[2]; ++h) {
      for (std::int64_t w = 0; w < y[3]; ++w) {
        const std::int64_t row = h * window.stride[0] - window.pad_begin[0],
                           column = w * window.stride[1] - window.pad_begin[1];
        const bool inside = row >= 0 && row < x[2] && column >= 0 && column < x[3];
        pixels.push_back(inside ? static_cast<int>((row * x[3] + column) * x[1]) : -1);
      }
    }
    expect_product(random, layer, format, attributes.conv.activation, inputs, pixels, x[1], true);
  }
}

// A row of NaN, and one with an infinity, leave the other rows alone.
TEST(EmulatedPackedGemm, RowsAreIndependent) {
  std::mt19937 random = numbers(99);
  for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 32}}) {
    constexpr std::int64_t kRows = 11, kDepth = 200;
    Inputs inputs = random_inputs(random, format, Shape{kRows, kDepth}, kDepth, 24);
    Tensor x = inputs[0]->clone();
    for (std::int64_t k = 0; k < kDepth; ++k)
      x.values<float>()[static_cast<std::size_t>(3 * kDepth + k)] = NAN;
    x.values<float>()[5 * kDepth + 7] = kInfinity;
    inputs[0] = std::make_shared<const Tensor>(std::move(x));
    const std::vector<Tensor> expected =
        referenced(register_reference_weight_only, WLinear({format, {}}), inputs);
    const PackedShape shape(format, 24, kDepth);
    const cuda::PackedVariant variant{2, 2};
    PackedGemmArgs args = cuda::packed_args(shape, variant, kRows);
    args.wide = true;
    args.low = -kInfinity, args.high = kInfinity;
    Operands operands(true), floats(false);
    const Global<std::uint8_t> weights(cuda::pack_weights(shape, format, inputs[1]->view().data));
    const Global<float> scales(cuda::pack_scales(shape, inputs[2]->values<float>().data()));
    std::vector<float> biases(32);
    if (inputs[3]) std::ranges::copy(inputs[3]->values<float>(), biases.begin());
    const Global<float> bias(biases);
    args.weights = weights.data(), args.scales = scales.data(), args.bias = bias.data();
    args.x = operands.in(*inputs[0]).data;
    const TensorView y = floats.out(expected[0].desc());
    args.y = y.data;
    ASSERT_TRUE(expect_no_error(
        run(cuda::packed::kernel_of(args),
            launch_of(random, 1, variant.warps() * 32, cuda::packed_shared_bytes(args)), args)));
    Tensor target = expected[0].clone();
    for (const std::int64_t row : {3, 5}) {
      for (std::int64_t i = row * 24; i < (row + 1) * 24; ++i) {
        float& value = target.values<float>()[static_cast<std::size_t>(i)];
        EXPECT_EQ(std::isfinite(y.as<float>()[i]), std::isfinite(value))
            << "row " << row << ", output " << i % 24 << ", seed " << gpu_seed();
        y.as<float>()[i] = value = 0;
      }
    }
    expect_same(y, target, 4 * 0x1p-23 * std::sqrt(static_cast<double>(kDepth)));
  }
}

// A kernel is told once how much shared memory it may take, by whichever launch of it is planned last.
TEST(EmulatedPackedGemm, AllLaunchesOfAKernelMayTakeTheSameMemory) {
  std::mt19937 random = numbers(101);
  std::map<cuda::packed::Kernel, int> allowed;
  for (int i = 0; i < 300; ++i) {
    const PackedShape shape(random_format(random), draw(random, 1, 400), draw(random, 1, 4000));
    const int rows = draw(random, 1, 80);
    for (const PackedVariant& variant : cuda::packed_variants(shape, rows)) {
      const PackedGemmArgs args = cuda::packed_args(shape, variant, rows);
      const int most = cuda::packed_most_shared_bytes(args);
      EXPECT_LE(cuda::packed_shared_bytes(args), most) << variant.name();
      EXPECT_LE(most, 227 << 10) << variant.name();
      EXPECT_EQ(allowed.try_emplace(cuda::packed::kernel_of(args), most).first->second, most)
          << variant.name();
    }
  }
  EXPECT_EQ(allowed.size(), 23U);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
