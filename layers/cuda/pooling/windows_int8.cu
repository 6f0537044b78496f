// Pooling of 8-bit integers: windows of every kind, and the global average, as QAveragePool specifies them.
#include <cooperative_groups.h>

#include <algorithm>

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/average.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/windows.cuh"
#include "layers/ops/qelementwise.h"

namespace pipit::internal {

namespace {

using namespace cuda;

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

// Channels of a thread: as many as both sides allow.
int channels_at_once(const ConstTensorView& x, const TensorView& y) {
  if (!is_channels_last(x.desc) || !is_channels_last(y.desc)) return 1;
  const auto all = reinterpret_cast<std::uintptr_t>(x.data) | reinterpret_cast<std::uintptr_t>(y.data) |
                   static_cast<std::uintptr_t>(x.desc.shape[1]);
  return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
}

template <PoolKind kKind>
void run_windows(const PoolAttributes& attributes, const IntegerOperand& operand, const AverageStore& average,
                 const ConstTensorView& x, const TensorView& y, const RunContext& context) {
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
  run_windows<PoolKind::max>(layer.attributes(), operand, {}, inputs[0], outputs[0], context);
}

void run_average(const QAveragePool& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const QAveragePoolAttributes& a = layer.attributes();
  run_windows<PoolKind::average>(a.pool, IntegerOperand(a.x), store_of(a, outputs[0].desc.dtype), inputs[0],
                                 outputs[0], context);
}

// ---- Global average over NHWC: four channels a thread, or sixteen, the positions shared by the threads of a block
// and, where there are many, by the blocks of a cluster. Whole numbers may be added in any order.

constexpr int kAverageThreads = 512;
constexpr int kMaxWords = 16;  // of a block
constexpr int kSixteen = 4;    // words that a thread reads at once where there are many positions
constexpr int kMaxSplits = 8;  // widest cluster that every GPU with clusters can launch

struct GlobalAverage {
  int all_words = 1;  // of a position
  int words = 1;      // of a block, a power of two
  int positions = 1;
  int splits = 1;  // blocks of a cluster, along x
  unsigned flip = 0;
  int zero_point = 0;
};

// Words: read at once by a thread; g.words is a multiple of it.
template <int Words>
__global__ void __launch_bounds__(kAverageThreads)
    global_average_integers(GlobalAverage g, AverageStore average, void* y, const unsigned* x) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  constexpr int kWarps = kAverageThreads / 32;
  __shared__ int partial[kWarps][kMaxWords * 4];
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = g.words / Words;
  const int column = thread & (columns - 1);
  const int word = static_cast<int>(blockIdx.y) * g.words + column * Words;
  const int rows = kAverageThreads / columns;
  const auto n = static_cast<std::int64_t>(blockIdx.z);
  int sum[Words * 4] = {};
  if (word < g.all_words) {
    struct alignas(Words * 4) Read {
      unsigned v[Words];
    };
    const unsigned* from = x + n * g.positions * g.all_words + word;
    const int step = rows * g.splits;
#pragma unroll 8
    for (int p = static_cast<int>(blockIdx.x) * rows + thread / columns; p < g.positions; p += step) {
      const Read read = *reinterpret_cast<const Read*>(from + static_cast<std::int64_t>(p) * g.all_words);
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
  const bool mine = thread < g.words * 4;
  int total = 0;
  if (mine) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += partial[warp][thread];
  }
#if __CUDA_ARCH__ >= 900
  if (g.splits > 1) {
    namespace cg = cooperative_groups;
    __shared__ int totals[kMaxWords * 4];
    const cg::cluster_group cluster = cg::this_cluster();
    if (mine) totals[thread] = total;
    cluster.sync();
    if (mine && blockIdx.x == 0) {
      for (int rank = 1; rank < g.splits; ++rank)
        total += cluster.map_shared_rank(totals, static_cast<unsigned>(rank))[thread];
    }
    cluster.sync();  // no block leaves while others still read its sums
  }
#endif
  const int channel = static_cast<int>(blockIdx.y) * g.words * 4 + thread;
  if (!mine || blockIdx.x != 0 || channel >= g.all_words * 4) return;
  average(y, n * g.all_words * 4 + channel, total - g.positions * g.zero_point, g.positions);
}

class GlobalAverageKernel final : public Kernel {
 public:
  explicit GlobalAverageKernel(const NodeSpec& spec)
      : store_(store_of(layer_as<QAveragePool>(spec.layer).attributes(), spec.outputs[0].dtype)) {
    const IntegerOperand operand(layer_as<QAveragePool>(spec.layer).attributes().x);
    const Shape& shape = spec.inputs[0]->shape;
    average_.all_words = static_cast<int>(shape[1] / 4);
    average_.positions = static_cast<int>(shape.elements() / (shape[0] * shape[1]));
    average_.flip = operand.flip;
    average_.zero_point = operand.zero_point;
    // Blocks of 64 bytes a position where they leave little idle, else of 32.
    while (average_.words < std::min(average_.all_words, kMaxWords / 2)) average_.words *= 2;
    if (average_.all_words % kMaxWords == 0 || average_.all_words > 4 * kMaxWords) average_.words = kMaxWords;
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&global_average_integers<1>), overlap_));
    int processors = 0;
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, spec.gpu));
    const std::int64_t blocks =
        shape[0] * blocks_for(average_.all_words, static_cast<unsigned>(average_.words));
    constexpr int kFewSteps = 8;  // loads in flight of a thread that reads words
    const std::int64_t steps = std::int64_t{average_.positions} * average_.words / kAverageThreads;
    const auto worth = [&](int splits) {
      return splits <= kMaxSplits && steps >= kFewSteps * splits && blocks * splits <= 4LL * processors;
    };
    // What overlaps was compiled for GPUs with clusters.
    while (overlap_ && worth(average_.splits * 2)) average_.splits *= 2;
    sixteen_ = average_.all_words % kSixteen == 0 && average_.words >= kSixteen &&
               steps >= 3 * kFewSteps * average_.splits;
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto splits = static_cast<unsigned>(average_.splits);
    LaunchShape shape{dim3(splits, blocks_for(average_.all_words, static_cast<unsigned>(average_.words)),
                           static_cast<unsigned>(inputs[0].desc.shape[0])),
                      dim3(kAverageThreads)};
    shape.overlap = overlap_;
    shape.cluster = dim3(splits);
    const bool sixteen = sixteen_ && reinterpret_cast<std::uintptr_t>(inputs[0].data) % 16 == 0;
    PIPIT_CUDA(launch_kernel(sixteen ? global_average_integers<kSixteen> : global_average_integers<1>, shape,
                             static_cast<cudaStream_t>(context.stream), average_, store_,
                             static_cast<void*>(outputs[0].data),
                             reinterpret_cast<const unsigned*>(inputs[0].data)));
  }

 private:
  GlobalAverage average_;
  AverageStore store_;
  bool sixteen_ = false;
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
  add_kernel<Pool>(registry, "integer_windows", refuse_max, run_max);
  registry.add(QAveragePool::kType, DeviceKind::cuda,
               {"global_average", refuse_global, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<GlobalAverageKernel>(spec));
                }});
  add_kernel<QAveragePool>(registry, "windows", refuse_average, run_average);
}

}  // namespace pipit::internal
