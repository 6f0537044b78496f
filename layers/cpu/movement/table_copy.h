// Copies of elements that tables name, dimension by dimension: padding, gathering, repeating, cutting, nearest pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/platform/thread_pool.h"
#include "layers/common/scalar.h"
#include "layers/cpu/movement/picked_row.h"

namespace pipit::internal {

/// target[i0, i1, ...] = source[t0[i0] + t1[i1] + ...], or the fill value where one of the tables has none, for
/// elements of 1, 2, 4 or 8 bytes. Prepared once, then run without allocating.
class TableCopy {
 public:
  /// No element of the source: the fill value.
  static constexpr std::int64_t kFill = -1;
  struct Dim {
    std::int64_t step = 0;              ///< of the target, in elements
    std::vector<std::int64_t> sources;  ///< offsets in elements, or kFill
  };

  /// The steps are those of a dense target, in any order of dimensions.
  TableCopy(std::vector<Dim> dims, DType type, double fill = 0);

  /// Target and source must not overlap.
  void run(std::byte* target, const std::byte* source, ThreadPool& pool) const;

 private:
  // Neighbours of a row of the target.
  struct Run {
    std::int64_t begin = 0;  // in the row
    std::int64_t count = 0;
    std::int64_t source = 0;  // from where the row begins, or kFill
    bool repeats = false;     // one element of the source
  };

  void merge_rows(std::int64_t least_bytes);
  void find_runs();
  bool runs_are_below(std::int64_t bytes) const;
  void pick_elements();
  template <std::size_t Bytes>
  void copy_row(std::byte* target, const std::byte* source) const;
  template <std::size_t Bytes>
  void copy_rows(std::byte* target, const std::byte* source, std::int64_t begin, std::int64_t end) const;

  DType type_;
  alignas(8) std::array<std::byte, 8> fill_;  ///< read as an element
  std::vector<Dim> outer_;                    // outermost first
  std::vector<std::int64_t> row_;             // sources of a row's elements, or kFill
  std::vector<Run> runs_;
  PickedRow picked_;  // the row again, where its runs are short
  std::int64_t rows_ = 1;
  std::int64_t row_elements_ = 1;
};

}  // namespace pipit::internal
