// What this machine, this build and this environment give pipit to work with.
#pragma once

#include <string>
#include <vector>

namespace pipit::internal::apps {

/// One thing that was looked at.
struct Finding {
  std::string name;    ///< "instruction sets"
  std::string value;   ///< what is there, and what of it is used
  std::string advice;  ///< what to do about it; empty where nothing needs to be done
};

/// CPUs and what limits them, instruction sets, caches, memory, clock, load, image decoders, GPU with its libraries,
/// the tuning cache. Loads the GPU's libraries. Never throws for what the machine lacks: that is a finding.
std::vector<Finding> examine_machine();

/// The findings that times depend on: pipit, the system, CPUs, instruction sets, caches, memory, clock and load, and
/// with `gpu` the GPU and its libraries.
std::vector<Finding> measuring_environment(bool gpu);

}  // namespace pipit::internal::apps
