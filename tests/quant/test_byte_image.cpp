// Graphs that get their image as bytes: the same bits in every precision, and the same kernels after the first layer.
#include <gmock/gmock.h>

#include "layers/ops/unary.h"
#include "layers/passes/byte_image.h"
#include "layers/passes/pipeline.h"
#include "tests/quant/small_resnet.h"

namespace pipit::internal {
namespace {

using test::small_resnet;

// An image as bytes, and as the floats that the table makes of them.
struct Images {
  NormalizeImageAttributes attributes;
  Tensor table, bytes, floats;

  Images(std::mt19937& random, NormalizeImageAttributes how)
      : attributes(how),
        table(test::random_tensor(Shape{3, 256}, random, -2.5F, 2.5F)),
        bytes(TensorDesc{Shape{1, 12, 12, 3}, DType::u8}),
        floats(TensorDesc{Shape{1, 3, 12, 12}}) {
    const auto x = bytes.values<std::uint8_t>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<std::uint8_t>(std::uniform_int_distribution<int>(0, 255)(random));
      const std::size_t c = attributes.reverse_channels ? 2 - i % 3 : i % 3;
      floats.values<float>()[c * 144 + i / 3] = table.values<float>()[c * 256 + x[i]];
    }
  }
  Graph in_front_of(const Graph& graph) const { return with_byte_image(graph, attributes, table.clone()); }
};

std::vector<float> scores(Graph graph, const CompileOptions& options, const Tensor& image) {
  Session session(compile(std::move(graph), options).plans[0]);
  const ConstTensorView view = image.view();
  const Tensor y = to_layout(session.run({&view, 1})[0], Layout::row_major);
  return {y.values<float>().begin(), y.values<float>().end()};
}

std::vector<std::string> types_of(const Graph& graph) {
  std::vector<std::string> types;
  for (const Node& node : graph.nodes()) types.emplace_back(node.layer->type());
  return types;
}

TEST(ByteImage, GivesTheSameBitsInEveryPrecision) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  for (const bool reverse : {false, true}) {
    const Images images(random, {.reverse_channels = reverse});
    for (const Precision precision :
         {Precision::fp32, Precision::fp16, Precision::int8, Precision::int8_dynamic, Precision::w8}) {
      SCOPED_TRACE(precision_name(precision));
      CompileOptions options;
      options.planning.precision = precision;
      options.planning.threads = 2;
      if (precision == Precision::int8) options.scales = test::calibrated(graph, random, 8);
      EXPECT_THAT(scores(images.in_front_of(graph), options, images.bytes),
                  ::testing::ElementsAreArray(scores(graph, options, images.floats)));
    }
  }
}

TEST(ByteImage, ChangesNothingBehindIt) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  const Images images(random, {});
  const QuantizationPlan scales = test::calibrated(graph, random, 8);
  const auto prepared = [&](const Graph& given, Precision precision) {
    PassTarget target{.device = DeviceKind::cuda, .precision = precision};
    if (precision == Precision::int8) {
      target.quantize = [&](const Graph& fused, PassTarget&) {
        return Rewritten{quantize_graph(fused, scales, {.activations = DType::i8}).graph};
      };
    }
    return optimize(given, target);
  };
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::int8}) {
    SCOPED_TRACE(precision_name(precision));
    std::vector<std::string> expected = types_of(prepared(graph, precision));
    expected.insert(expected.begin(), "NormalizeImage");
    const Graph with_bytes = prepared(images.in_front_of(graph), precision);
    EXPECT_EQ(types_of(with_bytes), expected);
    EXPECT_EQ(with_bytes.value(with_bytes.inputs()[0]).name, "image.u8");
    const Value& image = with_bytes.value(with_bytes.nodes()[0].outputs[0]);
    EXPECT_EQ(image.name, "image");
    EXPECT_EQ(image.desc.str(), TensorDesc{Shape({1, 3, 12, 12})}.str());
  }
}

TEST(ByteImage, RefusesWhatIsNoImage) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{2, 8}});
  builder.mark_output(builder.add1("relu", std::make_shared<Unary>(UnaryAttributes{}), {x}));
  const Graph graph = builder.build();
  EXPECT_THAT(
      [&] {
        with_byte_image(graph, {}, Tensor(TensorDesc{Shape{3, 256}}));
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("input 'x' is f32")));
}

}  // namespace
}  // namespace pipit::internal
