#include "engine/base/parse_json.h"

#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "tests/support/linear_time.h"

namespace pipit::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(ParseJson, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", " true ", "-3", "18446744073709551615", "1.5e-3", R"("a\u00e4\"")", "[]", "{}",
        R"([1, [2, {"b": [], "a": {"c": null}}], "x"])", R"({"z": 1, "a": [true, false], "": {}})"}) {
    EXPECT_EQ(parse_json(text, 8), JsonDocument::parse(text)) << text;
    EXPECT_EQ(parse_json(text, 8).dump(), JsonDocument::parse(text).dump()) << text;  // members in order
  }
}

TEST(ParseJson, SaysWhereTheTextIsBroken) {
  for (const char* text : {"", "[", "[1,]", "{\"a\"}", "[] []", "nul", "\"\xff\"", "1e999"}) {
    EXPECT_THROW(parse_json(text, 8), Error) << text;
  }
  EXPECT_THAT(
      [] { parse_json("{\n  \"a\": }", 8); },
      ThrowsMessage<Error>(AllOf(HasSubstr("line 2, column 8: syntax error"), Not(HasSubstr("exception")))));
}

TEST(ParseJson, CountsLevels) {
  EXPECT_EQ(parse_json("[[1], {}]", 2).size(), 2U);
  for (const char* text :
       {"[[[", "[[{", "{\"a\": [[", "[[1], {\"b\": {"}) {  // refused before the text turns out broken
    EXPECT_THAT([&] { parse_json(text, 2); }, ThrowsMessage<Error>(HasSubstr("nested deeper than 2 levels")))
        << text;
  }
}

TEST(ParseJson, RefusesAMemberThatIsThereTwice) {
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", 8).size(), 2U);
  EXPECT_THAT([] { parse_json(R"({"b": {"a": 1, "c": 2, "a": 1}})", 8); },
              ThrowsMessage<Error>(HasSubstr("the key \"a\" is there twice")));
}

TEST(ParseJson, TakesLinearTime) {
  const auto repeated = [](const char* open, auto element, const char* close) {
    return [=](int n) {
      std::string text = open;
      for (int i = 0; i < n; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", element(i));
      return text + close;
    };
  };
  const auto parse = [](const std::string& text) { parse_json(text, 8); };
  test::expect_linear_time(500,
                           repeated(
                               "[", [](int) { return "{}"; }, "]"),
                           parse);
  test::expect_linear_time(500,
                           repeated(
                               "{", [](int i) { return fmt::format("\"{}\":[]", i); }, "}"),
                           parse);
}

}  // namespace
}  // namespace pipit::internal
