// Images in, labels out, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <cmath>
#include <thread>

#include "tests/pipit/models.h"

namespace {

using pipit::Classifier;
using pipit::ClassifierOptions;
using pipit::Error;
using pipit::PixelView;
using pipit::Prediction;
using pipit::internal::test::bmp;
using pipit::internal::test::chain;
using pipit::internal::test::pattern;
using pipit::internal::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

ClassifierOptions one_thread() {
  ClassifierOptions options;
  options.load.device.threads = 1;
  options.load.kernels.tuning = pipit::Tuning::by_order;
  return options;
}

std::vector<std::pair<int, float>> answer(const std::vector<Prediction>& predictions) {
  std::vector<std::pair<int, float>> all;
  for (const Prediction& p : predictions) all.emplace_back(p.index, p.probability);
  return all;
}

TEST(Classifier, NamesWhatFilesBytesAndPixelsShow) {
  const Scratch scratch("classifier");
  Classifier classifier(kModel, one_thread());
  EXPECT_EQ(classifier.classes(), 10);
  ASSERT_THAT(classifier.labels(), SizeIs(10));
  const std::string file = bmp(32, 1);
  const std::vector<Prediction> top = classifier.classify(scratch.write("image.bmp", file), 10);
  ASSERT_THAT(top, SizeIs(10));
  float sum = 0;
  for (std::size_t i = 0; i < top.size(); ++i) {
    sum += top[i].probability;
    EXPECT_EQ(top[i].label, classifier.labels()[static_cast<std::size_t>(top[i].index)]);
    if (i > 0) {
      EXPECT_GE(top[i - 1].probability, top[i].probability);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_EQ(answer(classifier.classify_encoded(std::as_bytes(std::span(file)), 10)), answer(top));
  const std::vector<std::uint8_t> pixels = pattern(32, 1);
  EXPECT_EQ(answer(classifier.classify(PixelView{pixels, 32, 32}, 10)), answer(top));
  EXPECT_NE(answer(classifier.classify(PixelView{pattern(32, 2), 32, 32}, 10)), answer(top));
  EXPECT_THAT(classifier.classify(PixelView{pixels, 32, 32}, 3), SizeIs(3));
  EXPECT_THAT(classifier.classify(PixelView{pixels, 32, 32}, 1000), SizeIs(10));
}

TEST(Classifier, TakesPreprocessingAndLabelsFromOptions) {
  const Scratch scratch("classifier-options");
  ClassifierOptions options = one_thread();
  EXPECT_THAT(Classifier(kModel, options).preprocessing(), HasSubstr("stored in the model"));
  options.preprocess.preset = "caffe";
  options.preprocess.mean = {1, 2, 3};
  options.labels = scratch.write("labels.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  Classifier classifier(kModel, options);
  EXPECT_THAT(classifier.preprocessing(),
              AllOf(HasSubstr("caffe"), HasSubstr("mean 1 2 3"), HasSubstr("BGR")));
  const Prediction best = classifier.classify(PixelView{pattern(32, 1), 32, 32}, 1).at(0);
  EXPECT_EQ(best.label, std::string(1, static_cast<char>('a' + best.index)));
}

TEST(Classifier, SaysWhatIsGuessed) {
  ClassifierOptions options = one_thread();
  const Classifier classifier("resnet18", options);
  EXPECT_THAT(classifier.notes(), testing::Contains(HasSubstr("preprocessing guessed")));
  EXPECT_THAT(classifier.labels(), testing::IsEmpty());
}

ClassifierOptions pixels_as_they_are() {
  ClassifierOptions options = one_thread();
  options.preprocess.resize = 1;
  options.preprocess.crop = 1;
  options.preprocess.interpolation = "nearest";
  options.preprocess.mean = {0, 0, 0};
  options.preprocess.std = {1, 1, 1};
  return options;
}

float logistic(float x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Classifier, ShowsIndependentScoresForThemselves) {
  const Scratch scratch("classifier-tags");
  const std::string model = scratch.write("tags.onnx", chain(3, {"Flatten", "Sigmoid"})).string();
  Classifier classifier(model, pixels_as_they_are());
  EXPECT_EQ(classifier.scores(), pipit::ScoreKind::sigmoid);
  EXPECT_EQ(classifier.classes(), 3);
  EXPECT_THAT(classifier.notes(), testing::Contains(HasSubstr("independent")));
  const std::vector<std::uint8_t> pixel = {51, 255, 0};
  const std::vector<Prediction> top = classifier.classify(PixelView{pixel, 1, 1});
  ASSERT_THAT(top, SizeIs(3));
  EXPECT_EQ(top[0].index, 1);
  EXPECT_NEAR(top[0].probability, logistic(1), 1e-6);
  EXPECT_NEAR(top[1].probability, logistic(0.2F), 1e-6);
  EXPECT_NEAR(top[2].probability, 0.5, 1e-6);
  // Said to be something else.
  ClassifierOptions options = pixels_as_they_are();
  options.scores = pipit::ScoreKind::softmax;
  EXPECT_EQ(Classifier(model, options).scores(), pipit::ScoreKind::softmax);
  EXPECT_EQ(Classifier(kModel, one_thread()).scores(), pipit::ScoreKind::logits);
}

TEST(Classifier, AnswersYesOrNoWhereThereIsOneScore) {
  const Scratch scratch("classifier-one");
  const std::vector<std::uint8_t> grey = {153, 153, 153};
  for (const auto& [operators, kind] :
       {std::pair(std::vector<std::string>{"Flatten", "Sigmoid"}, pipit::ScoreKind::sigmoid),
        std::pair(std::vector<std::string>{"Flatten"}, pipit::ScoreKind::sigmoid_logits)}) {
    const std::string model = scratch.write("one.onnx", chain(1, operators)).string();
    ClassifierOptions options = pixels_as_they_are();
    Classifier classifier(model, options);
    EXPECT_EQ(classifier.scores(), kind);
    EXPECT_EQ(classifier.classes(), 2);
    EXPECT_THAT(classifier.labels(), testing::ElementsAre("no", "yes"));
    std::vector<Prediction> top = classifier.classify(PixelView{grey, 1, 1});
    ASSERT_THAT(top, SizeIs(2));
    EXPECT_EQ(top[0].label, "yes");
    EXPECT_NEAR(top[0].probability, logistic(0.6F), 1e-6);
    EXPECT_NEAR(top[1].probability, 1 - logistic(0.6F), 1e-6);
    options.threshold = 0.7;
    options.labels = scratch.write("labels.txt", "night\nday\n");
    top = Classifier(model, options).classify(PixelView{grey, 1, 1}, 1);
    ASSERT_THAT(top, SizeIs(1));
    EXPECT_EQ(top[0].label, "night");
    options.threshold = 1.5;
    EXPECT_THROW(Classifier(model, options), Error);
  }
}

TEST(Classifier, RefusesWhatDoesNotFit) {
  const Scratch scratch("classifier-misuse");
  ClassifierOptions options = one_thread();
  EXPECT_THAT([&] { Classifier("no-such-model.onnx", options); },
              ThrowsMessage<Error>(HasSubstr("no-such-model.onnx")));
  EXPECT_THAT([&] { Classifier(scratch.write("hostile.onnx", "\x08\x07 not a model").string(), options); },
              ThrowsMessage<Error>(HasSubstr("hostile.onnx")));
  EXPECT_THROW(Classifier(scratch.write("empty.onnx", "").string(), options), Error);
  options.labels = scratch.write("two.txt", "cat\ndog\n");
  EXPECT_THAT([&] { Classifier(kModel, options); }, ThrowsMessage<Error>(HasSubstr("2 labels")));
  options = one_thread();
  options.preprocess.crop = 24;
  EXPECT_THAT([&] { Classifier(kModel, options); }, ThrowsMessage<Error>(HasSubstr("32x32")));
  options.preprocess.crop.reset();
  options.preprocess.preset = "imaginary";
  EXPECT_THAT([&] { Classifier(kModel, options); }, ThrowsMessage<Error>(HasSubstr("torchvision")));

  Classifier classifier(kModel, one_thread());
  EXPECT_THAT([&] { classifier.classify(scratch / "none.jpg"); },
              ThrowsMessage<Error>(HasSubstr("none.jpg")));
  EXPECT_THAT([&] { classifier.classify(scratch.write("text.jpg", "no image")); },
              ThrowsMessage<Error>(HasSubstr("text.jpg")));
  const std::vector<std::uint8_t> pixels = pattern(32, 1);
  EXPECT_THROW(classifier.classify(PixelView{pixels, 32, 31}), Error);
  EXPECT_THROW(classifier.classify(PixelView{{}, 0, 0}), Error);
  EXPECT_THROW(classifier.classify(PixelView{pixels, 32, 32}, 0), Error);
  // An error leaves the classifier as it was.
  EXPECT_THAT(classifier.classify(PixelView{pixels, 32, 32}), SizeIs(5));
}

TEST(Classifier, ClassifiesManyImagesInOrder) {
  const Scratch scratch("classifier-many");
  constexpr std::size_t kImages = 11;
  const std::vector<std::filesystem::path> paths = pipit::internal::test::write_images(scratch, kImages);
  std::vector<std::string> files;
  std::vector<std::vector<std::uint8_t>> rgb;
  std::vector<std::span<const std::byte>> encoded;
  std::vector<PixelView> pixels;
  for (unsigned i = 0; i < kImages; ++i) {
    files.push_back(bmp(32, i));
    rgb.push_back(pattern(32, i));
  }
  for (std::size_t i = 0; i < kImages; ++i) {
    encoded.push_back(std::as_bytes(std::span(files[i])));
    pixels.push_back({rgb[i], 32, 32});
  }
  for (const int threads : {1, 2}) {
    for (const std::int64_t batch : {1, 4, 16}) {
      ClassifierOptions options = one_thread();
      options.load.device.threads = threads;
      options.load.shapes.batch = batch;
      Classifier classifier(kModel, options);
      std::vector<std::vector<std::pair<int, float>>> expected;
      for (const PixelView& image : pixels) expected.push_back(answer(classifier.classify(image, 3)));
      EXPECT_NE(expected[0], expected[1]);
      const auto check = [&](const std::vector<std::vector<Prediction>>& answers) {
        ASSERT_THAT(answers, SizeIs(kImages));
        for (std::size_t i = 0; i < kImages; ++i)
          EXPECT_EQ(answer(answers[i]), expected[i]) << "image " << i << ", batch " << batch;
      };
      check(classifier.classify_all(pixels, 3));
      check(classifier.classify_all(paths, 3));
      check(classifier.classify_all_encoded(encoded, 3));
      // One after many: what others have left in the batch does not matter.
      EXPECT_EQ(answer(classifier.classify(pixels[2], 3)), expected[2]);
      EXPECT_THAT(classifier.classify_all(std::span<const PixelView>()), testing::IsEmpty());
    }
  }
}

TEST(Classifier, SaysWhichOfManyImagesIsWrong) {
  const Scratch scratch("classifier-many-wrong");
  ClassifierOptions options = one_thread();
  options.load.shapes.batch = 4;
  options.load.device.threads = 2;
  Classifier classifier(kModel, options);
  std::vector<std::filesystem::path> paths = pipit::internal::test::write_images(scratch, 9);
  paths[6] = scratch.write("broken.jpg", "no image");
  paths[7] = scratch / "none.jpg";
  EXPECT_THAT([&] { classifier.classify_all(paths); }, ThrowsMessage<Error>(HasSubstr("broken.jpg")));
  const std::vector<std::uint8_t> rgb = pattern(32, 1);
  std::vector<PixelView> pixels(6, PixelView{rgb, 32, 32});
  pixels[5].width = 31;
  EXPECT_THROW(classifier.classify_all(pixels), Error);
  EXPECT_THROW(classifier.classify_all(pixels, 0), Error);
  const std::string file = "text";
  const std::vector<std::span<const std::byte>> encoded = {std::as_bytes(std::span(file))};
  EXPECT_THAT([&] { classifier.classify_all_encoded(encoded); },
              ThrowsMessage<Error>(HasSubstr("image 0 in memory")));
  paths.resize(6);
  EXPECT_THAT(classifier.classify_all(paths), SizeIs(6)) << "an error leaves the classifier as it was";
}

TEST(Classifier, CopiesAnswerInThreadsOfTheirOwn) {
  const Classifier classifier(kModel, one_thread());
  std::vector<std::vector<std::pair<int, float>>> answers(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < answers.size(); ++t) {
    threads.emplace_back([&, t, own = classifier]() mutable {
      for (int run = 0; run < 5; ++run)
        answers[t] = answer(own.classify(PixelView{pattern(32, static_cast<unsigned>(t)), 32, 32}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Classifier alone = classifier;
  for (unsigned t = 0; t < 4; ++t)
    EXPECT_EQ(answers[t], answer(alone.classify(PixelView{pattern(32, t), 32, 32})));
}

}  // namespace
