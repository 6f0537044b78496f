// Pooling: windows, vectorised along NHWC channels or strided, and the global average in two deterministic steps.
#include "layers/pool.h"

#include "layers/cuda/async_ptx.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/kernel.cuh"
#include "layers/cuda/overlap.cuh"

namespace pipit {

namespace {

using namespace cuda;

struct PoolAxis {
  int kernel, stride, dilation, pad_begin, pad_end;
  int extent;  // of the input
  int x_step;  // of the input, in elements
  Divider y_extent;
  int y_step;
};

struct PoolGeometry {
  bool include_pad;
  float p;
  unsigned size;                               // points: output elements / V
  Divider channels;                            // / V
  int x_batch, x_channel, y_batch, y_channel;  // strides; the channels' are V where V > 1
  bool channels_inner;                         // order of the points: channels fastest, or spatial positions
  PoolAxis axis[3];
};

struct Taps {
  int first, begin, end;  // position of tap 0; taps [begin, end) lie inside [0, extent)
};

__device__ Taps taps_of(const PoolAxis& a, int start, int extent) {
  const int below = start >= 0 ? 0 : (-start + a.dilation - 1) / a.dilation;
  const int room = extent - start;
  const int above = room <= 0 ? 0 : (room + a.dilation - 1) / a.dilation;
  const int begin = min(below, a.kernel);
  return {start, begin, max(begin, min(above, a.kernel))};
}

// V neighbouring channels a thread. Offsets fit 31 bits (refuse_unless_indexable).
template <PoolKind kKind, int V>
__global__ void pool_kernel(PoolGeometry g, Out y, In x) {
  unsigned i = thread_index();
  if (i >= g.size) return;
  const auto take = [&](const Divider& extent) {
    const unsigned rest = extent.divide(i);
    const int index = static_cast<int>(i - rest * extent.divisor);
    i = rest;
    return index;
  };
  int c = 0;
  int position[3];
  if (g.channels_inner) c = take(g.channels);
  for (int d = 2; d >= 0; --d) position[d] = take(g.axis[d].y_extent);
  if (!g.channels_inner) c = take(g.channels);
  const int n = static_cast<int>(i);

  Taps taps[3];
  int divisor = 1;
  int to = n * g.y_batch + c * g.y_channel;
  for (int d = 0; d < 3; ++d) {
    const PoolAxis& a = g.axis[d];
    const int start = position[d] * a.stride - a.pad_begin;
    taps[d] = taps_of(a, start, a.extent);
    const Taps counted =
        g.include_pad ? taps_of(a, position[d] * a.stride, a.extent + a.pad_begin + a.pad_end) : taps[d];
    divisor *= counted.end - counted.begin;
    to += position[d] * a.y_step;
  }
  float result[V];
#pragma unroll
  for (int v = 0; v < V; ++v) result[v] = kKind == PoolKind::max ? -INFINITY : 0.0F;
  const int plane = n * g.x_batch + c * g.x_channel;
  const int w_step = g.axis[2].dilation * g.axis[2].x_step;
  for (int d = taps[0].begin; d < taps[0].end; ++d) {
    for (int h = taps[1].begin; h < taps[1].end; ++h) {
      const int row = plane + (taps[0].first + d * g.axis[0].dilation) * g.axis[0].x_step +
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
      result[v] = divisor == 0 ? 0 : result[v] / static_cast<float>(divisor);
    } else if constexpr (kKind == PoolKind::lp) {
      result[v] = g.p == 2 ? sqrtf(result[v]) : powf(result[v], 1 / g.p);
    }
  }
  if constexpr (V == 1) {
    store<float>(y, to, result[0]);
  } else {
    store_vector<V>(y, to, result);
  }
}

// Spatial strides and extents as rank 3, the missing dimensions in front.
PoolGeometry geometry(const PoolAttributes& attributes, const TensorDesc& x, const TensorDesc& y, int width) {
  const Window window = as_3d(pool_window(attributes, x.shape));
  const Strides from = x.strides();
  const Strides to = y.strides();
  PoolGeometry g{attributes.count_include_pad,
                 static_cast<float>(attributes.p),
                 static_cast<unsigned>(y.elements() / width),
                 Divider(static_cast<unsigned>(x.shape[1] / width)),
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
    axis.y_extent = Divider(static_cast<unsigned>(y.shape[d]));
    axis.y_step = static_cast<int>(to[static_cast<std::size_t>(d)]);
  }
  return g;
}

// Channels that a thread may take at once: 16 bytes of the narrower operand, all NHWC.
int vector_width(const ConstTensorView& x, const TensorView& y) {
  if (!is_channels_last(x.desc) || !is_channels_last(y.desc)) return 1;
  const int width = x.desc.dtype == DType::f16 || y.desc.dtype == DType::f16 ? 8 : 4;
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
  const PoolGeometry g = geometry(layer.attributes(), inputs[0].desc, y.desc, width);
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
  launch("pool", kernel, g.size, context, g, Out(y), In(inputs[0]));
}

// ---- Global average over NHWC: blocks add up pieces of the positions, eight channels a thread; a second kernel adds
// the pieces where there are several.

constexpr int kVector = 8;
constexpr int kColumns = 8;        // threads along the channels: 64 of them a block
constexpr int kRows = 32;          // threads along the positions
constexpr int kPiece = 8 * kRows;  // positions of a block

struct GlobalAverage {
  int channels, positions, pieces;
  Divider column_blocks, piece_count;
};

__global__ void global_average_kernel(GlobalAverage g, float factor, Out y, In x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  __shared__ float shared[kRows][kColumns * kVector + 1];
  const unsigned rest = g.column_blocks.divide(blockIdx.x);
  const unsigned column_block = blockIdx.x - rest * g.column_blocks.divisor;
  const unsigned n = g.piece_count.divide(rest);
  const int piece = static_cast<int>(rest - n * g.piece_count.divisor);
  const int block_channel = static_cast<int>(column_block) * kColumns * kVector;
  const int c = block_channel + static_cast<int>(threadIdx.x) * kVector;
  float sum[kVector] = {};
  if (c < g.channels) {
    const int end = min((piece + 1) * kPiece, g.positions);
    for (int p = piece * kPiece + static_cast<int>(threadIdx.y); p < end; p += kRows) {
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
  store<float>(y, (static_cast<std::int64_t>(n) * g.pieces + piece) * g.channels + block_channel + column,
               total * factor);
}

__global__ void add_pieces_kernel(unsigned size, Divider channels, int pieces, float factor, Out y,
                                  const float* partial) {
  const unsigned i = thread_index();
  if (i >= size) return;
  const unsigned n = channels.divide(i);
  const float* from =
      partial + static_cast<std::int64_t>(n) * pieces * channels.divisor + (i - n * channels.divisor);
  float sum = 0;
  for (int p = 0; p < pieces; ++p) sum += from[static_cast<std::int64_t>(p) * channels.divisor];
  store<float>(y, i, sum * factor);
}

class GlobalAverageKernel final : public Kernel {
 public:
  explicit GlobalAverageKernel(const TensorDesc& x)
      : batch_(x.shape[0]), channels_(x.shape[1]), positions_(x.elements() / (batch_ * channels_)) {
    pieces_ = (positions_ + kPiece - 1) / kPiece;
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&global_average_kernel), overlap_));
  }
  std::size_t scratch_bytes() const override {
    return pieces_ == 1 ? 0 : static_cast<std::size_t>(batch_ * pieces_ * channels_) * sizeof(float);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const unsigned column_blocks = blocks_for(channels_, kColumns * kVector);
    const GlobalAverage g{static_cast<int>(channels_), static_cast<int>(positions_),
                          static_cast<int>(pieces_), Divider(column_blocks),
                          Divider(static_cast<unsigned>(pieces_))};
    const float factor = 1 / static_cast<float>(positions_);
    Out target(outputs[0]);
    if (pieces_ > 1) target.data = context.scratch, target.type = DType::f32;
    const unsigned blocks = column_blocks * static_cast<unsigned>(batch_ * pieces_);
    PIPIT_CUDA(launch_overlapping(global_average_kernel, dim3(blocks), dim3(kColumns, kRows), overlap_,
                                  static_cast<cudaStream_t>(context.stream), g, pieces_ == 1 ? factor : 1.0F,
                                  target, In(inputs[0])));
    if (pieces_ == 1) return;
    const std::int64_t size = batch_ * channels_;
    launch("global average, pieces", add_pieces_kernel, size, context, static_cast<unsigned>(size),
           Divider(static_cast<unsigned>(channels_)), static_cast<int>(pieces_), factor, Out(outputs[0]),
           reinterpret_cast<const float*>(context.scratch));
  }

 private:
  std::int64_t batch_, channels_, positions_, pieces_ = 1;
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
  const Window window = as_3d(pool_window(layer_as<Pool>(spec.layer).attributes(), spec.inputs[0]->shape));
  for (std::size_t a = 0; a < 3; ++a) {
    // Positions in and beyond the padding are computed in 32 bits.
    constexpr std::int64_t kLimit = std::int64_t{1} << 30;
    const std::int64_t reach = window.pad_begin[a] + window.pad_end[a] + window.span(static_cast<int>(a));
    if (reach > kLimit / 2 || window.stride[a] > kLimit / 2) return "the window is too large";
  }
  return std::nullopt;
}

}  // namespace

void register_cuda_pool(Registry& registry) {
  registry.add(Pool::kType, DeviceKind::cuda,
               {"global_average", refuse_global_average, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<GlobalAverageKernel>(*spec.inputs[0]));
                }});
  add_kernel<Pool>(registry, "windows", refuse_windows, run_windows);
}

}  // namespace pipit
