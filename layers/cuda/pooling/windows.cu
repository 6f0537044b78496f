// Pooling: windows, vectorized along NHWC channels or strided, and the global average in two deterministic steps.
#include <cooperative_groups.h>

#include <algorithm>

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/pool_estimate.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"

namespace pipit::internal::cuda {

struct PoolAxis {
  int kernel, stride, dilation, pad_begin, pad_end;
  int extent;  // of the input
  int x_step;  // of the input, in elements
  Divisor y_extent;
  int y_step;
};

struct PoolGeometry {
  bool include_pad;
  float p;
  unsigned size;                               // points: output elements / V
  Divisor channels;                            // / V
  int x_batch, x_channel, y_batch, y_channel;  // strides; the channels' are V where V > 1
  bool channels_inner;                         // order of the points: channels fastest, or spatial positions
  PoolAxis axis[3];
};

struct Taps {
  int first, begin, end;  // position of tap 0; taps [begin, end) lie inside [0, extent)
};

__device__ inline Taps taps_of(const PoolAxis& a, int start, int extent) {
  // Dilated pools are rare, and divisions take longer than the rest.
  const auto steps = [&](int room) {
    return room <= 0 ? 0 : a.dilation == 1 ? room : (room + a.dilation - 1) / a.dilation;
  };
  const int below = steps(-start);
  const int above = steps(extent - start);
  const int begin = min(below, a.kernel);
  return {start, begin, max(begin, min(above, a.kernel))};
}

/// One thread's output: its taps, what an average divides by, and offsets in elements.
struct PoolPoint {
  Taps taps[3];
  int divisor = 1;
  int plane, to;  // of x at spatial position 0; of y
  int planes;     // before this one: of the images before, and of the channels before, V at once

  __device__ PoolPoint(const PoolGeometry& g, unsigned i) {
    const auto take = [&](const Divisor& extent) {
      const unsigned rest = extent.divide(i);
      const int index = static_cast<int>(i - rest * extent.value);
      i = rest;
      return index;
    };
    int c = 0;
    int position[3];
    if (g.channels_inner) c = take(g.channels);
    for (int d = 2; d >= 0; --d) position[d] = take(g.axis[d].y_extent);
    if (!g.channels_inner) c = take(g.channels);
    const int n = static_cast<int>(i);
    planes = n * static_cast<int>(g.channels.value) + c;
    to = n * g.y_batch + c * g.y_channel;
    plane = n * g.x_batch + c * g.x_channel;
    for (int d = 0; d < 3; ++d) {
      const PoolAxis& a = g.axis[d];
      const int start = position[d] * a.stride - a.pad_begin;
      taps[d] = taps_of(a, start, a.extent);
      const Taps counted =
          g.include_pad ? taps_of(a, position[d] * a.stride, a.extent + a.pad_begin + a.pad_end) : taps[d];
      divisor *= counted.end - counted.begin;
      to += position[d] * a.y_step;
    }
  }
};

/// Spatial strides and extents as rank 3, the missing dimensions first. width: channels of a thread.
inline PoolGeometry pool_geometry(const PoolAttributes& attributes, const TensorDesc& x, const TensorDesc& y,
                                  int width) {
  const Window window = as_3d(pool_window(attributes, x.shape));
  const Strides from = x.strides();
  const Strides to = y.strides();
  PoolGeometry g{attributes.count_include_pad,
                 static_cast<float>(attributes.p),
                 static_cast<unsigned>(y.elements() / width),
                 Divisor(static_cast<unsigned>(x.shape[1] / width)),
                 static_cast<int>(from[0]),
                 static_cast<int>(from[1]) * width,
                 static_cast<int>(to[0]),
                 static_cast<int>(to[1]) * width,
                 is_channels_last(y),
                 {}};
  for (std::size_t a = 0; a < 3; ++a) {
    PoolAxis& axis = g.axis[a];
    axis.kernel = static_cast<int>(window.kernel[a]);
    axis.stride = static_cast<int>(window.stride[a]);
    axis.dilation = static_cast<int>(window.dilation[a]);
    axis.pad_begin = static_cast<int>(window.pad_begin[a]);
    axis.pad_end = static_cast<int>(window.pad_end[a]);
    axis.extent = 1;
    const int d = x.shape.rank() - 3 + static_cast<int>(a);
    if (d < 2) continue;
    axis.extent = static_cast<int>(x.shape[d]);
    axis.x_step = static_cast<int>(from[static_cast<std::size_t>(d)]);
    axis.y_extent = Divisor(static_cast<unsigned>(y.shape[d]));
    axis.y_step = static_cast<int>(to[static_cast<std::size_t>(d)]);
  }
  return g;
}

/// Refuses windows whose positions do not fit 32 bits.
inline Refusal refuse_wide_pool(const PoolAttributes& attributes, const Shape& input) {
  const Window window = as_3d(pool_window(attributes, input));
  for (std::size_t a = 0; a < 3; ++a) {
    // Positions in and beyond the padding are computed in 32 bits.
    constexpr std::int64_t kLimit = std::int64_t{1} << 30;
    const std::int64_t reach = window.pad_begin[a] + window.pad_end[a] + window.span(static_cast<int>(a));
    if (reach > kLimit / 2 || window.stride[a] > kLimit / 2) return "the window is too large";
  }
  return std::nullopt;
}

}  // namespace pipit::internal::cuda

