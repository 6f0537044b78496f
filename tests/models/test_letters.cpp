// Names in composed and decomposed form are the same.
#include <gmock/gmock.h>

#include "models/labels.h"
#include "models/letters.h"

namespace pipit::internal {
namespace {

TEST(Letters, ComposedAndDecomposedFormsAreEqual) {
  const std::pair<const char*, const char*> pairs[] = {
      {"caf\xC3\xA9", "cafe\xCC\x81"},                           // e with acute
      {"\xE1\xBA\xAD", "a\xCC\xA3\xCC\x82"},                     // a with two marks
      {"\xE1\xBA\xA1\xCC\x82", "\xC3\xA2\xCC\xA3"},              // each with one of them
      {"\xED\x95\x9C", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"},  // Hangul
      {"\xE3\x81\x8C", "\xE3\x81\x8B\xE3\x82\x99"},              // Hiragana
      {"\xD0\xB9", "\xD0\xB8\xCC\x86"},                          // Cyrillic
      {"\xE2\x84\xAB", "\xC3\x85"},                              // Angstrom
  };
  for (const auto& [a, b] : pairs) EXPECT_EQ(taken_apart(a), taken_apart(b)) << a;
  EXPECT_NE(taken_apart("caf\xC3\xA9"), taken_apart("cafe"));
}

TEST(Letters, WhatIsNotUtf8Stays) {
  for (const char* text :
       {"plain", "\xFF\xFE", "a\xC3", "\xE1\xBA", "\xF0\x9F\x98\x80", "\xC0\x80", "\xE2\x82\xAC"})
    EXPECT_EQ(taken_apart(text), text);
}

TEST(Letters, FoldersAreFoundByEitherForm) {
  const Labels labels{"th\xC3\xA9", "cafe\xCC\x81"};
  EXPECT_EQ(find_label(labels, "the\xCC\x81"), 0);
  EXPECT_EQ(find_label(labels, "caf\xC3\xA9"), 1);
  EXPECT_EQ(find_label(labels, "cafe"), std::nullopt);
}

}  // namespace
}  // namespace pipit::internal
