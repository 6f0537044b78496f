// From photographs to an INT8 model, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::ArrayView;
using pipit::CompiledModel;
using pipit::Error;
using pipit::LoadOptions;
using pipit::Precision;
using pipit::Shape;
using pipit::UnsupportedError;
using pipit::internal::test::Scratch;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

class Tools : public ::testing::Test {
 protected:
  void SetUp() override {
    pipit::internal::test::write_images(scratch, 6);
    images = {scratch.path()};
    tools::CalibrateOptions options;
    options.load.device.threads = 1;
    options.progress = [&](std::int64_t done, std::int64_t total) { seen = {done, total}; };
    notes = tools::calibrate(kModel, images, {.plan = plan}, options).notes;
  }
  Scratch scratch{"tools"};
  std::vector<fs::path> images;
  fs::path plan = scratch / "plan.json";
  std::vector<std::string> notes;
  std::pair<std::int64_t, std::int64_t> seen;
};

LoadOptions one_thread(const pipit::ModelPrecision& precision = {}) {
  LoadOptions options;
  options.device.threads = 1;
  options.kernels.tuning = pipit::Tuning::by_order;
  options.precision = precision;
  return options;
}

std::vector<float> scores(const CompiledModel& model) {
  std::vector<float> image(3 * 32 * 32);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i % 97) / 48 - 1;
  pipit::ModelSession session = model.session();
  const std::span<const float> y = session.run({ArrayView(image, Shape{1, 3, 32, 32})})[0].values<float>();
  return {y.begin(), y.end()};
}

TEST_F(Tools, CalibratesAndQuantizesWithTheSameBits) {
  EXPECT_THAT(notes, Contains(HasSubstr("6 images are few")));
  EXPECT_EQ(seen, (std::pair<std::int64_t, std::int64_t>{6, 6}));
  const LoadOptions int8 = one_thread(pipit::Int8{.plan = plan});
  const std::vector<float> planned = scores(CompiledModel(kModel, int8));
  EXPECT_NE(planned, scores(CompiledModel(kModel, one_thread())));

  const fs::path file = scratch / "int8.onnx";
  const tools::QuantizedFile written = tools::quantize(kModel, plan, file);
  EXPECT_GT(written.int8_layers, 20);
  EXPECT_EQ(written.float_layers, 0);
  EXPECT_EQ(static_cast<std::uintmax_t>(written.bytes), fs::file_size(file));
  EXPECT_EQ(scores(CompiledModel(file.string(), one_thread())), planned);
  EXPECT_THAT([&] { tools::quantize(file.string(), plan, scratch / "again.onnx"); },
              ThrowsMessage<UnsupportedError>(HasSubstr("quantized already")));
  EXPECT_FALSE(fs::exists(scratch / "again.onnx"));
  EXPECT_THAT([&] { tools::diff(file.string(), images, plan); },
              ThrowsMessage<UnsupportedError>(HasSubstr("compare the model that it was made from")));
}

TEST_F(Tools, ThePlanIsForItsModelAlone) {
  const LoadOptions options = one_thread(pipit::Int8{.plan = plan});
  EXPECT_THAT([&] { CompiledModel("resnet18", options); },
              ThrowsMessage<Error>(AllOf(HasSubstr("resnet18"), HasSubstr("calibrated for another model"))));
  EXPECT_THAT([&] { tools::quantize("resnet18", plan, scratch / "x.onnx"); },
              ThrowsMessage<Error>(HasSubstr("another model")));
}