namespace pipit::internal {

namespace {

using namespace cuda;

// V neighbouring channels a thread. Offsets fit 31 bits (refuse_unless_indexable).
template <PoolKind kKind, int V>
__global__ void pool_kernel(PoolGeometry g, Out y, In x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= g.size) return;
  const PoolPoint point(g, i);
  const Taps(&taps)[3] = point.taps;
  float result[V];
#pragma unroll
  for (int v = 0; v < V; ++v) result[v] = kKind == PoolKind::max ? -INFINITY : 0.0F;
  const int w_step = g.axis[2].dilation * g.axis[2].x_step;
  for (int d = taps[0].begin; d < taps[0].end; ++d) {
    for (int h = taps[1].begin; h < taps[1].end; ++h) {
      const int row = point.plane + (taps[0].first + d * g.axis[0].dilation) * g.axis[0].x_step +
                      (taps[1].first + h * g.axis[1].dilation) * g.axis[1].x_step +
                      taps[2].first * g.axis[2].x_step;
#pragma unroll 3
      for (int w = taps[2].begin; w < taps[2].end; ++w) {
        float value[V];
        if constexpr (V == 1) {
          value[0] = load<float>(x, row + w * w_step);
        } else {
          load_vector<V>(x, row + w * w_step, value);
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if constexpr (kKind == PoolKind::max) {
            // NaN stays: no number is larger.
            if (!(value[v] <= result[v]) && result[v] == result[v]) result[v] = value[v];
          } else if constexpr (kKind == PoolKind::average) {
            result[v] += value[v];
          } else {
            result[v] += g.p == 2 ? value[v] * value[v] : powf(fabsf(value[v]), g.p);
          }
        }
      }
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if constexpr (kKind == PoolKind::average) {
      result[v] = point.divisor == 0 ? 0 : result[v] / static_cast<float>(point.divisor);
    } else if constexpr (kKind == PoolKind::lp) {
      result[v] = g.p == 2 ? sqrtf(result[v]) : powf(result[v], 1 / g.p);
    }
  }
  if constexpr (V == 1) {
    store<float>(y, point.to, result[0]);
  } else {
    store_vector<V>(y, point.to, result);
  }
}

// Maxima and where they are. W: float, or std::int64_t for bytes, of which `lowest` is the least.
template <typename W>
__global__ void pool_positions_kernel(PoolGeometry g, PoolGeometry of_positions, W lowest, bool column_major,
                                      Out y, std::int64_t* positions, In x) {
  const unsigned i = thread_index();
  if (i >= g.size) return;
  const PoolPoint point(g, i);
  const Taps(&taps)[3] = point.taps;
  W best = lowest;
  std::int64_t position = -1;
  const std::int64_t extent[3] = {g.axis[0].extent, g.axis[1].extent, g.axis[2].extent};
  for (int d = taps[0].begin; d < taps[0].end; ++d) {
    for (int h = taps[1].begin; h < taps[1].end; ++h) {
      for (int w = taps[2].begin; w < taps[2].end; ++w) {
        const int at[3] = {taps[0].first + d * g.axis[0].dilation, taps[1].first + h * g.axis[1].dilation,
                           taps[2].first + w * g.axis[2].dilation};
        const W value = load<W>(
            x, point.plane + at[0] * g.axis[0].x_step + at[1] * g.axis[1].x_step + at[2] * g.axis[2].x_step);
        // The first NaN wins, and of equal ones the first.
        if (position >= 0 && (best != best || value <= best)) continue;
        best = value;
        position = column_major ? (at[2] * extent[1] + at[1]) * extent[0] + at[0]
                                : (at[0] * extent[1] + at[1]) * extent[2] + at[2];
      }
    }
  }
  store<W>(y, point.to, best);
  positions[PoolPoint(of_positions, i).to] =
      position < 0 ? -1 : point.planes * (extent[0] * extent[1] * extent[2]) + position;
}

void run_positions(const Pool& layer, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs, const RunContext& context) {
  const TensorView& y = outputs[0];
  if (y.desc.elements() == 0) return;
  const PoolGeometry g = pool_geometry(layer.attributes(), inputs[0].desc, y.desc, 1);
  PoolGeometry of_positions = pool_geometry(layer.attributes(), inputs[0].desc, outputs[1].desc, 1);
  of_positions.channels_inner = g.channels_inner;  // the same points
  const auto run = [&]<typename W>(W lowest) {
    launch("pool with positions", pool_positions_kernel<W>, g.size, context, g, of_positions, lowest,
           layer.attributes().column_major_indices, Out(y), outputs[1].as<std::int64_t>(), In(inputs[0]));
  };
  const DType type = y.desc.dtype;
  if (is_float_or_half(type)) return run(-std::numeric_limits<float>::infinity());
  run(std::int64_t{type == DType::i8 ? -128 : 0});
}

Refusal refuse_positions(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  if (!a.indices) return "only maxima with their positions";
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const DType x = spec.inputs[0]->dtype, y = spec.outputs[0].dtype;
  const bool bytes = (x == DType::i8 || x == DType::u8) && x == y;
  if (!bytes && !(is_float_or_half(x) && is_float_or_half(y)))
    return "only f32, f16, bf16, i8 and u8 are handled";
  return refuse_wide_pool(a, spec.inputs[0]->shape);
}

// Channels that a thread may take at once: 16 bytes of the narrower operand, all NHWC.
int vector_width(const ConstTensorView& x, const TensorView& y) {
  if (!is_channels_last(x.desc) || !is_channels_last(y.desc)) return 1;
  const int width = is_stored_float(x.desc.dtype) || is_stored_float(y.desc.dtype) ? 8 : 4;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(y.data) % 16 == 0;
  return aligned && x.desc.shape[1] % width == 0 ? width : 1;
}

template <PoolKind kKind>
auto kernel_of(int width) {
  return width == 8 ? pool_kernel<kKind, 8> : width == 4 ? pool_kernel<kKind, 4> : pool_kernel<kKind, 1>;
}

void run_windows(const Pool& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const TensorView& y = outputs[0];
  if (y.desc.elements() == 0) return;
  const int width = vector_width(inputs[0], y);
  const PoolGeometry g = pool_geometry(layer.attributes(), inputs[0].desc, y.desc, width);
  const auto kernel = [&] {
    switch (layer.attributes().kind) {
      case PoolKind::max:
        return kernel_of<PoolKind::max>(width);
      case PoolKind::average:
        return kernel_of<PoolKind::average>(width);
      default:
        return kernel_of<PoolKind::lp>(width);
    }
  }();
  launch_waiting("pool", kernel, g.size, context, g, Out(y), In(inputs[0]));
}

// ---- Global average over NHWC: blocks add up chunks of the positions, eight channels a thread; a second kernel adds
// the chunks where there are several.

constexpr int kVector = 8;
constexpr int kColumns = 8;  // threads along the channels: 64 of them a block
constexpr int kRows = ChunkedAverage::kRows;
constexpr int kChunk = ChunkedAverage::kChunk;

struct ChunkedAverageArgs {
  int channels, positions, chunks;
  Divisor column_blocks, chunk_count;
};

// Where averages go.
struct AverageTarget {
  void* y;
  AverageResult result;
  __device__ void operator()(std::int64_t at, float v) const { store_average(result, y, at, v); }
};

__global__ void global_average_kernel(ChunkedAverageArgs g, float factor, AverageTarget y, In x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  __shared__ float shared[kRows][kColumns * kVector + 1];
  const unsigned rest = g.column_blocks.divide(blockIdx.x);
  const unsigned column_block = blockIdx.x - rest * g.column_blocks.value;
  const unsigned n = g.chunk_count.divide(rest);
  const int chunk = static_cast<int>(rest - n * g.chunk_count.value);
  const int block_channel = static_cast<int>(column_block) * kColumns * kVector;
  const int c = block_channel + static_cast<int>(threadIdx.x) * kVector;
  float sum[kVector] = {};
  if (c < g.channels) {
    const int end = min((chunk + 1) * kChunk, g.positions);
    for (int p = chunk * kChunk + static_cast<int>(threadIdx.y); p < end; p += kRows) {
      float value[kVector];
      load_vector<kVector>(x, (static_cast<std::int64_t>(n) * g.positions + p) * g.channels + c, value);
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] += value[v];
    }
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) shared[threadIdx.y][threadIdx.x * kVector + v] = sum[v];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.y * kColumns + threadIdx.x);
  if (column >= kColumns * kVector || block_channel + column >= g.channels) return;
  float total = 0;
  for (int r = 0; r < kRows; ++r) total += shared[r][column];
  y((static_cast<std::int64_t>(n) * g.chunks + chunk) * g.channels + block_channel + column, total * factor);
}

