#include "pipit/version.h"

namespace pipit {

std::string_view version() {
  return PIPIT_VERSION;
}

}  // namespace pipit
