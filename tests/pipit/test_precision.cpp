// A precision with its options: what it is made from, what it refuses.
#include "pipit/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipit/compiled_model.h"
#include "pipit/error.h"

namespace {

using pipit::ArgumentError;
using pipit::Int8;
using pipit::Int8Dynamic;
using pipit::LoadOptions;
using pipit::ModelPrecision;
using pipit::Precision;
using pipit::W4;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ModelPrecision, OfAPrecisionHasTheDefaultsOfItsOptions) {
  LoadOptions load;
  EXPECT_EQ(load.precision.kind(), Precision::fp32);
  using enum Precision;
  for (const Precision kind : {fp32, fp16, bf16, int8, int8_dynamic, w8, w4}) {
    load.precision = kind;
    EXPECT_EQ(load.precision.kind(), kind);
    EXPECT_EQ(load.precision.name(), pipit::precision_name(kind));
    EXPECT_EQ(load.precision.int8() != nullptr, kind == int8);
    EXPECT_EQ(load.precision.int8_dynamic() != nullptr, kind == int8_dynamic);
    EXPECT_EQ(load.precision.w4() != nullptr, kind == w4);
  }
  load.precision = w4;
  EXPECT_EQ(load.precision.w4()->group, 0);
  load.precision = int8_dynamic;
  EXPECT_TRUE(load.precision.int8_dynamic()->per_sample_scales);
}

TEST(ModelPrecision, HoldsTheOptionsOfItsKind) {
  const LoadOptions load{.precision = Int8{.plan = "plan.json", .keep = {"first=fp32", "last=fp16"}}};
  EXPECT_EQ(load.precision.kind(), Precision::int8);
  EXPECT_EQ(load.precision.name(), "int8");
  EXPECT_EQ(load.precision.int8()->plan, "plan.json");
  EXPECT_THAT(load.precision.int8()->keep, ElementsAre("first=fp32", "last=fp16"));
  const std::vector<ModelPrecision> all = {Precision::bf16, W4{.group = 64},
                                           Int8Dynamic{.per_sample_scales = false}};
  EXPECT_EQ(all[0].kind(), Precision::bf16);
  EXPECT_EQ(all[1].w4()->group, 64);
  EXPECT_FALSE(all[2].int8_dynamic()->per_sample_scales);
}

TEST(ModelPrecision, RefusesWhatIsNoPrecision) {
  EXPECT_THAT([] { ModelPrecision(W4{.group = 7}); },
              ThrowsMessage<ArgumentError>(HasSubstr("W4::group is 7; expected 32, 64 or 128")));
  EXPECT_THAT([] { ModelPrecision(static_cast<Precision>(77)); },
              ThrowsMessage<ArgumentError>(HasSubstr("precision is 77")));
}

}  // namespace
