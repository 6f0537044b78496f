// Layers that are copies from one strided index space into another: Reshape, ToLayout, Transpose, Concat, Split,
// Slice, DepthToSpace, Expand, Tile.
#include "layers/common/dispatch.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_parts.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using namespace cuda;
using CopyLoop = StridedLoop<2>;  // operand 0: the output, operand 1: the input

template <typename T>
__global__ void copy_kernel(DeviceLoop<2> loop, T* y, const T* x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  y[at[0]] = x[at[1]];
}

// f32 constants meet f16 activations in a Concat.
__global__ void convert_kernel(DeviceLoop<2> loop, Out y, std::int64_t y_start, In x, std::int64_t x_start) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  store<float>(y, y_start + at[0], load<float>(x, x_start + at[1]));
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of a tile that the threads of a block take at once

// Matrices whose rows the input and whose columns the output has in a row: through shared memory, so that both
// sides are read and written in whole segments. One more column keeps the banks apart.
struct Matrices {
  int rows, columns;              // input: rows x columns, columns adjacent; output: its transpose
  int row_stride, column_stride;  // of the input along rows, of the output along columns
  Divisor row_tiles, column_tiles;
  DeviceLoop<2> batch;
};

template <typename T>
__global__ void transpose_kernel(Matrices m, T* y, const T* x) {
  __shared__ T tile[kTile][kTile + 1];
  const unsigned rest = m.column_tiles.divide(blockIdx.x);
  const unsigned column_tile = blockIdx.x - rest * m.column_tiles.value;
  const unsigned batch = m.row_tiles.divide(rest);
  const int row = static_cast<int>(rest - batch * m.row_tiles.value) * kTile;
  const int column = static_cast<int>(column_tile) * kTile;
  int at[2];
  m.batch.offsets(batch, at);
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const int tx = static_cast<int>(threadIdx.x);
  const int ty = static_cast<int>(threadIdx.y);
  for (int r = ty; r < kTile; r += kTileRows) {
    if (row + r < m.rows && column + tx < m.columns) {
      tile[r][tx] = x[at[1] + (row + r) * m.row_stride + column + tx];
    }
  }
  __syncthreads();
  for (int c = ty; c < kTile; c += kTileRows) {
    if (row + tx < m.rows && column + c < m.columns) {
      y[at[0] + (column + c) * m.column_stride + row + tx] = tile[tx][c];
    }
  }
}

// The dimension along which the input is contiguous, if the innermost one (in the output's order) is not it and
// both are long enough to fill tiles; else -1.
int transposed_dimension(const CopyLoop& loop) {
  constexpr int kMinRow = 16;
  if (loop.rank() < 2 || loop.row_strides()[0] != 1 || loop.row_strides()[1] == 1) return -1;
  if (loop.row() < kMinRow || loop.row_strides()[1] <= 0) return -1;
  for (int d = 0; d + 1 < loop.rank(); ++d) {
    if (loop.strides(d)[1] == 1 && loop.extent(d) >= kMinRow) return d;
  }
  return -1;
}

template <typename T>
void transpose(const CopyLoop& loop, int dimension, std::byte* y, const std::byte* x,
               const RunContext& context) {
  CopyLoop batch;
  for (int d = 0; d + 1 < loop.rank(); ++d) {
    if (d != dimension) batch.add(loop.extent(d), loop.strides(d));
  }
  const auto rows = static_cast<int>(loop.row());
  const auto columns = static_cast<int>(loop.extent(dimension));
  const Divisor row_tiles(blocks_for(rows, kTile));
  const Divisor column_tiles(blocks_for(columns, kTile));
  const Matrices m{rows,
                   columns,
                   static_cast<int>(loop.row_strides()[1]),
                   static_cast<int>(loop.strides(dimension)[0]),
                   row_tiles,
                   column_tiles,
                   DeviceLoop<2>(batch)};
  const unsigned blocks = row_tiles.value * column_tiles.value * static_cast<unsigned>(batch.size());
  launch_waiting("transpose", transpose_kernel<T>, dim3(blocks), dim3(kTile, kTileRows), context, m,
                 reinterpret_cast<T*>(y), reinterpret_cast<const T*>(x));
}