__global__ void add_chunks_kernel(unsigned size, Divisor channels, int chunks, float factor, AverageTarget y,
                                  const float* partial) {
  const unsigned i = thread_index();
  if (i >= size) return;
  const unsigned n = channels.divide(i);
  const float* from =
      partial + static_cast<std::int64_t>(n) * chunks * channels.value + (i - n * channels.value);
  float sum = 0;
  for (int p = 0; p < chunks; ++p) sum += from[static_cast<std::int64_t>(p) * channels.value];
  y(i, sum * factor);
}

class ChunkedAverageKernel final : public Kernel {
 public:
  explicit ChunkedAverageKernel(const NodeSpec& spec)
      : batch_(spec.inputs[0]->shape[0]),
        channels_(spec.inputs[0]->shape[1]),
        positions_(spec.inputs[0]->elements() / (batch_ * channels_)),
        result_(spec.outputs[0].dtype, spec.fusion.followers.empty()
                                           ? nullptr
                                           : &layer_as<Quantize>(spec.fusion.followers[0]->layer).y()) {
    chunks_ = ChunkedAverage::chunks(positions_);
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&global_average_kernel), overlap_));
  }
  std::size_t scratch_bytes() const override {
    return chunks_ == 1 ? 0 : static_cast<std::size_t>(batch_ * chunks_ * channels_) * sizeof(float);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const unsigned column_blocks = blocks_for(channels_, kColumns * kVector);
    const ChunkedAverageArgs g{static_cast<int>(channels_), static_cast<int>(positions_),
                               static_cast<int>(chunks_), Divisor(column_blocks),
                               Divisor(static_cast<unsigned>(chunks_))};
    const float factor = 1 / static_cast<float>(positions_);
    const AverageTarget last{outputs[0].data, result_};
    const AverageTarget first = chunks_ > 1 ? AverageTarget{context.scratch, {}} : last;
    const unsigned blocks = column_blocks * static_cast<unsigned>(batch_ * chunks_);
    PIPIT_CUDA(launch_kernel(global_average_kernel, {dim3(blocks), dim3(kColumns, kRows), 0, overlap_},
                             static_cast<cudaStream_t>(context.stream), g, chunks_ == 1 ? factor : 1.0F,
                             first, In(inputs[0])));
    if (chunks_ == 1) return;
    const std::int64_t size = batch_ * channels_;
    launch("global average, chunks", add_chunks_kernel, size, context, static_cast<unsigned>(size),
           Divisor(static_cast<unsigned>(channels_)), static_cast<int>(chunks_), factor, last,
           reinterpret_cast<const float*>(context.scratch));
  }

 private:
  std::int64_t batch_, channels_, positions_, chunks_ = 1;
  AverageResult result_;
  bool overlap_ = false;
};

