// Errors that say which file or model they are about.
#pragma once

#include <string>

#include "engine/error.h"

namespace pipit {

/// What `act` returns; errors that it throws begin with `name`, the file or model they are about, and keep their kind.
template <typename Act>
auto naming(const std::string& name, Act act) {
  try {
    return act();
  } catch (const UnsupportedError& e) {
    throw UnsupportedError(name + ": " + e.what());
  } catch (const Error& e) {
    throw Error(name + ": " + e.what());
  }
}

}  // namespace pipit