// A point of the loop is `count` elements, adjacent in the output and `step` apart in the input: the planes of an
// image side by side. A warp reads whole segments of every plane.
template <typename T>
__global__ void interleave_kernel(DeviceLoop<2> loop, int count, int step, T* y, const T* x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  for (int c = 0; c < count; ++c) y[at[0] + c] = x[at[1] + c * step];
}

// True for a short innermost dimension of the output around which the input is contiguous.
bool interleaves(const CopyLoop& loop) {
  constexpr int kShort = 8;
  if (loop.rank() < 2 || loop.row() > kShort || loop.row_strides()[0] != 1 || loop.row_strides()[1] == 1) {
    return false;
  }
  return loop.strides(loop.rank() - 2)[1] == 1;
}

template <typename T>
void interleave(const CopyLoop& loop, std::byte* y, const std::byte* x, const RunContext& context) {
  CopyLoop points;
  for (int d = 0; d + 1 < loop.rank(); ++d) points.add(loop.extent(d), loop.strides(d));
  launch_waiting("interleave", interleave_kernel<T>, points.size(), context, DeviceLoop<2>(points),
                 static_cast<int>(loop.row()), static_cast<int>(loop.row_strides()[1]),
                 reinterpret_cast<T*>(y), reinterpret_cast<const T*>(x));
}

// The widest unit, up to 16 bytes, in which both sides can be moved.
std::size_t copy_unit(const CopyLoop& loop, std::size_t bytes, const std::byte* y, const std::byte* x) {
  if (loop.rank() == 0 || loop.row_strides() != CopyLoop::Offsets{1, 1}) return bytes;
  const auto divides = [&](std::size_t unit) {
    const auto fits = [&](std::int64_t elements) {
      return elements * static_cast<std::int64_t>(bytes) % static_cast<std::int64_t>(unit) == 0;
    };
    if (!fits(loop.row()) || reinterpret_cast<std::uintptr_t>(y) % unit != 0 ||
        reinterpret_cast<std::uintptr_t>(x) % unit != 0) {
      return false;
    }
    for (int d = 0; d + 1 < loop.rank(); ++d) {
      if (!fits(loop.strides(d)[0]) || !fits(loop.strides(d)[1])) return false;
    }
    return true;
  };
  std::size_t unit = 16;
  while (unit > bytes && !divides(unit)) unit /= 2;
  return unit;
}

// The same loop over units of `factor` elements.
CopyLoop in_units(const CopyLoop& loop, std::int64_t factor) {
  CopyLoop result;
  for (int d = 0; d < loop.rank(); ++d) {
    const auto [to, from] = loop.strides(d);
    if (d == loop.rank() - 1) {
      result.add(loop.extent(d) / factor, {1, 1});
    } else {
      result.add(loop.extent(d), {to / factor, from / factor});
    }
  }
  return result;
}

template <typename T>
void copy_as(const CopyLoop& loop, std::byte* y, const std::byte* x, const RunContext& context) {
  launch_waiting("copy", copy_kernel<T>, loop.size(), context, DeviceLoop<2>(loop), reinterpret_cast<T*>(y),
                 reinterpret_cast<const T*>(x));
}

