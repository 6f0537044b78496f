// How reductions over any dimensions go through memory: several results at a time, that lie side by side or whose rows
// do.
#pragma once

#include <array>
#include <vector>

#include "layers/common/strided_loop.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

/// The results of one task at most.
inline constexpr std::int64_t kReducedLanes = 32;

/// Up to kReducedLanes results: result k is made of x[k * column_step + offset + r * depth_step] for all offsets of
/// `outer` and r in [0, depth). Where `row`, there is one result and depth_step is 1.
struct Reduction {
  const StridedLoop<1>* outer;
  std::int64_t columns, column_step;
  std::int64_t depth, depth_step;
  bool row;
};

/// Prepared once for one geometry.
class ReductionLoops {
 public:
  /// `reduced[d]`: of the dimensions of x. y has the others, in its own memory order, and where `keep_dims` the reduced
  /// ones with extent 1.
  ReductionLoops(const TensorDesc& x, const TensorDesc& y, const std::array<bool, kMaxRank>& reduced,
                 bool keep_dims) {
    const Strides from = x.strides();
    const Strides to = y.strides();
    StridedLoop<2> all;  // operands: x, y; y stands still along reduced dimensions
    std::size_t out = 0;
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      const auto d = static_cast<std::size_t>(axis);
      all.add(x.shape[axis], {from[d], reduced[d] ? 0 : to[out]});
      if (!reduced[d] || keep_dims) ++out;
    }
    all.collapse();
    int depth = -1, columns = -1;
    for (int d = 0; d < all.rank(); ++d) (all.strides(d)[1] == 0 ? depth : columns) = d;
    if (depth >= 0) {
      depth_ = all.extent(depth);
      depth_step_ = all.strides(depth)[0];
    }
    // Long rows one by one; results that lie side by side, and short rows, together.
    row_ = columns < 0 || (depth == all.rank() - 1 && depth_ >= kLongRow);
    for (int d = 0; d < all.rank(); ++d) {
      const auto [x_step, y_step] = all.strides(d);
      if (y_step == 0) {
        if (d != depth) outer_.add(all.extent(d), {x_step});
      } else if (row_ || d != columns) {
        kept_.add(all.extent(d), {x_step, y_step});
      } else {
        columns_ = all.extent(d);
        column_step_ = x_step;
        result_step_ = y_step;
      }
    }
    reduced_ = outer_.size() * depth_;
  }

  /// Elements of one result.
  std::int64_t reduced() const { return reduced_; }

  /// Calls body(reduction, offset into x, offset into y, distance of results in y) for parts of the results, in any
  /// order, by many threads. The parts do not depend on the number of threads.
  template <typename Body>
  void for_each(ThreadPool& pool, const Body& body) const {
    const std::int64_t blocks = (columns_ + kReducedLanes - 1) / kReducedLanes;
    const std::int64_t each = std::max<std::int64_t>(1, reduced_ * std::min(columns_, kReducedLanes));
    const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / 4 / each);
    parallel_chunks(pool, kept_.size() * blocks, step, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end;) {
        const std::int64_t index = at / blocks;
        const std::int64_t last = std::min(end, (index + 1) * blocks);
        kept_.for_each_run(index, index + 1, [&](const auto& offsets, std::int64_t) {
          for (; at < last; ++at) {
            const std::int64_t first = (at - index * blocks) * kReducedLanes;
            const Reduction part{
                &outer_, std::min(kReducedLanes, columns_ - first), column_step_, depth_, depth_step_, row_};
            body(part, offsets[0] + first * column_step_, offsets[1] + first * result_step_, result_step_);
          }
        });
      }
    });
  }

 private:
  static constexpr std::int64_t kLongRow = 64;

  StridedLoop<2> kept_;
  StridedLoop<1> outer_;
  std::int64_t columns_ = 1, column_step_ = 0, result_step_ = 0;
  std::int64_t depth_ = 1, depth_step_ = 1;
  std::int64_t reduced_ = 1;
  bool row_ = false;
};

}  // namespace pipit::internal
