#include "engine/base/measuring_time.h"

#include <cstdlib>
#include <string_view>

namespace pipit::internal {

double measuring_ms(double ms) {
  const char* value = std::getenv("PIPIT_SHORT_MEASUREMENTS");
  return value != nullptr && std::string_view(value) == "1" ? 0 : ms;
}

}  // namespace pipit::internal
