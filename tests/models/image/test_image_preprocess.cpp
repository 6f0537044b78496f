#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "models/image/preprocess.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Resizing and cropping off.
Preprocess plain() {
  Preprocess p;
  p.scale = 1;
  return p;
}

Image two_pixels() {
  return {2, 1, {10, 20, 30, 200, 100, 50}};  // width 2, height 1
}

std::vector<float> run(const Image& image, const Preprocess& p) {
  const Extent out = preprocessed_extent(p, image.extent());
  std::vector<float> values(3 * std::size_t(out.height) * std::size_t(out.width), -1e9f);
  preprocess(image, p, values);
  return values;
}

std::string check_error(Preprocess p) {
  return test::error_of([&] { check_preprocess(p); });
}

std::string json_error(std::string_view json) {
  return test::error_of([&] { preprocess_from_json(json); });
}

TEST(Preprocess, WritesPlanesInOutputOrder) {
  Preprocess p = plain();
  EXPECT_EQ(run(two_pixels(), p), (std::vector<float>{10, 200, 20, 100, 30, 50}));
  p.bgr = true;
  EXPECT_EQ(run(two_pixels(), p), (std::vector<float>{30, 50, 20, 100, 10, 200}));
}

TEST(Preprocess, WritesPixelsInOutputOrder) {
  Preprocess p = plain();
  p.mean = {1, 2, 3};
  std::vector<float> out(6);
  preprocess(two_pixels(), p, out, Layout::channels_last);
  EXPECT_EQ(out, (std::vector<float>{9, 18, 27, 199, 98, 47}));
  p.bgr = true;
  preprocess(two_pixels(), p, out, Layout::channels_last);
  EXPECT_EQ(out, (std::vector<float>{29, 18, 7, 49, 98, 197}));
}

TEST(Preprocess, FindsTheChannelsOfAnInput) {
  const auto found = [](const Shape& shape) {
    const std::optional<ImageInput> image = image_input(shape);
    if (!image) return std::string("none");
    return fmt::format("{} x {}x{} {}", image->channels, image->height, image->width,
                       image->layout == Layout::channels_last ? "pixels" : "planes");
  };
  EXPECT_EQ(found({2, 3, 224, 192}), "3 x 224x192 planes");
  EXPECT_EQ(found({2, 224, 192, 3}), "3 x 224x192 pixels");
  EXPECT_EQ(found({1, 1, 28, 28}), "1 x 28x28 planes");
  EXPECT_EQ(found({1, 28, 28, 1}), "1 x 28x28 pixels");
  EXPECT_EQ(found({1, 3, 224, 3}), "3 x 224x3 planes");
  EXPECT_EQ(found({1, 1, 32, 3}), "1 x 32x3 planes");
  EXPECT_EQ(found({3, 224, 192}), "3 x 224x192 planes");
  EXPECT_EQ(found({224, 192, 1}), "1 x 224x192 pixels");
  for (const Shape& shape : {Shape{1, 4, 224, 224}, Shape{1, 224, 3, 224}, Shape{224, 224},
                             Shape{1, 3, 0, 224}, Shape{1, 3, 16, 224, 224}, Shape{}}) {
    EXPECT_EQ(found(shape), "none") << shape.str();
  }
}

TEST(Preprocess, MeanAndStdBelongToTheOutputChannel) {
  Preprocess p = plain();
  p.mean = {1, 2, 3};
  p.std = {1, 2, 4};
  EXPECT_EQ(run(two_pixels(), p), (std::vector<float>{9, 199, 9, 49, 6.75f, 11.75f}));
  p.bgr = true;
  EXPECT_EQ(run(two_pixels(), p), (std::vector<float>{29, 49, 9, 49, 1.75f, 49.25f}));
}

TEST(Preprocess, TorchvisionPresetMatchesItsFormula) {
  // The middle 224 x 224 of a uniform image of 256 x 256: no pixel moves.
  Image image = make_image({256, 256}, "test");
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = i % 3 == 0 ? 255 : i % 3 == 1 ? 128 : 0;
  const std::vector<float> out = run(image, preprocess_preset("torchvision"));
  ASSERT_EQ(out.size(), 3u * 224 * 224);
  EXPECT_NEAR(out[0], (1.0 - 0.485) / 0.229, 1e-6);
  EXPECT_NEAR(out[224 * 224 + 7], (128 / 255.0 - 0.456) / 0.224, 1e-6);
  EXPECT_NEAR(out[2 * 224 * 224 + 99], -0.406 / 0.225, 1e-6);
}