TEST_F(Tools, ComparesLayers) {
  tools::DiffOptions options;
  options.load.device.threads = 1;
  options.share_limit = 2;
  std::vector<std::string> stages;
  std::int64_t compared = 0;
  options.progress.planned = [&](const std::vector<tools::Stage>& all) {
    for (const tools::Stage& stage : all) stages.push_back(stage.name);
  };
  options.progress.update = [&](const std::string& stage, std::int64_t done, std::int64_t total) {
    EXPECT_THAT(stages, Contains(stage));
    EXPECT_LE(done, total);
    if (stage == "comparing") compared = done;
  };
  const tools::Difference found = tools::diff(kModel, images, plan, options);
  EXPECT_EQ(stages.size(), 2U);
  EXPECT_EQ(compared, 6);
  EXPECT_EQ(found.images, 6);
  EXPECT_EQ(found.share_images, 2);
  EXPECT_GT(found.layers.size(), 20U);
  EXPECT_THAT(found.layers, Contains(Field(&tools::LayerError::precision, Precision::int8)));
  for (const tools::LayerError& layer : found.layers) EXPECT_GT(layer.error.cosine, 0.8) << layer.name;
  EXPECT_GT(found.output.sqnr_db, 0);
  EXPECT_GT(found.output_noise, 0);
  EXPECT_THAT(found.layers,
              Contains(Field(&tools::LayerError::share_alone, testing::Optional(testing::Gt(0.0)))));
  const auto json = nlohmann::json::parse(found.json);
  EXPECT_EQ(json["layers"].size(), found.layers.size());
  EXPECT_EQ(json["images"], 6);

  options.shares = false;
  options.progress = {};
  options.keep = {"first=fp32"};
  const tools::Difference kept = tools::diff(kModel, images, plan, options);
  EXPECT_EQ(kept.layers[0].precision, Precision::fp32);
  EXPECT_FALSE(kept.layers[0].noise_alone.has_value());
  options.preprocess.preset = "nothing";
  EXPECT_THAT([&] { tools::diff(kModel, images, plan, options); },
              ThrowsMessage<Error>(HasSubstr("nothing")));
}

TEST_F(Tools, ImagesThatCannotBeUsedAreExcludedAndToldOf) {
  scratch.write("broken.png", "no image");
  scratch.write("moving.jpg", "GIF89a..........................");
  tools::CalibrateOptions options;
  options.load.device.threads = 1;
  EXPECT_THAT(tools::calibrate(kModel, images, {.plan = scratch / "p.json"}, options).notes,
              AllOf(Contains(AllOf(HasSubstr("1 of 7 images"), HasSubstr("broken.png"))),
                    Contains(HasSubstr("1 GIF"))));
  options.strict = true;
  EXPECT_THAT([&] { tools::calibrate(kModel, images, {.plan = scratch / "p.json"}, options); },
              ThrowsMessage<Error>(HasSubstr("broken.png")));
}

TEST_F(Tools, RefusesWhatCannotBe) {
  const std::vector<fs::path> none = {scratch / "none"};
  EXPECT_THAT([&] { tools::calibrate(kModel, none, {.plan = scratch / "p.json"}); },
              ThrowsMessage<Error>(HasSubstr("none")));
  EXPECT_THROW(tools::calibrate(kModel, {}, {.plan = scratch / "p.json"}), Error);
  EXPECT_THROW(tools::calibrate(kModel, images, {.plan = scratch / "no folder" / "p.json"}), Error);
  tools::CalibrateOptions options;
  options.range.percentile = 0;
  EXPECT_THAT([&] { tools::calibrate(kModel, images, {.plan = scratch / "p.json"}, options); },
              ThrowsMessage<Error>(HasSubstr("percentile is 0")));
  EXPECT_FALSE(fs::exists(scratch / "p.json"));
}