Refusal refuse_global_average(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_float_or_half(spec)) return reason;
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  if (!a.global || a.kind != PoolKind::average) return "only global average pooling";
  if (!is_channels_last(x)) return "the input must be channels_last";
  if (x.elements() == 0 || x.shape[1] % kVector != 0) return "channels must be a multiple of 8";
  return std::nullopt;
}

Refusal refuse_windows(const NodeSpec& spec) {
  if (layer_as<Pool>(spec.layer).attributes().indices) return "the positions of the maxima are not computed";
  if (Refusal reason = refuse_unless_float_or_half(spec)) return reason;
  return refuse_wide_pool(layer_as<Pool>(spec.layer).attributes(), spec.inputs[0]->shape);
}

}  // namespace

void register_cuda_pool(Registry& registry) {
  Candidate average{"global_average", refuse_global_average, [](const NodeSpec& spec) {
                      return std::unique_ptr<Kernel>(std::make_unique<ChunkedAverageKernel>(spec));
                    }};
  average.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_global_average(spec)) return std::nullopt;
    return global_average_estimate(spec);
  };
  average.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return spec.fusion.followers.empty() && next.layer.type() == Quantize::kType;
  };
  registry.add(Pool::kType, DeviceKind::cuda, std::move(average));
  add_kernel<Pool>(registry, "windows", refuse_windows, run_windows, [](const NodeSpec& spec) {
    return windows_estimate(spec, layer_as<Pool>(spec.layer).attributes());
  });
  add_kernel<Pool>(registry, "positions", refuse_positions, run_positions);
}