TEST(Preprocess, ResizesThenCrops) {
  Preprocess p = plain();
  p.resize = 20;
  p.crop = 10;
  p.crop_width = 16;
  p.interpolation = Interpolation::bicubic;
  const Image image = test::random_image(33, 57);
  const Image expected =
      center_crop(resize(image, short_side_extent(image.extent(), 20), p.interpolation), {10, 16});
  const std::vector<float> out = run(image, p);
  ASSERT_EQ(out.size(), 3u * 160);
  for (std::size_t i = 0; i < 160; ++i) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(out[c * 160 + i], expected.pixels[i * 3 + c]);
  }
}

TEST(Preprocess, StretchIgnoresTheAspectRatio) {
  Preprocess p = plain();
  p.resize = 8;
  p.resize_mode = ResizeRule::stretch;
  EXPECT_EQ(preprocessed_extent(p, {33, 57}), (Extent{8, 8}));
  p.resize_width = 12;
  EXPECT_EQ(preprocessed_extent(p, {33, 57}), (Extent{8, 12}));
  const Image image = test::random_image(33, 57);
  const Image expected = resize(image, {8, 12}, p.interpolation);
  EXPECT_EQ(run(image, p)[13], expected.pixels[13 * 3]);
  p.resize_mode = ResizeRule::short_side;
  p.resize_width = 0;
  EXPECT_EQ(preprocessed_extent(p, {33, 57}), (Extent{8, 13}));
  p.resize = 0;
  EXPECT_EQ(preprocessed_extent(p, {33, 57}), (Extent{33, 57}));
}

TEST(Preprocess, GrayIsTheLumaOfPillow) {
  // Image.new('RGB', (1, 1), colour).convert('L')
  const std::vector<std::pair<std::vector<std::uint8_t>, float>> expected = {
      {{255, 0, 0}, 76}, {{0, 255, 0}, 150}, {{0, 0, 255}, 29},     {{255, 255, 255}, 255},
      {{0, 0, 0}, 0},    {{10, 20, 30}, 18}, {{200, 100, 50}, 124}, {{1, 1, 1}, 1},
  };
  for (const auto& [colour, luma] : expected) {
    std::vector<float> out(1);
    preprocess_gray({1, 1, colour}, plain(), out);
    EXPECT_EQ(out[0], luma);
  }
  Preprocess p = plain();
  p.mean = {8, 100, 100};
  p.std = {2, 7, 7};
  std::vector<float> out(2);
  preprocess_gray(two_pixels(), p, out);
  EXPECT_EQ(out, (std::vector<float>{5, 58}));
}

TEST(Preprocess, AnOutputOfAnotherSizeIsAnError) {
  std::vector<float> out(7);
  EXPECT_THAT(test::error_of([&] { preprocess(two_pixels(), plain(), out); }),
              AllOf(HasSubstr("3 x 1 x 2"), HasSubstr("7")));
  EXPECT_THAT(test::error_of([&] { preprocess_gray(two_pixels(), plain(), out); }), HasSubstr("1 x 1 x 2"));
  Image lying = two_pixels();
  lying.height = 2;
  EXPECT_THROW(preprocess(lying, plain(), out), Error);
}

TEST(PreprocessPreset, HasTheDocumentedValues) {
  const Preprocess torchvision = preprocess_preset("torchvision");
  const Preprocess timm = preprocess_preset("timm");
  EXPECT_EQ(timm.interpolation, Interpolation::bicubic);
  EXPECT_EQ(torchvision.interpolation, Interpolation::bilinear);
  EXPECT_EQ(timm.mean, torchvision.mean);
  const Preprocess caffe = preprocess_preset("caffe");
  EXPECT_TRUE(caffe.bgr);
  EXPECT_EQ(caffe.scale, 1.0f);
  EXPECT_EQ(caffe.mean[0], 103.939f);  // blue
  EXPECT_EQ(caffe.std, (std::array<float, 3>{1, 1, 1}));
  const Preprocess cifar = preprocess_preset("cifar");
  EXPECT_EQ(cifar.crop_extent(), (Extent{32, 32}));
  EXPECT_EQ(cifar.std[2], 0.2616f);
  for (const std::string_view name : preprocess_preset_names())
    EXPECT_NO_THROW(check_preprocess(preprocess_preset(name)));
}

TEST(PreprocessPreset, AnUnknownNameListsTheKnownOnes) {
  const std::string message = test::error_of([] { preprocess_preset("imagenet"); });
  EXPECT_THAT(message, HasSubstr("imagenet"));
  for (const std::string_view name : preprocess_preset_names())
    EXPECT_THAT(message, HasSubstr(std::string(name)));
}

TEST(FitToInput, LeavesAMatchingPresetAlone) {
  for (const std::string_view name : {"torchvision", "timm", "caffe"}) {
    EXPECT_EQ(fit_to_input(preprocess_preset(name), 224, 224), preprocess_preset(name));
  }
  EXPECT_EQ(fit_to_input(preprocess_preset("cifar"), 32, 32), preprocess_preset("cifar"));
}