TEST_F(Tools, PartialCalibrationsMergeExactly) {
  const std::vector<fs::path> all = {scratch / "image0.bmp", scratch / "image1.bmp", scratch / "image2.bmp"};
  tools::CalibrateOptions options;
  options.load.device.threads = 1;
  const auto content = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const auto parts = std::vector<fs::path>{scratch / "a.json", scratch / "b.json"};
  tools::calibrate(kModel, std::span(all).first(1), {.plan = parts[0]}, options);
  tools::calibrate(kModel, std::span(all).last(2), {.plan = parts[1]}, options);
  const tools::Calibration whole = tools::calibrate(kModel, all, {.plan = scratch / "whole.json"}, options);
  const tools::Calibration merged =
      tools::merge_calibrations(parts, {.plan = scratch / "merged.json", .trt_cache = scratch / "cache"});
  EXPECT_EQ(content(scratch / "merged.json"), content(scratch / "whole.json"));
  EXPECT_EQ(merged.images, 3);
  ASSERT_EQ(merged.tensors.size(), whole.tensors.size());
  for (std::size_t i = 0; i < whole.tensors.size(); ++i)
    EXPECT_EQ(merged.tensors[i].scale, whole.tensors[i].scale) << whole.tensors[i].name;
  EXPECT_THAT(content(scratch / "cache"), HasSubstr("TRT-"));

  tools::RangeOptions range;
  range.method = tools::RangeMethod::minmax;
  const tools::Calibration wide = tools::merge_calibrations(parts, {.plan = scratch / "wide.json"}, range);
  EXPECT_EQ(wide.method, tools::RangeMethod::minmax);
  for (std::size_t i = 0; i < whole.tensors.size(); ++i)
    EXPECT_GE(wide.tensors[i].threshold, whole.tensors[i].threshold * (1 - 1e-6)) << whole.tensors[i].name;

  EXPECT_THAT([&] { tools::merge_calibrations(parts, {.plan = parts[0]}); },
              ThrowsMessage<Error>(HasSubstr("a.json")));
  EXPECT_THAT(
      [&] {
        tools::merge_calibrations(parts, {.plan = scratch / "x.json", .ncnn_table = scratch / "x.table"});
      },
      ThrowsMessage<pipit::ArgumentError>(HasSubstr("weights")));
  EXPECT_FALSE(fs::exists(scratch / "x.json"));
}

TEST_F(Tools, CalibratorsOfPartsGiveThePlanOfAll) {
  const auto content = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  tools::CalibrateOptions options;
  options.load.device.threads = 1;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(scratch.path())) {
    if (entry.path().extension() == ".bmp") files[entry.path().filename().string()] = content(entry.path());
  }
  ASSERT_GE(files.size(), 6U);
  std::vector<tools::NamedImage> all;
  for (const auto& [name, file] : files) all.push_back({name, std::as_bytes(std::span(file))});
  const std::string damaged = "no image";
  all.insert(all.begin() + 2, {"damaged", std::as_bytes(std::span(damaged))});

  tools::Calibrator one(kModel, options);
  tools::Calibrator other(kModel, options);
  EXPECT_THAT([&] { one.write({.plan = scratch / "none.json"}); },
              ThrowsMessage<Error>(HasSubstr("no images were given")));
  std::pair<std::int64_t, std::int64_t> done;
  one.update(std::span(all).first(4), [&](std::int64_t now, std::int64_t total) { done = {now, total}; });
  EXPECT_EQ(done, std::pair(std::int64_t{4}, std::int64_t{4}));
  other.update(std::span(all).subspan(4));
  one.merge(tools::Calibrator(kModel, options).part());
  one.merge(other.part());
  EXPECT_EQ(one.images(), static_cast<std::int64_t>(files.size()));
  ASSERT_EQ(one.excluded().size(), 1U);
  EXPECT_EQ(one.excluded()[0].path, "damaged");
  const tools::Calibration found = one.write({.plan = scratch / "parts.json"});
  EXPECT_EQ(content(scratch / "parts.json"), content(plan));
  EXPECT_EQ(found.excluded.size(), 1U);

  EXPECT_THAT([&] { one.merge(other.part()); }, ThrowsMessage<Error>(HasSubstr("was already counted")));
  EXPECT_THAT([&] { one.update(std::span(all).first(1)); },
              ThrowsMessage<Error>(HasSubstr("already counted")));
  EXPECT_THAT([&] { one.merge("{}"); }, ThrowsMessage<Error>(HasSubstr("not a part of a calibration")));
  EXPECT_EQ(one.images(), static_cast<std::int64_t>(files.size()));
  EXPECT_THAT([&] { one.write({.plan = scratch / "x.json", .ncnn_table = scratch / "x.table"}); },
              ThrowsMessage<pipit::ArgumentError>(HasSubstr("weights")));

  options.strict = true;
  tools::Calibrator strict(kModel, options);
  EXPECT_THAT([&] { strict.update(all); }, ThrowsMessage<Error>(HasSubstr("damaged: not a JPEG")));
  EXPECT_THAT([&] { strict.part(); }, ThrowsMessage<Error>(HasSubstr("make another Calibrator")));
  options.bias_correction = true;
  EXPECT_THAT([&] { tools::Calibrator(kModel, options); },
              ThrowsMessage<pipit::ArgumentError>(HasSubstr("all images at once")));
}

