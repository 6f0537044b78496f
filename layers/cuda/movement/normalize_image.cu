// NormalizeImage: bytes of pixels to floats, by tables in shared memory.
#include "layers/ops/normalize_image.h"

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

constexpr int kRun = 4;  // neighbouring pixels of a thread, where they lie together in y

struct Images {
  const std::uint8_t* x;  // [N, H, W, C]
  const float* table;     // [C][256]
  float* y;
  Divisor width, height;  // of an image in runs, and in rows
  unsigned runs;          // of all images
  int channels;
  bool reverse;
  int sample, row, pixel, channel;  // strides of y in elements
};

// Channels: runs of kRun pixels of that many channels; 0: single pixels of any number.
template <int Channels>
__global__ void normalize_image(const Images p) {
  __shared__ float table[NormalizeImage::kMaxChannels * 256];
  for (int i = static_cast<int>(threadIdx.x); i < p.channels * 256; i += kThreads) table[i] = p.table[i];
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const auto row_of_table = [&](int source) { return p.reverse ? p.channels - 1 - source : source; };
  for (unsigned i = thread_index(); i < p.runs; i += gridDim.x * kThreads) {
    const unsigned row = p.width.divide(i), image = p.height.divide(row);
    const auto run = static_cast<int>(i - row * p.width.value);
    const auto h = static_cast<int>(row - image * p.height.value);
    float* to = p.y + static_cast<std::int64_t>(image) * p.sample + h * p.row;
    if constexpr (Channels == 0) {
      const std::uint8_t* from = p.x + static_cast<std::int64_t>(i) * p.channels;
      to += run * p.pixel;
      for (int c = 0; c < p.channels; ++c) {
        const int of = row_of_table(c);
        to[of * p.channel] = table[of * 256 + from[c]];
      }
    } else {
      // A run of four pixels is as many words as a pixel has channels.
      const auto* from =
          reinterpret_cast<const std::uint32_t*>(p.x) + static_cast<std::int64_t>(i) * Channels;
      std::uint32_t word[Channels];
#pragma unroll
      for (int k = 0; k < Channels; ++k) word[k] = from[k];
      to += run * kRun;
#pragma unroll
      for (int c = 0; c < Channels; ++c) {
        const int of = row_of_table(c);
        float four[kRun];
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          const int at = k * Channels + c;
          four[k] = table[of * 256 + static_cast<int>(word[at / 4] >> at % 4 * 8 & 0xFFU)];
        }
        *reinterpret_cast<float4*>(to + of * p.channel) = make_float4(four[0], four[1], four[2], four[3]);
      }
    }
  }
}

Refusal refuse_normalize_image(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (spec.constant(1) == nullptr) return "the table must be a constant";
  if (!is_row_major(*spec.inputs[0])) return "the image must be row_major";
  if (spec.outputs[0].dtype != DType::f32) return "the output must be f32";
  return std::nullopt;
}

class ImageTable final : public Kernel {
 public:
  explicit ImageTable(const NodeSpec& spec) : layer_(layer_as<NormalizeImage>(spec.layer)) {
    const auto table = spec.constant(1)->values<float>();
    table_ = DeviceBuffer(table.data(), table.size_bytes());
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&normalize_image<0>), overlap_));
  }
  bool reads_constant(std::size_t /*index*/) const override { return false; }
  std::size_t packed_bytes() const override { return table_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Shape& x = inputs[0].desc.shape;
    if (x.elements() == 0) return;
    const ImageStrides to(layer_.attributes(), outputs[0].desc);
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    // Rows follow each other in x, so that runs begin on 4 bytes where rows are made of whole runs.
    const bool wide = (x[3] == 1 || x[3] == 3) && x[2] % kRun == 0 && to.pixel == 1 && to.row % kRun == 0 &&
                      to.channel % kRun == 0 && to.sample % kRun == 0 &&
                      reinterpret_cast<std::uintptr_t>(inputs[0].data) % 4 == 0 &&
                      reinterpret_cast<std::uintptr_t>(outputs[0].data) % 16 == 0;
    const std::int64_t width = wide ? x[2] / kRun : x[2];
    Images p{};
    p.x = inputs[0].as<std::uint8_t>(), p.y = outputs[0].as<float>(), p.table = table_.as<const float>();
    p.width = Divisor(static_cast<unsigned>(width)), p.height = Divisor(static_cast<unsigned>(x[1]));
    p.runs = static_cast<unsigned>(x[0] * x[1] * width);
    p.channels = narrow(x[3]), p.reverse = layer_.attributes().reverse_channels;
    p.sample = narrow(to.sample), p.row = narrow(to.row), p.pixel = narrow(to.pixel);
    p.channel = narrow(to.channel);
    // Blocks fill their tables once: with a few runs for each thread that costs little.
    constexpr unsigned kRunsOfThread = 4;
    const auto grid = dim3(blocks_for(p.runs, kThreads * kRunsOfThread));
    auto* const kernel = !wide ? normalize_image<0> : x[3] == 1 ? normalize_image<1> : normalize_image<3>;
    PIPIT_CUDA(launch_kernel(kernel, {grid, dim3(kThreads), 0, overlap_},
                             static_cast<cudaStream_t>(context.stream), p));
  }

 private:
  NormalizeImage layer_;
  DeviceBuffer table_;
  bool overlap_ = false;
};

}  // namespace

void register_cuda_normalize_image(Registry& registry) {
  Candidate table{"table", refuse_normalize_image, [](const NodeSpec& spec) {
                    return std::unique_ptr<Kernel>(std::make_unique<ImageTable>(spec));
                  }};
  table.estimate = cuda::streaming(refuse_normalize_image);
  registry.add(NormalizeImage::kType, DeviceKind::cuda, std::move(table));
}

}  // namespace pipit::internal
