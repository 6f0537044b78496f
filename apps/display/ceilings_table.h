// Ceilings for people.
#pragma once

#include <string>

#include "pipit/machine.h"

namespace pipit::internal::apps {

/// Tables of arithmetic and memories, and what starting work takes. `width` as Table::str() takes it.
std::string ceilings_table(const tools::MachineCeilings& ceilings, int width);

}  // namespace pipit::internal::apps
