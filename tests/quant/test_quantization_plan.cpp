#include "quant/quantization_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "quant/export_scales.h"
#include "tests/support/linear_time.h"

namespace pipit::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

Histogram random_histogram(unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(5000);
  for (float& x : values) x = normal(random);
  ThreadPool pool(1);
  Histogram h;
  h.add(values, pool);
  return h;
}

QuantizationPlan sample(unsigned seed) {
  QuantizationPlan plan;
  plan.model = "some/model.onnx";
  plan.model_hash = "0123456789abcdef0123456789abcdef";
  plan.preprocess = R"({"resize":256,"crop":224})";
  plan.method = {ThresholdMethod::percentile, 99.9};
  plan.images = {{"b.jpg", fmt::format("b{:031}", seed)}, {"a.jpg", fmt::format("a{:031}", seed)}};
  plan.keep = {{"fc", "fp16"}, {"pool", "fp32", "a reason"}, {"stem", "bf16"}};
  for (const char* name : {"input", "relu \"1\"", "zero"}) {
    TensorScale tensor;
    tensor.name = name;
    if (tensor.name == "zero") {
      ThreadPool pool(1);
      tensor.histogram.emplace().add(std::vector<float>(7, 0.0F), pool);
    } else {
      tensor.histogram = random_histogram(seed + static_cast<unsigned>(plan.tensors.size()), 0.37F);
    }
    plan.tensors.push_back(std::move(tensor));
  }
  set_scales(plan);
  return plan;
}

TEST(QuantizationPlan, SurvivesJson) {
  const QuantizationPlan plan = sample(1);
  for (const bool histograms : {true, false}) {
    const std::string text = to_json(plan, histograms);
    const QuantizationPlan back = quantization_plan_from_json(text);
    EXPECT_EQ(to_json(back, histograms), text);
    ASSERT_EQ(back.tensors.size(), 3U);
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(back.tensors[t].name, plan.tensors[t].name);
      EXPECT_EQ(back.tensors[t].scale, plan.tensors[t].scale);  // every bit
      EXPECT_EQ(back.tensors[t].histogram.has_value(), histograms);
    }
    EXPECT_EQ(back.keep, plan.keep);
  }
}

TEST(QuantizationPlan, ScalesAreThresholdsOver127) {
  const QuantizationPlan plan = sample(2);
  for (const TensorScale& t : plan.tensors) {
    SCOPED_TRACE(t.name);
    if (t.name == "zero") {
      EXPECT_EQ(t.scale, 1);
      EXPECT_EQ(t.threshold, 0);
      continue;
    }
    EXPECT_EQ(t.scale, static_cast<float>(t.threshold / 127));
    EXPECT_EQ(t.threshold, find_threshold(*t.histogram, plan.method).magnitude);
    EXPECT_GT(t.clipped, 0);
    EXPECT_LT(t.clipped, 0.002);
  }
}

TEST(QuantizationPlan, FewValuesSayNothingOfWhatIsClipped) {
  ThreadPool pool(1);
  QuantizationPlan plan = sample(1);
  for (const std::size_t count : {std::size_t{1}, std::size_t{299}, std::size_t{300}}) {
    TensorScale& tensor = plan.tensors[0];
    tensor.histogram.emplace().add(std::vector<float>(count, 1), pool);
    tensor.clipped = 0.02;
    EXPECT_EQ(clipping_of(plan).worst, count < 300 ? nullptr : &tensor) << count;
  }
  plan.tensors[0].histogram.reset();  // of unknown count
  EXPECT_EQ(clipping_of(plan).tensors, 1);
}

TEST(QuantizationPlan, TakesScalesThatPeopleEdit) {
  QuantizationPlan plan = sample(1);
  for (const float factor : {0.01F, 0.5F, 3.0F, 100.0F}) {
    QuantizationPlan edited = plan;
    edited.tensors[0].scale *= factor;
    EXPECT_EQ(quantization_plan_from_json(to_json(edited, false)).tensors[0].scale, edited.tensors[0].scale);
  }
}

TEST(QuantizationPlan, ScalesOfVanishingAndConstantTensors) {
  ThreadPool pool(1);
  QuantizationPlan plan = sample(1);
  for (const float value : {1e-44F, 1e-37F, 3.0F, -3e38F}) {
    SCOPED_TRACE(value);
    plan.tensors[0].histogram.emplace().add(std::vector<float>(100, value), pool);
    for (const auto method : {ThresholdMethod::minmax, ThresholdMethod::percentile, ThresholdMethod::entropy,
                              ThresholdMethod::mse}) {
      plan.method.method = method;
      set_scales(plan);
      EXPECT_TRUE(std::isnormal(plan.tensors[0].scale));
      EXPECT_NO_THROW(quantization_plan_from_json(to_json(plan, true)));
    }
    // All values are one: the range reaches to it and it becomes 127 of 127 steps, to a bin's width.
    plan.method.method = ThresholdMethod::minmax;
    set_scales(plan);
    if (std::abs(value) > 1e-30F)
      EXPECT_NEAR(std::abs(value) / plan.tensors[0].scale, 127, 1e-3);
    else
      EXPECT_EQ(plan.tensors[0].scale, 1);
  }
}