// y[y_start + ...] = x[x_start + ...] over the loop; offsets in elements.
void copy(CopyLoop loop, const TensorView& y, std::int64_t y_start, const ConstTensorView& x,
          std::int64_t x_start, const RunContext& context) {
  if (loop.size() == 0) return;
  loop.collapse();
  if (x.desc.dtype != y.desc.dtype) {
    return launch_waiting("convert", convert_kernel, loop.size(), context, DeviceLoop<2>(loop), Out(y),
                          y_start, In(x), x_start);
  }
  const std::size_t bytes = dtype_bytes(x.desc.dtype);
  std::byte* to = y.data + y_start * static_cast<std::int64_t>(bytes);
  const std::byte* from = x.data + x_start * static_cast<std::int64_t>(bytes);
  const int dimension = transposed_dimension(loop);
  if (dimension >= 0 || interleaves(loop)) {
    return with_element_size(x.desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      if (dimension >= 0) {
        transpose<T>(loop, dimension, to, from, context);
      } else {
        interleave<T>(loop, to, from, context);
      }
    });
  }
  const std::size_t unit = copy_unit(loop, bytes, to, from);
  if (unit > bytes) loop = in_units(loop, static_cast<std::int64_t>(unit / bytes));
  switch (unit) {
    case 16:
      return copy_as<uint4>(loop, to, from, context);
    case 8:
      return copy_as<uint2>(loop, to, from, context);
    case 4:
      return copy_as<unsigned>(loop, to, from, context);
    case 2:
      return copy_as<unsigned short>(loop, to, from, context);
    default:
      copy_as<unsigned char>(loop, to, from, context);
  }
}

// The loop over `shape` with these strides.
CopyLoop loop_over(const Shape& shape, const Strides& to, const Strides& from) {
  CopyLoop loop;
  for (int d = 0; d < shape.rank(); ++d) {
    const auto u = static_cast<std::size_t>(d);
    loop.add(shape[d], {to[u], from[u]});
  }
  return loop;
}

using Inputs = std::span<const ConstTensorView>;
using Outputs = std::span<const TensorView>;

void run_reshape(const Reshape&, Inputs in, Outputs out, const RunContext& context) {
  CopyLoop loop;
  loop.add(in[0].desc.elements(), {1, 1});
  copy(loop, out[0], 0, in[0], 0, context);
}

void run_to_layout(const ToLayout&, Inputs in, Outputs out, const RunContext& context) {
  copy(loop_over(in[0].desc.shape, out[0].desc.strides(), in[0].desc.strides()), out[0], 0, in[0], 0,
       context);
}

void run_transpose(const Transpose& layer, Inputs in, Outputs out, const RunContext& context) {
  const auto& permutation = layer.attributes().permutation;
  const Strides own = in[0].desc.strides();
  Strides from{};
  for (std::size_t d = 0; d < permutation.size(); ++d)
    from[d] = own[static_cast<std::size_t>(permutation[d])];
  copy(loop_over(out[0].desc.shape, out[0].desc.strides(), from), out[0], 0, in[0], 0, context);
}

void run_concat(const Concat& layer, Inputs in, Outputs out, const RunContext& context) {
  const int axis = normalize_axis(layer.attributes().axis, out[0].desc.shape.rank(), "Concat");
  const Strides to = out[0].desc.strides();
  std::int64_t start = 0;
  for (const ConstTensorView& x : in) {
    copy(loop_over(x.desc.shape, to, x.desc.strides()), out[0], start * to[static_cast<std::size_t>(axis)], x,
         0, context);
    start += x.desc.shape[axis];
  }
}

void run_split(const Split& layer, Inputs in, Outputs out, const RunContext& context) {
  const int axis = normalize_axis(layer.attributes().axis, in[0].desc.shape.rank(), "Split");
  const Strides from = in[0].desc.strides();
  std::int64_t start = 0;
  for (const TensorView& y : out) {
    copy(loop_over(y.desc.shape, y.desc.strides(), from), y, 0, in[0],
         start * from[static_cast<std::size_t>(axis)], context);
    start += y.desc.shape[axis];
  }
}

