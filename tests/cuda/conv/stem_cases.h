// What the tests of both kernels for few channels run.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>

namespace pipit::internal::test {

/// All tiles that the kernels have: rows x outputs.
inline const std::set<std::string> kStemTiles = {"4x8",  "8x8",  "4x16", "8x16",
                                                 "4x32", "8x32", "4x64", "8x64"};

struct StemSize {
  std::int64_t batch, channels, size, outputs, kernel, stride;
};

/// Large windows and strides, and in the last more tiles than a GPU holds blocks. `widest`: of a window over 32
/// channels, whose weights take as many bytes as their type has.
inline std::array<StemSize, 9> stem_sizes(std::int64_t widest) {
  return {{{1, 1, 40, 3, 11, 1},
           {2, 1, 33, 16, 9, 2},
           {1, 2, 50, 8, 7, 3},
           {1, 8, 35, 32, 11, 2},
           {2, 16, 33, 64, 5, 2},
           {1, 32, 33, 32, 3, 2},
           {1, 32, 40, 16, widest, 1},
           {1, 24, 21, 40, 3, 4},
           {9, 8, 130, 8, 3, 1}}};
}

}  // namespace pipit::internal::test
