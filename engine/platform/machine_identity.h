// What measured times depend on besides the version of pipit.
#pragma once

#include <string>

#include "pipit/types.h"

namespace pipit::internal {

/// On a CPU its name, the threads, the instruction set that is used (PIPIT_ISA has a say) and the caches: CPUs of
/// several generations share a name where machines are virtual. Of a GPU gpu_description(). Times are kept and compared
/// under this text. Throws Error when there is no such GPU.
std::string machine_identity(DeviceKind device, int gpu, int threads);

}  // namespace pipit::internal
