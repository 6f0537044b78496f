// Bytes and the table of a model that normalizes them itself, against preprocess().
#include "models/image/byte_image.h"

#include <gmock/gmock.h>

#include "layers/evaluate.h"
#include "layers/ops/normalize_image.h"
#include "layers/ops/unary.h"
#include "layers/passes/byte_image.h"
#include "models/image/preprocess.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

std::vector<Preprocess> ways() {
  std::vector<Preprocess> all;
  for (const std::string_view preset : preprocess_preset_names()) all.push_back(preprocess_preset(preset));
  Preprocess odd = all[0];
  odd.bgr = true;
  odd.mean = {0.1F, 0.7F, 0.3F}, odd.std = {0.3F, 1.7F, 0.013F};
  odd.scale = 0.0041F;
  all.push_back(odd);
  return all;
}

TEST(ByteImage, IsPreprocessingBitForBit) {
  for (Preprocess p : ways()) {
    for (const Extent size : {Extent{9, 13}, Extent{16, 16}, Extent{1, 7}}) {
      p = fit_to_input(p, size.height, size.width);
      const Image image = test::random_image(size.height * 2 + 5, size.width * 3 + 1);
      const std::int64_t h = size.height, w = size.width;
      for (const Shape& input :
           {Shape{1, 3, h, w}, Shape{1, h, w, 3}, Shape{1, 1, h, w}, Shape{1, h, w, 1}}) {
        const std::optional<ImageInput> place = image_input(input);
        ASSERT_TRUE(place);
        if (place->height != h) continue;  // could be either
        SCOPED_TRACE(input.str() + " " + to_json(p));
        Tensor expected{TensorDesc{input}};
        if (place->channels == 1) {
          preprocess_gray(image, p, expected.values<float>());
        } else {
          preprocess(image, p, expected.values<float>(), place->layout);
        }
        Tensor bytes(TensorDesc{Shape{1, h, w, place->channels}, DType::u8});
        resize_to_bytes(image, p, place->channels, bytes.values<std::uint8_t>());

        GraphBuilder builder;
        const ValueId x = builder.add_input("x", TensorDesc{input});
        builder.mark_output(
            builder.add1("abs", std::make_shared<Unary>(UnaryAttributes{.kind = UnaryKind::abs}), {x}));
        const Graph graph = with_byte_image(builder.build(), p);
        EXPECT_EQ(graph.value(graph.inputs()[0]).desc.str(), bytes.desc().str());
        const Node& node = graph.nodes()[0];
        const std::shared_ptr<const Tensor> operands[] = {std::make_shared<const Tensor>(std::move(bytes)),
                                                          graph.value(node.inputs[1]).constant};
        const Tensor got = std::move(evaluate(*node.layer, operands)[0]);
        ASSERT_EQ(got.shape(), input);
        const std::span<const float> a = got.values<float>(), b = expected.values<float>();
        EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
      }
    }
  }
}

TEST(ByteImage, OtherSizesAreRefused) {
  std::vector<std::uint8_t> bytes(10);
  EXPECT_NE(test::error_of([&] { resize_to_bytes(test::random_image(3, 3), Preprocess{}, 3, bytes); }), "");
  EXPECT_NE(test::error_of([&] { resize_to_bytes(test::random_image(3, 3), Preprocess{}, 2, bytes); }), "");
}

}  // namespace
}  // namespace pipit::internal
