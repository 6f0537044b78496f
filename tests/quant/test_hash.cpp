#include "quant/hash.h"

#include <gtest/gtest.h>

#include "layers/ops/normalization.h"
#include "layers/ops/reshaping.h"

namespace pipit::internal {
namespace {

struct Parts {
  std::int64_t batch = 1;
  float epsilon = 1e-5F;
  Shape flat{1, 12};
  float scale = 1;
  std::string name = "norm";
};

std::string hash_of(const Parts& p) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{p.batch, 3, 2, 2}});
  std::vector<ValueId> inputs{x};
  for (const char* name : {"scale", "bias", "mean", "var"}) {
    Tensor constant{TensorDesc{Shape{3}}};
    for (float& v : constant.values<float>()) v = p.scale;
    inputs.push_back(builder.add_constant(p.name + name, std::move(constant)));
  }
  const ValueId y = builder.add1(p.name, std::make_shared<BatchNorm>(BatchNormAttributes{p.epsilon}), inputs);
  builder.mark_output(
      builder.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{p.flat.with(0, p.batch)}), {y}));
  return hash_model(builder.build());
}

TEST(HashModel, SeesWhatIsComputedAndNeitherNamesNorBatch) {
  const std::string hash = hash_of({});
  EXPECT_EQ(hash.size(), 32U);
  EXPECT_NE(hash_of({.epsilon = 1e-4F}), hash) << "an attribute that tables do not show";
  EXPECT_NE(hash_of({.flat = {1, 3, 4}}), hash);
  EXPECT_NE(hash_of({.scale = 2}), hash);
  EXPECT_EQ(hash_of({.name = "other"}), hash);
  EXPECT_EQ(hash_of({.batch = 5}), hash);
  // A change makes all existing plans useless: kQuantizationPlanVersion must then change too.
  EXPECT_EQ(hash, "96d7c5e50840d77c54253080ccfd97a7");
}

}  // namespace
}  // namespace pipit::internal