// Pooling of 8-bit integers: windows of every kind, and the global average, as QAveragePool specifies them.

namespace {

// V neighbouring channels a thread, 1, 4 or 8. Offsets fit 31 bits (refuse_unless_indexable).
template <PoolKind kKind, int V>
__global__ void pool_integers(PoolGeometry g, IntegerOperand operand, AverageStore average, void* y,
                              const std::uint8_t* x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= g.size) return;
  const PoolPoint point(g, i);
  const Taps(&taps)[3] = point.taps;
  struct alignas(V) Unit {
    std::uint8_t v[V];
  };
  int result[V];
#pragma unroll
  for (int v = 0; v < V; ++v) result[v] = kKind == PoolKind::max ? -128 : 0;
  const int w_step = g.axis[2].dilation * g.axis[2].x_step;
  int count = 0;
  for (int d = taps[0].begin; d < taps[0].end; ++d) {
    for (int h = taps[1].begin; h < taps[1].end; ++h) {
      const int row = point.plane + (taps[0].first + d * g.axis[0].dilation) * g.axis[0].x_step +
                      (taps[1].first + h * g.axis[1].dilation) * g.axis[1].x_step +
                      taps[2].first * g.axis[2].x_step;
#pragma unroll 3
      for (int w = taps[2].begin; w < taps[2].end; ++w, ++count) {
        const Unit unit = *reinterpret_cast<const Unit*>(x + row + w * w_step);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const int value = static_cast<std::int8_t>(unit.v[v] ^ (operand.flip & 0xFFU));
          result[v] = kKind == PoolKind::max ? max(result[v], value) : result[v] + value;
        }
      }
    }
  }
  if constexpr (kKind == PoolKind::max) {
    Unit unit;
#pragma unroll
    for (int v = 0; v < V; ++v)
      unit.v[v] = static_cast<std::uint8_t>(static_cast<unsigned>(result[v]) ^ (operand.flip & 0xFFU));
    *reinterpret_cast<Unit*>(static_cast<std::uint8_t*>(y) + point.to) = unit;
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) result[v] -= count * operand.zero_point;
    average(y, point.to, result, point.divisor);
  }
}