TEST_F(Tools, NothingThatIsReadIsReplaced) {
  const fs::path model = scratch / "model.onnx";
  tools::quantize(kModel, plan, model);
  const auto content = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const fs::path image = scratch / "image0.bmp";
  fs::create_symlink("model.onnx", scratch / "link.json");
  fs::create_symlink("image0.bmp", scratch / "image.json");
  const std::vector<std::string> before = {content(model), content(image), content(plan)};
  const std::vector<fs::path> one = {image};
  for (const fs::path& output : {model, scratch / "link.json", image, scratch / "image.json"}) {
    EXPECT_THAT([&] { tools::calibrate(model.string(), one, {.plan = output}); },
                ThrowsMessage<Error>(AllOf(HasSubstr(output.string()), HasSubstr("which is read"))));
  }
  EXPECT_THAT(
      [&] { tools::calibrate(model.string(), images, {.plan = image}); },
      ThrowsMessage<Error>(AllOf(HasSubstr(image.string()), HasSubstr(scratch.path().string() + "'"))));
  for (const fs::path& output : {model, plan, scratch / "link.json"}) {
    EXPECT_THAT([&] { tools::quantize(model.string(), plan, output); },
                ThrowsMessage<Error>(AllOf(HasSubstr(output.string()), HasSubstr("which is read"))));
  }
  EXPECT_EQ(before, (std::vector{content(model), content(image), content(plan)}));
}

// The layout of most sets of images: a folder for each class, the same file names in all.
TEST_F(Tools, FoldersWithTheSameNamesMakeAPlanThatIsRead) {
  for (const char* name : {"set/cat", "set/dog", "far"}) fs::create_directories(scratch / name);
  unsigned seed = 10;
  for (const char* name :
       {"set/cat/1.bmp", "set/cat/2.bmp", "set/dog/1.bmp", "far/1.bmp", "far/a\xff.bmp", "far/a\\xff.bmp"})
    scratch.write(name, pipit::internal::test::bmp(32, ++seed));
  fs::create_directory_symlink("set/dog", scratch / "link");
  const fs::path set = scratch / "set";
  const fs::path far = scratch / "far";
  const auto calibrated = [&](const std::vector<fs::path>& given) {
    tools::CalibrateOptions options;
    options.load.device.threads = 1;
    notes = tools::calibrate(kModel, given, {.plan = plan}, options).notes;
    const CompiledModel runs(kModel, one_thread(pipit::Int8{.plan = plan}));
    tools::quantize(kModel, plan, scratch / "q.onnx");
    std::ifstream stream(plan, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(stream), {});
    const std::size_t begin = text.find("\"images\"");
    return text.substr(begin, text.find("\"histograms\"") - begin);
  };
  const auto count = [](int n) { return HasSubstr("\"count\": " + std::to_string(n) + ","); };
  EXPECT_THAT(calibrated({set}), AllOf(count(3), HasSubstr("\"cat/1.bmp\""), HasSubstr("\"dog/1.bmp\"")));
  const std::string classes = calibrated({set / "cat", set / "dog"});
  EXPECT_THAT(classes, AllOf(count(3), HasSubstr("\"cat/1.bmp\""), HasSubstr("\"dog/1.bmp\"")));
  EXPECT_EQ(classes, calibrated({set}));
  EXPECT_THAT(calibrated({set / "cat", far}),
              AllOf(count(5), HasSubstr("\"set/cat/1.bmp\""), HasSubstr("\"far/1.bmp\""),
                    HasSubstr(R"("far/a\\xff.bmp")"), HasSubstr(R"("far/a\\\\xff.bmp")")));
  EXPECT_THAT(notes, Not(Contains(HasSubstr("given twice"))));
  EXPECT_THAT(calibrated({far / "1.bmp"}), AllOf(count(1), HasSubstr("\"1.bmp\"")));
  // What is named twice is there once, under whatever path of its folder.
  for (const std::vector<fs::path>& given :
       std::vector<std::vector<fs::path>>{{set, set},
                                          {set, set / "dog"},
                                          {set / "dog" / "1.bmp", set},
                                          {set, set / "cat" / ".." / "dog"},
                                          {set, scratch / "link"}}) {
    EXPECT_THAT(calibrated(given), count(3)) << given[0] << given[1];
    EXPECT_THAT(notes, Contains(HasSubstr("given twice")));
  }
  // Copies are images of their own, and said.
  scratch.write("far/copy.bmp", pipit::internal::test::bmp(32, 14));
  EXPECT_THAT(calibrated({far}), count(4));
  EXPECT_THAT(notes, Contains(HasSubstr("1 of the 4 images calibrated on has the same bytes")));
}

