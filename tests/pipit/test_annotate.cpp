// What models store about themselves, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <nlohmann/json.hpp>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::ArgumentError;
using pipit::Error;
using pipit::internal::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Three channels of one pixel as scores of three classes.
class Annotate : public ::testing::Test {
 protected:
  Scratch scratch{"annotate"};
  fs::path model = scratch.write("model.onnx", pipit::internal::test::chain(3, {"Relu"}));
  fs::path output = scratch / "annotated.onnx";
};

TEST_F(Annotate, StoresWhatAClassifierReads) {
  tools::AnnotateOptions options;
  options.classifier.labels = scratch.write("labels.txt", "cat\ndog\nbird\n");
  options.classifier.scores = pipit::ScoreKind::softmax;
  options.classifier.preprocess.crop = 1;
  options.classifier.preprocess.resize = 1;
  const tools::AnnotatedFile file = tools::annotate(model.string(), output, options);
  EXPECT_EQ(file.labels, 3);
  EXPECT_EQ(file.scores, "softmax");
  EXPECT_THAT(file.preprocessing, HasSubstr("crop 1x1"));
  EXPECT_EQ(static_cast<std::uintmax_t>(file.bytes), fs::file_size(output));
  EXPECT_EQ(nlohmann::json::parse(file.json)["labels"], 3);

  pipit::ClassifierOptions load;
  load.load.device.threads = 1;
  const pipit::Classifier classifier(output.string(), load);
  EXPECT_THAT(std::vector<std::string>(classifier.labels().begin(), classifier.labels().end()),
              ElementsAre("cat", "dog", "bird"));
  EXPECT_EQ(classifier.scores(), pipit::ScoreKind::softmax);
  EXPECT_THAT(classifier.preprocessing(), HasSubstr("stored in the model"));
}

TEST_F(Annotate, RefusesWhatCannotBe) {
  tools::AnnotateOptions options;
  EXPECT_THAT([&] { tools::annotate(model.string(), output, options); },
              ThrowsMessage<ArgumentError>(HasSubstr("nothing to store")));
  options.classifier.scores = pipit::ScoreKind::softmax;
  EXPECT_THAT([&] { tools::annotate("resnet18", output, options); },
              ThrowsMessage<ArgumentError>(HasSubstr("resnet18")));
  EXPECT_THAT([&] { tools::annotate(model.string(), model, options); },
              ThrowsMessage<Error>(HasSubstr("which is read")));
  options.classifier.labels = scratch.write("labels.txt", "cat\ndog\n");
  EXPECT_THAT([&] { tools::annotate(model.string(), output, options); },
              ThrowsMessage<Error>(HasSubstr("labels.txt")));
  EXPECT_FALSE(fs::exists(output));
}

}  // namespace