// Channels of a thread: the largest number that both sides allow.
int channels_at_once(const ConstTensorView& x, const TensorView& y) {
  if (!is_channels_last(x.desc) || !is_channels_last(y.desc)) return 1;
  const auto all = reinterpret_cast<std::uintptr_t>(x.data) | reinterpret_cast<std::uintptr_t>(y.data) |
                   static_cast<std::uintptr_t>(x.desc.shape[1]);
  return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
}

template <PoolKind kKind>
void run_integer_windows(const PoolAttributes& attributes, const IntegerOperand& operand,
                         const AverageStore& average, const ConstTensorView& x, const TensorView& y,
                         const RunContext& context) {
  if (y.desc.elements() == 0) return;
  const int width = channels_at_once(x, y);
  const PoolGeometry g = pool_geometry(attributes, x.desc, y.desc, width);
  const auto kernel = width == 8   ? pool_integers<kKind, 8>
                      : width == 4 ? pool_integers<kKind, 4>
                                   : pool_integers<kKind, 1>;
  launch_waiting("pool integers", kernel, g.size, context, g, operand, average, static_cast<void*>(y.data),
                 reinterpret_cast<const std::uint8_t*>(x.data));
}

void run_max(const Pool& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  const IntegerOperand operand(Quantization{1, 0, inputs[0].desc.dtype});
  run_integer_windows<PoolKind::max>(layer.attributes(), operand, {}, inputs[0], outputs[0], context);
}

void run_average(const QAveragePool& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const QAveragePoolAttributes& a = layer.attributes();
  run_integer_windows<PoolKind::average>(a.pool, IntegerOperand(a.x), store_of(a, outputs[0].desc.dtype),
                                         inputs[0], outputs[0], context);
}

// ---- Global average over NHWC. Whole numbers may be added in any order.

constexpr int kAverageThreads = IntegerAverage::kThreads;
constexpr int kMaxWords = IntegerAverage::kMaxWords;
constexpr int kSixteen = IntegerAverage::kSixteen;

struct GlobalAverage {
  IntegerAverage plan;
  unsigned flip = 0;
  int zero_point = 0;
};

