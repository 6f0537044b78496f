#include "models/embedded.h"

// PIPIT_RESNET20_PATH is set by models/CMakeLists.txt.
asm(".section .rodata\n"
    ".balign 64\n"
    ".local pipit_resnet20_begin\n"
    ".local pipit_resnet20_end\n"
    "pipit_resnet20_begin:\n"
    ".incbin \"" PIPIT_RESNET20_PATH
    "\"\n"
    "pipit_resnet20_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
extern const std::byte pipit_resnet20_begin[] __attribute__((visibility("hidden")));
extern const std::byte pipit_resnet20_end[] __attribute__((visibility("hidden")));
}

namespace pipit {

std::span<const std::byte> resnet20_cifar10_onnx() {
  return {pipit_resnet20_begin, pipit_resnet20_end};
}

}  // namespace pipit