TEST(FitToInput, ScalesTheResizeWithTheCrop) {
  const Preprocess p = fit_to_input(preprocess_preset("torchvision"), 256, 256);
  EXPECT_EQ(p.resize, 293);  // 256 * 256 / 224 = 292.57
  EXPECT_EQ(p.crop_extent(), (Extent{256, 256}));
  EXPECT_EQ(fit_to_input(preprocess_preset("torchvision"), 32, 32).resize, 37);
  EXPECT_EQ(fit_to_input(preprocess_preset("cifar"), 64, 64).resize, 64);
}

TEST(FitToInput, NonSquareInputsAreCovered) {
  const Preprocess p = fit_to_input(preprocess_preset("torchvision"), 224, 448);
  EXPECT_EQ(p.resize, 512);
  EXPECT_EQ(p.crop_extent(), (Extent{224, 448}));
  EXPECT_EQ(run(test::random_image(50, 30), p).size(), 3u * 224 * 448);
}

TEST(FitToInput, AStretchGoesToTheInput) {
  Preprocess p;
  p.resize_mode = ResizeRule::stretch;
  p.resize = 100;
  p = fit_to_input(p, 48, 96);
  EXPECT_EQ(p.stretch_extent(), (Extent{48, 96}));
  p.resize = 60;
  p.resize_width = 120;
  p = fit_to_input(p, 96, 96);
  EXPECT_EQ(p.stretch_extent(), (Extent{120, 120}));
  EXPECT_EQ(p.crop_extent(), (Extent{96, 96}));
}

TEST(FitToInput, WithoutAResizeOnlyTheCropIsSet) {
  const Preprocess p = fit_to_input(Preprocess{}, 7, 9);
  EXPECT_EQ(p.resize, 0);
  EXPECT_EQ(p.crop_extent(), (Extent{7, 9}));
}

TEST(FitToInput, ExtremesStayInBounds) {
  Preprocess p;
  p.resize = kMaxPreprocessSide;
  p.crop = 1;
  EXPECT_NO_THROW(check_preprocess(fit_to_input(p, 224, 224)));
  EXPECT_THROW(fit_to_input(p, 0, 224), Error);
  EXPECT_THROW(fit_to_input(p, 224, kMaxPreprocessSide + 1), Error);
}

TEST(CheckPreprocess, RefusesBadFieldsByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto with = [](auto member, auto value) {
    Preprocess p;
    p.*member = value;
    return check_error(p);
  };
  EXPECT_THAT(with(&Preprocess::resize, -1), HasSubstr("resize"));
  EXPECT_THAT(with(&Preprocess::crop, kMaxPreprocessSide + 1), HasSubstr("crop"));
  EXPECT_THAT(with(&Preprocess::crop_width, 3), HasSubstr("crop"));
  EXPECT_THAT(with(&Preprocess::resize_width, 3), HasSubstr("stretch"));
  EXPECT_THAT(with(&Preprocess::scale, 0.0f), HasSubstr("scale"));
  EXPECT_THAT(with(&Preprocess::scale, inf), HasSubstr("scale"));
  EXPECT_THAT(with(&Preprocess::mean, std::array<float, 3>{0, nan, 0}), HasSubstr("mean[1]"));
  EXPECT_THAT(with(&Preprocess::std, std::array<float, 3>{1, 1, 0}), HasSubstr("std[2]"));
  EXPECT_THAT(with(&Preprocess::std, std::array<float, 3>{-1, 1, 1}), HasSubstr("std[0]"));
  EXPECT_THAT(with(&Preprocess::std, std::array<float, 3>{nan, 1, 1}), HasSubstr("std[0]"));
}

TEST(PreprocessJson, RoundTrips) {
  std::vector<Preprocess> all;
  for (const std::string_view name : preprocess_preset_names()) all.push_back(preprocess_preset(name));
  all.push_back(fit_to_input(all[0], 100, 300));
  all.push_back(Preprocess{});
  Preprocess stretch = all[2];
  stretch.resize_mode = ResizeRule::stretch;
  stretch.resize_width = 77;
  stretch.mean = {1.0f / 3, 1e-30f, -123456.7f};
  stretch.interpolation = Interpolation::nearest;
  all.push_back(stretch);
  for (const Preprocess& p : all) EXPECT_EQ(preprocess_from_json(to_json(p)), p) << to_json(p);
}