// Words: read at once by a thread; the block's words are a multiple of it.
template <int Words>
__global__ void __launch_bounds__(kAverageThreads)
    global_average_integers(GlobalAverage g, AverageStore average, void* y, const unsigned* x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  constexpr int kWarps = kAverageThreads / 32;
  __shared__ int partial[kWarps][kMaxWords * 4];
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = g.plan.words / Words;
  const int column = thread & (columns - 1);
  const int word = static_cast<int>(blockIdx.y) * g.plan.words + column * Words;
  const int rows = kAverageThreads / columns;
  const auto n = static_cast<std::int64_t>(blockIdx.z);
  int sum[Words * 4] = {};
  if (word < g.plan.all_words) {
    struct alignas(Words * 4) Read {
      unsigned v[Words];
    };
    const unsigned* from = x + n * g.plan.positions * g.plan.all_words + word;
    const int step = rows * g.plan.splits;
#pragma unroll 8
    for (int p = static_cast<int>(blockIdx.x) * rows + thread / columns; p < g.plan.positions; p += step) {
      const Read read =
          *reinterpret_cast<const Read*>(from + static_cast<std::int64_t>(p) * g.plan.all_words);
#pragma unroll
      for (int v = 0; v < Words * 4; ++v)
        sum[v] = __dp4a(static_cast<int>(read.v[v / 4] ^ g.flip), 1 << v % 4 * 8, sum[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < Words * 4; ++v) {
    for (int lanes = columns; lanes < 32; lanes *= 2) sum[v] += __shfl_xor_sync(~0U, sum[v], lanes);
    if (thread % 32 < columns) partial[thread / 32][column * Words * 4 + v] = sum[v];
  }
  __syncthreads();
  const bool mine = thread < g.plan.words * 4;
  int total = 0;
  if (mine) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += partial[warp][thread];
  }
#if __CUDA_ARCH__ >= 900
  if (g.plan.splits > 1) {
    namespace cg = cooperative_groups;
    __shared__ int totals[kMaxWords * 4];
    const cg::cluster_group cluster = cg::this_cluster();
    if (mine) totals[thread] = total;
    cluster.sync();
    if (mine && blockIdx.x == 0) {
      for (int rank = 1; rank < g.plan.splits; ++rank)
        total += cluster.map_shared_rank(totals, static_cast<unsigned>(rank))[thread];
    }
    cluster.sync();  // no block leaves while others still read its sums
  }
#endif
  const int channel = static_cast<int>(blockIdx.y) * g.plan.words * 4 + thread;
  if (!mine || blockIdx.x != 0 || channel >= g.plan.all_words * 4) return;
  average(y, n * g.plan.all_words * 4 + channel, total - g.plan.positions * g.zero_point, g.plan.positions);
}

class GlobalAverageKernel final : public Kernel {
 public:
  explicit GlobalAverageKernel(const NodeSpec& spec)
      : store_(store_of(layer_as<QAveragePool>(spec.layer).attributes(), spec.outputs[0].dtype)) {
    const IntegerOperand operand(layer_as<QAveragePool>(spec.layer).attributes().x);
    average_.flip = operand.flip;
    average_.zero_point = operand.zero_point;
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&global_average_integers<1>), overlap_));
    // What overlaps was compiled for GPUs with clusters.
    average_.plan = IntegerAverage(spec.inputs[0]->shape, processors_of(spec.gpu), overlap_);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const IntegerAverage& plan = average_.plan;
    const auto splits = static_cast<unsigned>(plan.splits);
    LaunchShape shape{dim3(splits, blocks_for(plan.all_words, static_cast<unsigned>(plan.words)),
                           static_cast<unsigned>(inputs[0].desc.shape[0])),
                      dim3(kAverageThreads)};
    shape.overlap = overlap_;
    shape.cluster = dim3(splits);
    const bool sixteen = plan.reads_sixteen() && reinterpret_cast<std::uintptr_t>(inputs[0].data) % 16 == 0;
    PIPIT_CUDA(launch_kernel(sixteen ? global_average_integers<kSixteen> : global_average_integers<1>, shape,
                             static_cast<cudaStream_t>(context.stream), average_, store_,
                             static_cast<void*>(outputs[0].data),
                             reinterpret_cast<const unsigned*>(inputs[0].data)));
  }

 private:
  GlobalAverage average_;
  AverageStore store_;
  bool overlap_ = false;
};

Refusal refuse_global(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (!layer_as<QAveragePool>(spec.layer).attributes().pool.global) return "only global average pooling";
  if (!is_channels_last(x)) return "the input must be channels_last";
  if (x.elements() == 0 || x.shape[1] % 4 != 0) return "channels must be a multiple of 4";
  if (x.shape[0] > 65535) return "more than 65535 images";
  if (x.shape[1] > (1 << 20)) return "more than 2^20 channels";
  return std::nullopt;
}

Refusal refuse_average(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  return refuse_wide_pool(layer_as<QAveragePool>(spec.layer).attributes().pool, spec.inputs[0]->shape);
}

Refusal refuse_max(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  const DType type = spec.inputs[0]->dtype;
  if (a.kind != PoolKind::max || (type != DType::i8 && type != DType::u8)) return "only maxima of i8 and u8";
  if (a.indices) return "the positions of the maxima are not computed";
  return refuse_wide_pool(a, spec.inputs[0]->shape);
}

}  // namespace

void register_cuda_qpool(Registry& registry) {
  add_kernel<Pool>(registry, "integer_windows", refuse_max, run_max, [](const NodeSpec& spec) {
    return windows_estimate(spec, layer_as<Pool>(spec.layer).attributes());
  });
  Candidate average{"global_average", refuse_global, [](const NodeSpec& spec) {
                      return std::unique_ptr<Kernel>(std::make_unique<GlobalAverageKernel>(spec));
                    }};
  average.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_global(spec)) return std::nullopt;
    return global_average_estimate(spec);
  };
  registry.add(QAveragePool::kType, DeviceKind::cuda, std::move(average));
  add_kernel<QAveragePool>(registry, "windows", refuse_average, run_average, [](const NodeSpec& spec) {
    return windows_estimate(spec, layer_as<QAveragePool>(spec.layer).attributes().pool);
  });
}

}  // namespace pipit::internal
