// Values of options as text, kinds of scores, presets, and files for results, as a program uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "pipit/classifier.h"
#include "pipit/error.h"
#include "pipit/option_values.h"
#include "pipit/output_file.h"
#include "pipit/scores.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::Error;
using pipit::Shape;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::ThrowsMessage;

TEST(OptionValues, DividesNamedValuesAtTheLastSign) {
  const auto [name, value] = tools::parse_named_value("a=b=3");
  EXPECT_EQ(name, "a=b");
  EXPECT_EQ(value, "3");
  EXPECT_EQ(tools::parse_named_value("3").first, "");
}

TEST(OptionValues, ReadsExtentsShapesAndNumbers) {
  EXPECT_THAT(tools::parse_extent("224"), Optional(224));
  EXPECT_THAT(tools::parse_shape("1x3x224x224"), Optional(Shape{1, 3, 224, 224}));
  EXPECT_THAT(tools::parse_numbers("1,0.5,true,false"), Optional(ElementsAre(1, 0.5, 1, 0)));
  for (const char* text : {"", "0", "-1", "1x", "2.5", "99999999999999999999"})
    EXPECT_EQ(tools::parse_extent(text), std::nullopt) << text;
  for (const char* text : {"", "1x", "x1", "1x0", "1x2x3x4x5x6x7"})
    EXPECT_EQ(tools::parse_shape(text), std::nullopt) << text;
  for (const char* text : {"", "1,", "one"}) EXPECT_EQ(tools::parse_numbers(text), std::nullopt) << text;
  EXPECT_THAT([] { tools::parse_shape("4611686018427387904x4"); },
              ThrowsMessage<Error>(HasSubstr("overflow")));
}

TEST(OptionValues, KnowsKernels) {
  EXPECT_EQ(tools::parse_kernel_choice("Conv=no-winograd").name, "Conv=winograd");
  EXPECT_TRUE(tools::parse_kernel_choice("no-winograd").exclude);
  EXPECT_FALSE(tools::parse_kernel_choice("tile").exclude);
  const std::vector<std::string> kernels = tools::kernel_names(), choices = tools::kernel_choices();
  EXPECT_TRUE(std::ranges::is_sorted(kernels));
  EXPECT_THAT(kernels, Contains("tile"));
  EXPECT_THAT(kernels, Not(Contains("winograd")));  // stands for several
  EXPECT_THAT(choices, Contains("winograd"));
  for (const std::string& name : choices) EXPECT_NO_THROW(tools::check_kernel(name)) << name;
  EXPECT_THAT([] { tools::check_kernel("none"); },
              ThrowsMessage<Error>(HasSubstr("there is no kernel 'none'")));
}

TEST(OptionValues, ChecksWhatIsKept) {
  for (const char* text : {"first=fp32", "a=b=bf16", "conv=int8"}) EXPECT_NO_THROW(tools::check_keep(text));
  EXPECT_THAT([] { tools::check_keep("conv"); }, ThrowsMessage<Error>(HasSubstr("'conv' is not NAME=fp32")));
  EXPECT_THROW(tools::check_keep("=fp32"), Error);
}

TEST(OptionValues, NamesKindsOfScoresAndPresets) {
  for (const pipit::ScoreKind kind : pipit::kScoreKinds)
    EXPECT_EQ(pipit::find_score_kind(score_kind_name(kind)), kind);
  EXPECT_EQ(pipit::find_score_kind("tanh"), std::nullopt);
  EXPECT_THAT(pipit::preprocess_presets(), ElementsAre("torchvision", "timm", "caffe", "cifar"));
}

TEST(OutputFile, IsWrittenInFullAndReplacesNoInput) {
  const fs::path folder = fs::path(testing::TempDir()) / "pipit_output_file";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path file = folder / "result.json";
  EXPECT_NO_THROW(tools::check_writable(file));
  tools::write_file(file, "1\n");
  tools::write_file(file, "22\n");
  std::string line;
  std::getline(std::ifstream(file), line);
  EXPECT_EQ(line, "22");
  EXPECT_TRUE(tools::same_file(file, folder / ".." / folder.filename() / "result.json"));
  EXPECT_FALSE(tools::same_file(file, folder / "other.json"));
  const std::array<std::string, 1> inputs = {file.string()};
  EXPECT_THAT(tools::replaced_input(file, inputs), HasSubstr("result.json"));
  EXPECT_EQ(tools::replaced_input(folder / "other.json", inputs), "");
  EXPECT_THROW(tools::check_writable(folder / "none" / "result.json"), Error);
  EXPECT_THROW(tools::write_file(folder, "1"), Error);
  fs::remove_all(folder);
}

}  // namespace