TEST(PreprocessJson, IsShort) {
  EXPECT_THAT(
      to_json(preprocess_preset("cifar")),
      AllOf(HasSubstr(R"("resize": 32, "crop": 32, "interpolation": "bilinear")"),
            HasSubstr(R"("mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616], "bgr": false)")));
}

TEST(PreprocessJson, ReadsTheFormThatTrainingScriptsWrite) {
  const Preprocess p = preprocess_from_json(
      R"({"resize":32,"crop":32,"interpolation":"bilinear","mean":[0.4914,0.4822,0.4465],)"
      R"("std":[0.2470,0.2435,0.2616],"bgr":false})");
  EXPECT_EQ(p, preprocess_preset("cifar"));
}

TEST(PreprocessJson, APresetIsTheBaseOfTheOtherKeys) {
  EXPECT_EQ(preprocess_from_json(R"({"preset":"timm"})"), preprocess_preset("timm"));
  // In any order.
  const Preprocess p = preprocess_from_json(R"({"crop":[3,5],"mean":0.5,"preset":"timm","resize":232})");
  EXPECT_EQ(p.resize, 232);
  EXPECT_EQ(p.crop_extent(), (Extent{3, 5}));
  EXPECT_EQ(p.mean, (std::array<float, 3>{0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(p.interpolation, Interpolation::bicubic);
}

TEST(PreprocessJson, RefusesWhatIsNotOneObject) {
  for (const std::string_view text :
       {"", "[]", "3", "null", "\"timm\"", "{", "{} {}", "{\"preset\":", "\xFF\xFE{}"}) {
    EXPECT_THROW(preprocess_from_json(text), Error) << text;
  }
  EXPECT_THAT(json_error("{}"), HasSubstr("resize"));
  EXPECT_THAT(json_error(std::string(100'000, ' ')), HasSubstr("limit"));
}

TEST(PreprocessJson, DeepNestingIsAnError) {
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string text;
    while (text.size() + open.size() < 60'000) text += open;
    EXPECT_THAT(json_error(text), HasSubstr("nested"));
    EXPECT_THAT(json_error(R"({"preset":"timm","mean":)" + text), HasSubstr("nested"));
  }
}

TEST(PreprocessJson, NamesTheKeyThatIsWrong) {
  const auto with = [](std::string_view key_and_value) {
    return json_error(fmt::format(R"({{"preset":"timm",{}}})", key_and_value));
  };
  EXPECT_THAT(with(R"("resise":3)"), HasSubstr("resise"));
  EXPECT_THAT(with(R"("crop":3,"crop":4)"), HasSubstr("twice"));
  for (const std::string_view value :
       {"-1", "16385", "1.5", "1e3", "99999999999999999999", "-9223372036854775808", "\"3\"", "null", "true",
        "{}", "[]", "[1]", "[1,2,3]", "[0,2]", "[1,\"a\"]"}) {
    EXPECT_THAT(with(fmt::format(R"("crop":{})", value)), HasSubstr("crop")) << value;
    EXPECT_THAT(with(fmt::format(R"("resize_mode":"stretch","resize":{})", value)), HasSubstr("resize"))
        << value;
  }
  EXPECT_THAT(with(R"("resize":[3,4])"), HasSubstr("stretch"));
  for (const std::string_view value :
       {"\"1\"", "[1,2]", "[1,2,3,4]", "[1,2,null]", "[1,2,[3]]", "1e31", "{}"}) {
    EXPECT_THAT(with(fmt::format(R"("mean":{})", value)), HasSubstr("mean")) << value;
    EXPECT_THAT(with(fmt::format(R"("std":{})", value)), HasSubstr("std")) << value;
  }
  EXPECT_THROW(preprocess_from_json(R"({"preset":"timm","mean":1e999})"), Error);
  EXPECT_THROW(preprocess_from_json(R"({"preset":"timm","mean":[NaN,0,0]})"), Error);
  EXPECT_THAT(with(R"("std":[1,0,1])"), HasSubstr("std[1]"));
  EXPECT_THAT(with(R"("std":1e-300)"), HasSubstr("std[0]"));
  EXPECT_THAT(with(R"("bgr":1)"), HasSubstr("bgr"));
  EXPECT_THAT(with(R"("scale":"1")"), HasSubstr("scale"));
  EXPECT_THAT(with(R"("scale":0)"), HasSubstr("scale"));
  EXPECT_THAT(with(R"("interpolation":"lanczos")"), HasSubstr("lanczos"));
  EXPECT_THAT(with(R"("interpolation":2)"), HasSubstr("interpolation"));
  EXPECT_THAT(with(R"("resize_mode":"long")"), HasSubstr("resize_mode"));
  EXPECT_THAT(json_error(R"({"preset":"nope"})"), HasSubstr("torchvision"));
  EXPECT_THAT(json_error(R"({"preset":7})"), HasSubstr("preset"));
  EXPECT_THAT(json_error(R"({"resize":1,"crop":1,"mean":0})"), HasSubstr("std"));
}

}  // namespace
}  // namespace pipit::internal