TEST(QuantizationPlan, MergesInAnyOrder) {
  const std::string forth = to_json(merge_plans({sample(10), sample(20), sample(30)}), true);
  const std::string back = to_json(merge_plans({sample(30), sample(10), sample(20)}), true);
  EXPECT_EQ(forth, back);
  EXPECT_EQ(quantization_plan_from_json(forth).tensors[0].histogram->count(), 15'000U);
}

TEST(QuantizationPlan, RefusesToMergeWhatDoesNotBelongTogether) {
  const auto refused = [](const QuantizationPlan& other, const char* why) {
    EXPECT_THAT([&] { merge_plans({sample(1), other}); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  QuantizationPlan other = sample(2);
  other.model_hash[0] = 'f';
  refused(other, "different models");
  refused(sample(1), "was already counted");
  other = sample(2);
  other.preprocess = "{}";
  refused(other, "prepared differently");
  other = sample(2);
  other.method.method = ThresholdMethod::mse;
  refused(other, "different methods");
  other = sample(2);
  other.tensors[1].histogram.reset();
  refused(other, "cannot be merged");
  other = sample(2);
  other.keep.clear();
  refused(other, "keep different");
  other = sample(2);
  other.tensors[1].name = "else";
  refused(other, "'else'");
}

TEST(QuantizationPlan, MergingKeepsEveryImage) {
  QuantizationPlan twice = sample(1);
  twice.images[1].hash = twice.images[0].hash;  // copies of one image in one folder
  const QuantizationPlan back = quantization_plan_from_json(to_json(merge_plans({sample(2), twice}), true));
  std::vector<std::string> paths;
  for (const CalibrationImage& image : back.images) paths.push_back(image.path);
  EXPECT_THAT(paths, ElementsAre("a.jpg", "a.jpg (2)", "b.jpg", "b.jpg (2)"));
}

TEST(QuantizationPlan, RefusesJsonThatIsNone) {
  const std::string good = to_json(sample(1), true);
  const auto refused = [&](const std::string& from, const std::string& to, const char* why) {
    std::string text = good;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    EXPECT_THAT([&] { quantization_plan_from_json(text); }, ThrowsMessage<Error>(HasSubstr(why))) << to;
  };
  // Another number for the first one of that key.
  const auto refused_number = [&](const std::string& key, const std::string& number, const char* why) {
    const std::size_t at = good.find("\"" + key + "\": ") + key.size() + 4;
    refused(good.substr(at - key.size() - 4, good.find_first_of(",\n", at) - at + key.size() + 4),
            "\"" + key + "\": " + number, why);
  };
  refused("\"pipit_precision_plan\": 2", "\"pipit_precision_plan\": 3", "'pipit_precision_plan'");
  refused("\"pipit_precision_plan\": 2", "\"pipit_precision_plan\": 1", "calibrate the model again");
  refused("\"percentile\",", "\"guess\",", "'method'");
  refused("99.9", "0", "'percentile'");
  refused("\"per_channel\"", "\"per_row\"", "'weights'");
  refused("\"fp16\"", "\"fp8\"", "'fc'");
  refused("\"fp16\"", R"({"precision": "int8", "why": "x"})", "the precision of 'fc'");
  refused("\"fp16\"", R"({"precision": "fp16", "because": "x"})", "no key 'because'");
  refused("\"fp16\"", R"({"precision": "fp16", "why": 3})", "'why'");
  const std::string kept =
      good.substr(good.find("\"keep\": "), good.find("\"tensors\"") - good.find("\"keep\": "));
  for (const char* other : {"[\"fc\"]", "\"fc\"", "null", "3"})
    refused(kept, std::string("\"keep\": ") + other + ", ", "'keep' must be an object");
  refused("\"files\": {", "\"files\": [], \"file\": {", "no key 'file'; did you mean 'files'");
  refused("\"a.jpg\": \"a", "\"a.jpg\": \"x", "the hash of 'a.jpg' must be 32 hexadecimal digits");
  refused("\"a.jpg\": \"a", "\"a.jpg\": \"b", "'hash' must be");
  refused("\"count\": 2", "\"count\": 3", "'count' must be 2");
  refused_number("scale", "-0.01", "'scale'");
  refused_number("threshold", "-5", "'threshold' must be 0 or more");
  refused_number("clipped", "7", "'clipped' must be a share");
  refused_number("scale", "1e-45", "'scale' must be a positive, normal");
  refused_number("scale", "1e38", "'scale' must be near");
  refused_number("scale", "1e-7", "'scale' must be near");
  refused_number("max", "-1e9", "'min' must be at most 'max'");
  refused("\"scale\": 1.0", "\"scale\": 2.0", "'scale' must be near");  // of the tensor of zeros
  refused_number("scale", "1e999", "not a quantization plan: number overflow");
  refused("\"zero_point\": 0", "\"zero_point\": 3", "'zero_point'");
  refused("\"name\": \"zero\"", "\"name\": \"input\"", "twice");
  refused("\"min\": ", "\"mn\": ", "tensor 'input': there is no key 'mn'; did you mean 'min'?");
  refused("\"min\": ", "\"max\": 1, \"min\": ", "the key \"max\" is there twice");
  refused_number("zero_point", "1", "'zero_point' must be 0, not 1");
  refused("\"keep\": ", "\"kep\": {}, \"keep\": ", "there is no key 'kep'; did you mean 'keep'?");
  refused("\"input\": {", "\"imput\": {", "'imput' is none of the 'tensors'");
  refused("\"runs\":", "\"run\":", "there is no key 'run'");
  refused("\"exponent\":-", "\"exponent\":-1", "has bins");
}

TEST(QuantizationPlan, NamesWhatIsMissing) {
  const std::string good = to_json(sample(1), false);
  const std::size_t at = good.find("\"min\": ");
  std::string text = good;
  text.erase(at, good.find('"', at + 5) - at);
  EXPECT_THAT([&] { quantization_plan_from_json(text); },
              ThrowsMessage<Error>(HasSubstr("tensor 'input': 'min' is missing")));
}

TEST(QuantizationPlan, ManyImagesTakeLinearTime) {
  const auto with_images = [](int n) {
    QuantizationPlan plan;
    plan.preprocess = "{}";
    for (int i = 0; i < n; ++i) plan.images.push_back({fmt::format("image {}", i), std::string(32, '0')});
    return plan;
  };
  const auto through_text = [](const QuantizationPlan& plan) {
    EXPECT_EQ(quantization_plan_from_json(to_json(plan, false)).images.size(), plan.images.size());
  };
  test::expect_linear_time(100, with_images, through_text);
}

TEST(QuantizationPlan, RefusesJsonOfAnyOtherKind) {
  for (const char* text : {"", "[]", "{}", "3", "{\"pipit_precision_plan\": 2", "null"}) {
    EXPECT_THROW(quantization_plan_from_json(text), Error) << text;
  }
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& text : {deep, "{\"pipit_precision_plan\": " + deep + "}",
                                  "{\"pipit_precision_plan\": 2, \"preprocess\": " + deep + "}"}) {
    EXPECT_THAT([&] { quantization_plan_from_json(text); }, ThrowsMessage<Error>(HasSubstr("nested")));
  }
  EXPECT_THAT(
      [&] { quantization_plan_from_json("{\n  \"keep\": }"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("line 2, column 11: syntax error"), Not(HasSubstr("exception")))));
  EXPECT_THROW(read_quantization_plan("/no/such/plan.json"), Error);
  EXPECT_THAT([&] { read_quantization_plan("/dev/zero"); }, ThrowsMessage<Error>(HasSubstr("regular file")));
  EXPECT_THAT([&] { read_quantization_plan(testing::TempDir()); }, ThrowsMessage<Error>(HasSubstr("folder")));
}

TEST(QuantizationPlan, WhatIsWrittenIsReadBackFirst) {
  const std::filesystem::path path = testing::TempDir() + "/pipit-written-plan.json";
  const QuantizationPlan plan = sample(1);
  for (const bool histograms : {true, false}) {
    write_quantization_plan(path, plan, histograms);
    EXPECT_EQ(to_json(read_quantization_plan(path), histograms), to_json(plan, histograms));
  }
  const std::string before = read_file(path, 1 << 20);
  QuantizationPlan twice = plan;
  twice.images[1].path = twice.images[0].path;
  QuantizationPlan tensors = plan;
  tensors.tensors[1].name = tensors.tensors[0].name;
  QuantizationPlan scale = plan;
  scale.tensors[0].scale = 0;
  for (const QuantizationPlan& broken : {twice, tensors, scale}) {
    EXPECT_THAT([&] { write_quantization_plan(path, broken, false); },
                ThrowsMessage<Error>(AllOf(HasSubstr(path.string()), HasSubstr("cannot be written"))));
    EXPECT_EQ(read_file(path, 1 << 20), before);
  }
  std::filesystem::remove(path);
}

TEST(Export, TrtCacheHoldsTheBitsOfTheScales) {
  QuantizationPlan plan = sample(1);
  plan.tensors[0].scale = 1.0F;
  plan.tensors[1].scale = 0.5F;
  EXPECT_EQ(to_trt_cache(plan, "8.6.1"),
            "TRT-8601-EntropyCalibration2\ninput: 3f800000\nrelu_\"1\": 3f000000\nzero: 3f800000\n");
}

}  // namespace
}  // namespace pipit::internal
