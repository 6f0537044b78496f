#include "engine/base/measuring_time.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/platform/measured_rate.h"

namespace pipit::internal {
namespace {

class MeasuringTime : public testing::Test {
 protected:
  void TearDown() override { unsetenv("PIPIT_SHORT_MEASUREMENTS"); }

  // The rounds of a measurement whose rates never settle to 1 %.
  int rounds() {
    double rate = 1;
    return measure_rate([&] { return rate *= 2; }).rounds;
  }
};

TEST_F(MeasuringTime, AsLongAsAskedFor) {
  unsetenv("PIPIT_SHORT_MEASUREMENTS");
  EXPECT_EQ(measuring_ms(250), 250);
  EXPECT_GE(rounds(), 9);
  for (const char* value : {"", "0", "yes"}) {
    setenv("PIPIT_SHORT_MEASUREMENTS", value, 1);
    EXPECT_EQ(measuring_ms(250), 250) << value;
  }
}

TEST_F(MeasuringTime, ShortOnesHaveTheFewestRounds) {
  setenv("PIPIT_SHORT_MEASUREMENTS", "1", 1);
  EXPECT_EQ(measuring_ms(250), 0);
  EXPECT_EQ(rounds(), 9);
}

}  // namespace
}  // namespace pipit::internal
