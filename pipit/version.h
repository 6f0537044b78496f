/// @file
/// Which pipit this is.
#pragma once

#include <string_view>

#include "pipit/export.h"

namespace pipit {

/// "0.1.0": major, minor and patch.
PIPIT_API std::string_view version();

}  // namespace pipit
