// How long something is measured that is measured until it is known.
#pragma once

namespace pipit::internal {

/// `ms`, or 0 where the environment variable PIPIT_SHORT_MEASUREMENTS is 1: as few rounds as are worth anything,
/// whatever they vary by. For tests of what is made of times.
double measuring_ms(double ms);

}  // namespace pipit::internal