TEST(Profile, ExplainsTheTimeOfEveryLayer) {
  const CompiledModel model(kModel, one_thread());
  tools::ProfileOptions options;
  options.runs = 5;
  options.warmup = 1;
  const tools::ModelProfile profile = tools::profile(model, {}, options);
  EXPECT_EQ(profile.runs, 5);
  ASSERT_FALSE(profile.layers.empty());
  double sum = 0;
  for (const tools::LayerTime& layer : profile.layers) {
    EXPECT_FALSE(layer.name.empty());
    EXPECT_FALSE(layer.kernel.empty());
    EXPECT_GT(layer.bytes, 0);
    sum += layer.median_ms;
  }
  EXPECT_GT(sum, 0);
  // A 3x3 convolution of 3 channels to 24, at 32 x 32.
  EXPECT_EQ(profile.layers[0].macs, 3 * 24 * 9 * 32 * 32);
  EXPECT_EQ(profile.layers[0].output, (Shape{1, 24, 32, 32}));
  EXPECT_GE(profile.end_to_end_ms, profile.layers_ms - 1e-9);
  options.runs = 0;
  EXPECT_THROW(tools::profile(model, {}, options), Error);
  options.runs = 1;
  const std::vector<float> wrong(12);
  const ArrayView view(wrong, Shape{12});
  EXPECT_THROW(tools::profile(model, {&view, 1}, options), Error);
  options.device = 1;
  EXPECT_THAT([&] { tools::profile(model, {}, options); }, ThrowsMessage<Error>(HasSubstr("device 1")));
}

// What a callback throws is no Error of pipit's, and arrives as it was thrown.
struct Cancelled {
  std::int64_t done = 0;
};

TEST_F(Tools, ProgressMayCancelAndFilesAreAsBefore) {
  tools::CalibrateOptions options;
  options.load.device.threads = 2;
  options.progress = [](std::int64_t done, std::int64_t) { throw Cancelled{done}; };
  const fs::path other = scratch / "other.json";
  EXPECT_THROW(tools::calibrate(kModel, images, {.plan = other}, options), Cancelled);
  EXPECT_FALSE(fs::exists(other));
  const auto written = fs::last_write_time(plan);
  EXPECT_THROW(tools::calibrate(kModel, images, {.plan = plan}, options), Cancelled);
  EXPECT_EQ(fs::last_write_time(plan), written);
  tools::DiffOptions diff;
  diff.load.device.threads = 2;
  diff.progress.update = [](const std::string&, std::int64_t done, std::int64_t) { throw Cancelled{done}; };
  EXPECT_THROW(tools::diff(kModel, images, plan, diff), Cancelled);
  diff.progress.update = {};
  diff.progress.planned = [](const std::vector<tools::Stage>&) { throw Cancelled{}; };
  EXPECT_THROW(tools::diff(kModel, images, plan, diff), Cancelled);
  options.progress = {};
  tools::calibrate(kModel, images, {.plan = other}, options);
  EXPECT_TRUE(fs::exists(other));
}

}  // namespace
