// What a sweep has written, read again to be compared.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/time_ratio.h"

namespace pipit::internal::detail {

/// The versions of what both sweeps write: it changes when something that is there changes its meaning or goes, or rows
/// get what others read.
inline constexpr int kConvSweepVersion = 3, kSparsitySweepVersion = 4;

/// One configuration.
struct SweptRow {
  std::string layer, how;    ///< "1x3x9x9:8x3x3"; "int8", "int8, tile", "fp32, k-panel, keep 0.5"
  TimedProcesses processes;  ///< of each process that ran it; none where it did not run
};

struct SweptRows {
  std::string sweep, device;  ///< "sweep conv"; the CPU or GPU
  int threads = 0;
  std::vector<SweptRow> rows;  ///< in the order in which they were measured, no configuration twice

  /// "sweep conv, 64 rows, 2 threads".
  std::string text() const;
};

/// Throws Error: the row of that key, key_of(), is there a second time.
[[noreturn]] void fail_repeated(const std::string& key);

/// The rows of --results, of --output FILE.csv, or of the JSON document of a sweep; nothing where the file begins like
/// none of these. Lines of --results, and documents, may follow each other, each of a process of its own. Throws
/// Error, beginning with the path, where it cannot be read, for what is no row of that sweep, rows that a process has
/// twice, and rows of several sweeps, machines, numbers of threads or versions of pipit.
std::optional<SweptRows> read_sweep(const std::string& path);

}  // namespace pipit::internal::detail
