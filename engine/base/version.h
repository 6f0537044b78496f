// Which pipit this is.
#pragma once

#include <string_view>

namespace pipit {

/// "0.1.0": major, minor and patch, as the build's project() says.
std::string_view version();

}  // namespace pipit
