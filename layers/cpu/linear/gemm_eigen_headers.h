// Every standard header that Eigen includes, so that the files which then raise the target instruction set
// compile no inline function of the standard library for it: such a function is merged by the linker with the
// copies of all other files and would run on CPUs that lack the instructions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "layers/cpu/linear/gemm_isa.h"
