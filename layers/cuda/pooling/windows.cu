// Pooling: windows, vectorized along NHWC channels or strided, and the global average in two deterministic steps.
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/average.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/windows.cuh"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"

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
constexpr int kColumns = 8;        // threads along the channels: 64 of them a block
constexpr int kRows = 32;          // threads along the positions
constexpr int kChunk = 8 * kRows;  // positions of a block

struct GlobalAverage {
  int channels, positions, chunks;
  Divisor column_blocks, chunk_count;
};

// Where averages go.
struct AverageStore {
  void* y;
  AverageResult result;
  __device__ void operator()(std::int64_t at, float v) const { store_average(result, y, at, v); }
};

__global__ void global_average_kernel(GlobalAverage g, float factor, AverageStore y, In x) {
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

__global__ void add_chunks_kernel(unsigned size, Divisor channels, int chunks, float factor, AverageStore y,
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

class GlobalAverageKernel final : public Kernel {
 public:
  explicit GlobalAverageKernel(const NodeSpec& spec)
      : batch_(spec.inputs[0]->shape[0]),
        channels_(spec.inputs[0]->shape[1]),
        positions_(spec.inputs[0]->elements() / (batch_ * channels_)),
        result_(spec.outputs[0].dtype, spec.fusion.followers.empty()
                                           ? nullptr
                                           : &layer_as<Quantize>(spec.fusion.followers[0]->layer).y()) {
    chunks_ = (positions_ + kChunk - 1) / kChunk;
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&global_average_kernel), overlap_));
  }
  std::size_t scratch_bytes() const override {
    return chunks_ == 1 ? 0 : static_cast<std::size_t>(batch_ * chunks_ * channels_) * sizeof(float);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const unsigned column_blocks = blocks_for(channels_, kColumns * kVector);
    const GlobalAverage g{static_cast<int>(channels_), static_cast<int>(positions_),
                          static_cast<int>(chunks_), Divisor(column_blocks),
                          Divisor(static_cast<unsigned>(chunks_))};
    const float factor = 1 / static_cast<float>(positions_);
    const AverageStore last{outputs[0].data, result_};
    const AverageStore first = chunks_ > 1 ? AverageStore{context.scratch, {}} : last;
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
                      return std::unique_ptr<Kernel>(std::make_unique<GlobalAverageKernel>(spec));
                    }};
  average.estimate = streaming(refuse_global_average);
  average.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return spec.fusion.followers.empty() && next.layer.type() == Quantize::kType;
  };
  registry.add(Pool::kType, DeviceKind::cuda, std::move(average));
  add_kernel<Pool>(registry, "windows", refuse_windows, run_windows);
}

}  // namespace pipit::internal
