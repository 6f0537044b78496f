#include <gmock/gmock.h>

#include "models/labels.h"
#include "tests/models/image/image_test_util.h"
#include "tests/support/linear_time.h"

namespace pipit::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_error(std::string_view text) {
  return test::error_of([&] { labels_from_text(text, "x.txt"); });
}

TEST(LabelsText, OnePerLine) {
  EXPECT_THAT(labels_from_text("cat\ndog\n"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text("cat\ndog"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text("cat\r\ndog\r\n\r\n \n\n"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text("\xEF\xBB\xBF"
                               "cat\n"),
              ElementsAre("cat"));
  EXPECT_THAT(labels_from_text("n01440764 tench, Tinca tinca\n"),
              ElementsAre("n01440764 tench, Tinca tinca"));
}

TEST(LabelsText, ABlankLineInBetweenKeepsTheIndices) {
  EXPECT_THAT(labels_from_text("\na\n\nb\n"), ElementsAre("", "a", "", "b"));
}

TEST(LabelsText, JsonListsAndMaps) {
  EXPECT_THAT(labels_from_text(R"( ["cat", "dog"])"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text(R"({"1": "dog", "0": "cat"})"), ElementsAre("cat", "dog"));
}

TEST(LabelsText, MapsAsOthersWriteThem) {
  // Keras' imagenet_class_index.json, ImageFolder.class_to_idx, and configurations that hold a map.
  EXPECT_THAT(labels_from_text(R"({"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]})"),
              ElementsAre("n01440764 tench", "n01443537 goldfish"));
  EXPECT_THAT(labels_from_text(R"({"dog": 1, "cat": 0})"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text(R"({"a": [{"b": 1}], "id2label": {"0": "cat", "1": "dog"}})"),
              ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text(R"({"label2id": {"dog": 1, "cat": 0}})"), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_from_text(R"({"label_names": ["cat", "dog"]})"), ElementsAre("cat", "dog"));
  EXPECT_THAT(text_error(R"({"cat": 0, "dog": 2})"), HasSubstr("the class of 'dog' is 2"));
  EXPECT_THAT(text_error(R"({"cat": 0, "dog": 0})"), HasSubstr("'cat' and 'dog' are both class 0"));
  EXPECT_THAT(text_error(R"({"cat": 0.5})"), HasSubstr("the class of 'cat' is 0.5"));
  EXPECT_THAT(text_error(R"({"cat": -1})"), HasSubstr("the class of 'cat' is -1"));
}

TEST(LabelsText, BadContentIsAnErrorWithTheName) {
  for (const std::string_view text :
       {"", "\n \n", "[]", "{}", "[1]", "[[\"a\"]]", "{\"0\":{}}", "[\"a\"", "{\"a\":\"b\"}"}) {
    EXPECT_THAT(text_error(text), HasSubstr("x.txt")) << text;
  }
  EXPECT_THAT(text_error(R"({"0":"a","2":"b"})"), HasSubstr("\"1\" is missing"));
  EXPECT_THAT(text_error(std::string_view("a\0b", 3)), HasSubstr("zero byte"));
  EXPECT_THAT(text_error(std::string(1'000'000, '[')), HasSubstr("nested"));
  EXPECT_THAT(text_error(std::string((16u << 20) + 1, 'a')), HasSubstr("limit"));
}

TEST(LabelsText, ReadingTakesLinearTime) {
  const auto text = [](const char* open, bool keys, const char* close) {
    return [=](int n) {
      std::string json = open;
      for (int i = 0; i < n; ++i) {
        if (i > 0) json += ",";
        if (keys) json += fmt::format("\"{}\":", i);
        json += "\"a\"";
      }
      return json + close;
    };
  };
  const auto read = [](const std::string& json) { labels_from_text(json); };
  test::expect_linear_time(500, text("[", false, "]"), read);
  test::expect_linear_time(500, text("{", true, "}"), read);
  std::string structures = "[{}";  // refused at the first
  for (int i = 0; i < 1'000'000; ++i) structures += ",{}";
  EXPECT_THAT(text_error(structures + "]"), HasSubstr("label 0 is of type object"));
}

TEST(LabelsText, RoundTripsThroughTheMetadataForm) {
  const Labels labels = {"cat", "", "n01440764 tench, Tinca tinca", "dog"};
  EXPECT_EQ(labels_to_text(labels), "cat\n\nn01440764 tench, Tinca tinca\ndog");
  EXPECT_EQ(labels_from_text(labels_to_text(labels)), labels);
}

TEST(LabelsText, RoundTripsWhatLinesCannotHold) {
  for (const Labels& labels :
       {Labels{"a\nb", "c"}, Labels{"a\r", "b"}, Labels{"[unknown]", "cat"}, Labels{"{", "cat"},
        Labels{"cat", ""}, Labels{"", ""}, Labels{std::string("a\0", 2), "b"},
        Labels{"\xEF\xBB\xBF"
               "a",
               "b"},
        Labels{" ", "[", " "}})
    EXPECT_EQ(labels_from_text(labels_to_text(labels)), labels) << labels_to_text(labels);
}

// Readers of ONNX files take metadata for UTF-8, as its specification says.
TEST(LabelsText, OnlyUtf8IsStored) {
  EXPECT_THAT(test::error_of([] { labels_to_text({"a", "\xE9t\xE9"}); }), HasSubstr("label 1"));
}

TEST(ReadLabels, ReadsAFileOrSaysWhyNot) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(read_labels(folder.write("labels.txt", "a\nb\n")), ElementsAre("a", "b"));
  const auto error = [](const std::filesystem::path& path) {
    return test::error_of([&] { read_labels(path); });
  };
  EXPECT_THAT(error(folder.path() / "none.txt"), AllOf(HasSubstr("none.txt"), HasSubstr("no such file")));
  EXPECT_THAT(error(folder.path()), HasSubstr("regular file"));
  EXPECT_THAT(error(folder.write("empty.txt", "")), AllOf(HasSubstr("empty.txt"), HasSubstr("no labels")));
}

const Labels kImageNet = {"n01440764 tench, Tinca tinca", "n01443537 goldfish, Carassius auratus",
                          "n02012849 crane", "n03126707 crane", "n02123045 tabby, tabby cat"};

TEST(FindLabel, TheExactNameComesFirst) {
  const Labels labels = {"Cat", "cat", "big cat"};
  EXPECT_EQ(find_label(labels, "cat"), 1);
  EXPECT_EQ(find_label(labels, "Cat"), 0);
  EXPECT_THAT(test::error_of([&] { find_label(labels, "CAT"); }),
              AllOf(HasSubstr("class 0"), HasSubstr("class 1")));
}

TEST(FindLabel, CaseAndSeparatorsDoNotMatter) {
  EXPECT_EQ(find_label({"truck", "Great_White-shark"}, "great white SHARK"), 1);
  EXPECT_EQ(find_label({"truck", "great white shark"}, "great-white_shark"), 1);
  EXPECT_EQ(find_label({"truck"}, "trucks"), std::nullopt);
}

TEST(FindLabel, AnySynonymMatches) {
  EXPECT_EQ(find_label(kImageNet, "tench"), 0);
  EXPECT_EQ(find_label(kImageNet, "tinca_tinca"), 0);
  EXPECT_EQ(find_label(kImageNet, "Tabby-Cat"), 4);
  EXPECT_EQ(find_label({"goldfish, Carassius auratus"}, "carassius auratus"), 0);
  EXPECT_EQ(find_label({"goldfish, Carassius auratus"}, "goldfish, carassius auratus"), 0);
  EXPECT_EQ(find_label(kImageNet, "gold"), std::nullopt);
}

TEST(FindLabel, TheSynsetIdMatches) {
  EXPECT_EQ(find_label(kImageNet, "n02012849"), 2);
  EXPECT_EQ(find_label(kImageNet, "n03126707_crane"), 3);
  EXPECT_EQ(find_label({"n01440764", "n01443537"}, "n01443537_goldfish"), 1);
  EXPECT_EQ(find_label(kImageNet, "n0201284"), std::nullopt);
  EXPECT_EQ(find_label(kImageNet, "n020128499"), std::nullopt);
}

TEST(FindLabel, AnAmbiguousNameIsAnError) {
  EXPECT_THAT(test::error_of([] { find_label(kImageNet, "crane"); }),
              AllOf(HasSubstr("crane"), HasSubstr("class 2"), HasSubstr("class 3")));
  EXPECT_THROW(find_label({"a", "a"}, "a"), Error);
}

TEST(FindLabel, NothingMatchesNothing) {
  EXPECT_EQ(find_label({}, "cat"), std::nullopt);
  EXPECT_EQ(find_label({"", "a,,b", "n01440764"}, ""), std::nullopt);
  EXPECT_EQ(find_label({"", "a"}, " "), std::nullopt);
}

TEST(ClassFromFilename, TakesLeadingDigitsBeforeAnUnderscore) {
  EXPECT_EQ(class_from_filename("0000_n01440764_tench.jpg"), 0);
  EXPECT_EQ(class_from_filename("7_.jpg"), 7);
  EXPECT_EQ(class_from_filename("2147483647_x.jpg"), 2147483647);
  for (const std::string_view name :
       {"", "cat.jpg", "12", "12cat.jpg", "_1.jpg", "-1_x.jpg", "+1_x.jpg", " 1_x.jpg", "2147483648_x.jpg",
        "99999999999999999999.jpg", "1 .jpg", "7.jpg", "2024-05-01.jpg"}) {
    EXPECT_EQ(class_from_filename(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace pipit::internal
