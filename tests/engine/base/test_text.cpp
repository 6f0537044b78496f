#include "pipit/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace pipit::internal::test {
namespace {

TEST(Text, CountsThings) {
  EXPECT_EQ(counted(1, "image"), "1 image");
  EXPECT_EQ(counted(0, "image"), "0 images");
  EXPECT_EQ(counted(2, "class", "classes"), "2 classes");
  EXPECT_EQ(counted(1, "class", "classes"), "1 class");
}

TEST(Text, GivesSizesInMebibytes) {
  EXPECT_EQ(mebibytes(0), "0.00 MiB");
  EXPECT_EQ(mebibytes(1572864), "1.50 MiB");
}

TEST(Text, KeepsTheFirstLines) {
  EXPECT_EQ(first_lines("a\nb", 2), "a\nb");
  EXPECT_EQ(first_lines("a\nb\nc\nd", 2), "a\nb\n  ... and 2 more");
  EXPECT_EQ(first_lines("", 1), "");
}

TEST(Text, SuggestsNearNames) {
  const std::array<std::string, 4> names = {"evaluate", "profile", "prune", "sweep"};
  EXPECT_EQ(near_names("profil", names), "; did you mean 'profile'?");
  EXPECT_EQ(near_names("swep", names), "; did you mean 'sweep'?");
  EXPECT_EQ(near_names("xyzxyzxyz", names), "");
  EXPECT_EQ(near_names(std::string(1000, 'p'), names), "");
  EXPECT_EQ(near_names("a", {}), "");
}

TEST(Text, QuotesWordsForShells) {
  EXPECT_EQ(shell_word("model-1.onnx"), "model-1.onnx");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
}

}  // namespace
}  // namespace pipit::internal::test