void run_slice(const Slice& layer, Inputs in, Outputs out, const RunContext& context) {
  const Shape& shape = in[0].desc.shape;
  const ResolvedSlice slice = resolve_slice(layer.attributes(), shape);
  Strides from = in[0].desc.strides();
  std::int64_t start = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank()); ++d) {
    start += slice.start[d] * from[d];
    from[d] *= slice.step[d];
  }
  copy(loop_over(out[0].desc.shape, out[0].desc.strides(), from), out[0], 0, in[0], start, context);
}

// Both directions walk (n, c, h, row in block, w, column in block) of the wide tensor [N, C, H b, W b].
void run_depth_to_space(const DepthToSpace& layer, Inputs in, Outputs out, const RunContext& context) {
  const DepthToSpaceAttributes& a = layer.attributes();
  const std::int64_t b = a.block;
  const Shape& shape = a.inverse ? in[0].desc.shape : out[0].desc.shape;
  const Strides wide = a.inverse ? in[0].desc.strides() : out[0].desc.strides();
  const Strides deep = a.inverse ? out[0].desc.strides() : in[0].desc.strides();
  // Deep channels count (row, column, channel) in mode DCR, (channel, row, column) in CRD.
  const std::int64_t column = deep[1] * (a.column_row_depth ? 1 : shape[1]);
  CopyLoop loop;
  const auto add = [&](std::int64_t extent, std::int64_t wide_stride, std::int64_t deep_stride) {
    if (a.inverse) std::swap(wide_stride, deep_stride);
    loop.add(extent, {wide_stride, deep_stride});
  };
  add(shape[0], wide[0], deep[0]);
  add(shape[1], wide[1], deep[1] * (a.column_row_depth ? b * b : 1));
  add(shape[2] / b, wide[2] * b, deep[2]);
  add(b, wide[2], column * b);
  add(shape[3] / b, wide[3] * b, deep[3]);
  add(b, wide[3], column);
  copy(loop, out[0], 0, in[0], 0, context);
}

void run_expand(const Expand&, Inputs in, Outputs out, const RunContext& context) {
  const Shape& shape = out[0].desc.shape;
  copy(loop_over(shape, out[0].desc.strides(), broadcast_strides(in[0].desc, shape)), out[0], 0, in[0], 0,
       context);
}

void run_tile(const Tile& layer, Inputs in, Outputs out, const RunContext& context) {
  const Shape& shape = in[0].desc.shape;
  const Strides to = out[0].desc.strides();
  const Strides from = in[0].desc.strides();
  CopyLoop loop;
  for (int d = 0; d < shape.rank(); ++d) {
    const auto u = static_cast<std::size_t>(d);
    loop.add(layer.attributes().repeats[u], {to[u] * shape[d], 0});
    loop.add(shape[d], {to[u], from[u]});
  }
  copy(loop, out[0], 0, in[0], 0, context);
}

// Timed by itself this one may look as fast, but what "rows" fuses would be layers of their own.
Refusal refuse_concat(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (!refuse_unless_joins_rows(spec)) return "\"rows\" takes inputs that are rows of the output";
  return std::nullopt;
}

Refusal refuse_reshape(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  return refuse_unless_row_major(spec);
}

}  // namespace

void register_cuda_movement(Registry& registry) {
  constexpr const char* kName = "strided_copy";
  add_kernel<Reshape>(registry, kName, refuse_reshape, run_reshape);
  add_kernel<ToLayout>(registry, kName, refuse_unless_indexable, run_to_layout);
  add_kernel<Transpose>(registry, kName, refuse_unless_indexable, run_transpose);
  add_kernel<Concat>(registry, kName, refuse_concat, run_concat);
  add_kernel<Split>(registry, kName, refuse_unless_indexable, run_split);
  add_kernel<Slice>(registry, kName, refuse_unless_indexable, run_slice);
  add_kernel<DepthToSpace>(registry, kName, refuse_unless_indexable, run_depth_to_space);
  add_kernel<Expand>(registry, kName, refuse_unless_indexable, run_expand);
  add_kernel<Tile>(registry, kName, refuse_unless_indexable, run_tile);
}

}  // namespace pipit::internal
