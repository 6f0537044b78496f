// Ceilings for people.
#pragma once

#include <string>

#include "engine/platform/ceilings.h"

namespace pipit::internal::apps {

/// Tables of arithmetic and memories, and what starting work takes. `width` as Table::str() takes it.
std::string ceilings_table(const Ceilings& ceilings, int width);

}  // namespace pipit::internal::apps
