#include "engine/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace pipit::internal {
namespace {

using ::testing::ThrowsMessage;

// what() is text of C, which a NUL ends.
TEST(Error, WritesOutWhatWouldEndIt) {
  const std::string name("a\0b\0", 4);
  EXPECT_THAT([&] { fail("{}: not there", name); }, ThrowsMessage<Error>("a\\x00b\\x00: not there"));
  EXPECT_THAT([&] { fail_unsupported("'{}'", name); }, ThrowsMessage<UnsupportedError>("'a\\x00b\\x00'"));
  EXPECT_THAT([&] { naming(name, [] { fail("is odd"); }); }, ThrowsMessage<Error>("a\\x00b\\x00: is odd"));
  EXPECT_THAT([&] { fail("{}", "plain \\ text"); }, ThrowsMessage<Error>("plain \\ text"));
}

}  // namespace
}  // namespace pipit::internal
