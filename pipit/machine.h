/// @file
/// What a machine gives pipit to work with.
#pragma once

#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// One thing that was looked at.
struct Finding {
  std::string name;    ///< "instruction sets"
  std::string value;   ///< what is there, and what of it is used
  std::string advice;  ///< what to do about it; empty where nothing needs to be done
};

/// What was found of this machine, this build and this environment.
struct MachineFacts {
  std::vector<Finding> findings;  ///< in the order in which `pipit doctor` shows them
  std::string json;               ///< all of it, as `pipit doctor --json` writes it (docs/json.md)
};

/// CPUs and what limits them, instruction sets, caches, memory, clock, load, image decoders, GPU with its libraries,
/// the tuning cache, ceilings. Nothing is measured. Loads the GPU's libraries. What the machine lacks is a finding, not
/// an error. May be called from any thread.
PIPIT_API MachineFacts examine_machine();

}  // namespace pipit::tools
