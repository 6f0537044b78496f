#include "models/resnet.h"

#include <array>
#include <cmath>
#include <random>
#include <string>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

namespace {

class ResnetBuilder {
 public:
  Graph build(ResnetDepth depth, std::int64_t batch) {
    const bool bottleneck = depth == ResnetDepth::resnet50;
    const std::array<int, 4> blocks = bottleneck ? std::array{3, 4, 6, 3} : std::array{2, 2, 2, 2};
    const std::int64_t expansion = bottleneck ? 4 : 1;

    ValueId x = graph_.add_input("input", TensorDesc{Shape{batch, 3, 224, 224}});
    x = relu("stem.relu", conv_bn("stem", x, 64, 7, 2));
    x = graph_.add1("stem.pool",
                    std::make_shared<Pool>(PoolAttributes{.kind = PoolKind::max, .window = square(3, 2)}),
                    {x});
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
      const std::int64_t width = std::int64_t{64} << stage;
      for (int block = 0; block < blocks[stage]; ++block) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
        const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = residual_block(name, x, width, width * expansion, stride, bottleneck);
      }
    }
    x = graph_.add1("pool", std::make_shared<Pool>(PoolAttributes{.kind = PoolKind::average, .global = true}),
                    {x});
    const std::int64_t features = graph_.value(x).desc.shape[1];
    x = graph_.add1("flatten", std::make_shared<Reshape>(ReshapeAttributes{Shape{batch, features}}), {x});
    const ValueId weights = graph_.add_constant("fc.weight", normal(Shape{1000, features}, 0.01));
    const ValueId bias = graph_.add_constant("fc.bias", normal(Shape{1000}, 0.01));
    x = graph_.add1("fc", std::make_shared<Gemm>(GemmAttributes{.transpose_b = true}), {x, weights, bias},
                    "logits");
    graph_.mark_output(x);
    return graph_.build();
  }

 private:
  static Window square(std::int64_t kernel, std::int64_t stride) {
    Window window;
    for (std::size_t d = 0; d < 2; ++d) {
      window.kernel[d] = kernel;
      window.stride[d] = stride;
      window.pad_begin[d] = window.pad_end[d] = kernel / 2;
    }
    return window;
  }

  // Box-Muller on our own: std::normal_distribution differs between standard libraries.
  Tensor normal(const Shape& shape, double deviation, double mean = 0) {
    Tensor tensor{TensorDesc{shape}};
    for (float& value : tensor.values<float>()) {
      const double u = (static_cast<double>(random_()) + 1) / 4294967296.0;
      const double v = static_cast<double>(random_()) / 4294967296.0;
      value = static_cast<float>(mean +
                                 deviation * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
    }
    return tensor;
  }

  ValueId conv_bn(const std::string& name, ValueId x, std::int64_t channels, std::int64_t kernel,
                  std::int64_t stride, double gain = 1) {
    const std::int64_t in = graph_.value(x).desc.shape[1];
    const double deviation = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));
    const ValueId w =
        graph_.add_constant(name + ".weight", normal(Shape{channels, in, kernel, kernel}, deviation));
    x = graph_.add1(name + ".conv", std::make_shared<Conv>(ConvAttributes{.window = square(kernel, stride)}),
                    {x, w});
    const Shape c{channels};
    return graph_.add1(name + ".bn", std::make_shared<BatchNorm>(BatchNormAttributes{}),
                       {x, graph_.add_constant(name + ".bn.scale", normal(c, 0.05 * gain, gain)),
                        graph_.add_constant(name + ".bn.bias", normal(c, 0.05)),
                        graph_.add_constant(name + ".bn.mean", normal(c, 0.05)),
                        graph_.add_constant(name + ".bn.var", normal(c, 0.02, 1.0))});
  }

  ValueId relu(const std::string& name, ValueId x) {
    return graph_.add1(name, std::make_shared<Unary>(UnaryAttributes{.kind = UnaryKind::relu}), {x});
  }

  ValueId residual_block(const std::string& name, ValueId x, std::int64_t width, std::int64_t channels,
                         std::int64_t stride, bool bottleneck) {
    ValueId y = x;
    // The last convolution of a branch is scaled down, so that sixteen additions do not blow the variance up.
    constexpr double kBranchGain = 0.25;
    if (bottleneck) {
      y = relu(name + ".relu1", conv_bn(name + ".conv1", y, width, 1, 1));
      y = relu(name + ".relu2", conv_bn(name + ".conv2", y, width, 3, stride));
      y = conv_bn(name + ".conv3", y, channels, 1, 1, kBranchGain);
    } else {
      y = relu(name + ".relu1", conv_bn(name + ".conv1", y, width, 3, stride));
      y = conv_bn(name + ".conv2", y, channels, 3, 1, kBranchGain);
    }
    const bool projects = stride != 1 || graph_.value(x).desc.shape[1] != channels;
    if (projects) x = conv_bn(name + ".downsample", x, channels, 1, stride);
    y = graph_.add1(name + ".add", std::make_shared<Binary>(BinaryAttributes{.kind = BinaryKind::add}),
                    {y, x});
    return relu(name + ".relu", y);
  }

  GraphBuilder graph_;
  std::mt19937 random_{20160510};
};

}  // namespace

Graph build_resnet(ResnetDepth depth, std::int64_t batch) {
  return ResnetBuilder().build(depth, batch);
}

}  // namespace pipit::internal
