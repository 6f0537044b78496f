#include "engine/base/printable.h"

#include <gtest/gtest.h>

namespace pipit::internal {
namespace {

TEST(Printable, WritesOutWhatIsNoPlainText) {
  EXPECT_EQ(printable("plain \u00e4\u00f6\u00fc \u65e5\u672c \U0001f600"),
            "plain \u00e4\u00f6\u00fc \u65e5\u672c \U0001f600");
  EXPECT_EQ(printable("a\x1b[31m\nb\xff"), "a\\x1b[31m\\x0ab\\xff");
  EXPECT_EQ(printable("\u202egnp"), "\\u202egnp");
  EXPECT_EQ(printable("z\u200be\u00adro\ufeff\u3164"), "z\\u200be\\u00adro\\ufeff\\u3164");
  EXPECT_EQ(printable("\U000e0041"), "\\U000e0041");
}

TEST(Printable, JsonMeansTheSame) {
  EXPECT_EQ(printable_json("{\"\u200b\": \"\u202e\"}"), "{\"\\u200b\": \"\\u202e\"}");
  EXPECT_EQ(printable_json("\"\U000e0041\""), "\"\\udb40\\udc41\"");
}

TEST(Printable, KeysOfDifferentTextsDiffer) {
  EXPECT_NE(printable_key("a\xff"), printable_key("a\\xff"));
  EXPECT_NE(printable_key("\u200b"), printable_key("\\u200b"));
}

}  // namespace
}  // namespace pipit::internal
