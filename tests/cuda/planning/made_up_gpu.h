// A GPU that planning can ask about and that runs nothing.
#pragma once

namespace pipit::internal::test {

struct MadeUpGpu {
  int processors = 132;  ///< an H100's
  int major = 9;         ///< of its compute capability
};

/// What is said of GPU 0 from now on.
void make_up(const MadeUpGpu& gpu);

}  // namespace pipit::internal::test
