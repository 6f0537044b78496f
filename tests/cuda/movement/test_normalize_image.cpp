// NormalizeImage on the GPU: the table's own bits.
#include "layers/ops/normalize_image.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal {
namespace {

std::shared_ptr<const Tensor> random_bytes(const Shape& shape, std::mt19937& random) {
  Tensor tensor(TensorDesc{shape, DType::u8});
  for (std::uint8_t& x : tensor.values<std::uint8_t>())
    x = static_cast<std::uint8_t>(std::uniform_int_distribution<int>(0, 255)(random));
  return std::make_shared<const Tensor>(std::move(tensor));
}

TEST(GpuNormalizeImage, IsTheTable) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  // Runs of four pixels, then others.
  for (const Shape& shape : {Shape{2, 5, 8, 3}, Shape{3, 64, 48, 3}, Shape{2, 6, 12, 1}, Shape{2, 5, 7, 3},
                             Shape{1, 3, 8, 4}, Shape{1, 9, 3, 1}, Shape{2, 3, 4, 2}}) {
    for (const bool first : {true, false}) {
      for (const bool reverse : {true, false}) {
        test::GpuCase test;
        test.inputs = {{random_bytes(shape, random)},
                       {test::shared_random(Shape{shape[3], 256}, random, -3, 3), Layout::row_major, true}};
        test.exact = true;
        test::expect_gpu(NormalizeImage({first, reverse}), "table", test);
        test.precision = Precision::fp16;  // the image stays as it is
        test.keep_input_f32 = test.keep_output_f32 = true;
        test::expect_gpu(NormalizeImage({first, reverse}), "table", test);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace pipit::internal
