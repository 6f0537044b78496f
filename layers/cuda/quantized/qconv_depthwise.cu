// INT8 depthwise convolution. A thread computes four neighbouring channels of some neighbouring columns and slides down
// the rows: of every column and channel it keeps the last four rows as the bytes of one register, so that one product
// of four bytes meets four rows of taps, and every byte of x is moved into place once.
#include <algorithm>

#include "layers/cuda/conv/int8_math.cuh"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/overlap.cuh"
#include "layers/cuda/quantized/qconv_depthwise_launch.h"
#include "layers/cuda/quantized/quantized.cuh"

namespace pipit::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kQuad = 4;  // channels of a thread
constexpr int kTable = 256;

// The column's last three rows and, as the newest, byte c of a pixel's word.
__device__ __forceinline__ unsigned pushed(unsigned column, unsigned pixel, int c) {
  return __byte_perm(column, pixel, 0x4321U + (static_cast<unsigned>(c) << 12));
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

// Four neighbouring channels from their sums to y, as layers/ops/quantization.h specifies it.
struct FinishQuad {
  const QDepthwiseArgs& a;
  const std::uint8_t* table;  // in shared memory
  float multiplier[kQuad];

  template <bool Small>
  __device__ __forceinline__ void write(const int (&sum)[kQuad], std::int64_t at) const {
    float v[kQuad];
#pragma unroll
    for (int c = 0; c < kQuad; ++c)
      v[c] = __fmul_rn(Small ? small_to_float(sum[c]) : __int2float_rn(sum[c]), multiplier[c]);
    if (a.stored == StoredType::i8 || a.stored == StoredType::u8) {
      std::uint32_t bits[kQuad];
#pragma unroll
      for (int c = 0; c < kQuad; ++c) bits[c] = requantize_bits(v[c], a.low, a.high);
      std::uint32_t bytes = low_bytes(bits);
      if (a.y_zero_points != 0) bytes = __vadd4(bytes, a.y_zero_points);
      if (a.table != nullptr) {
#pragma unroll
        for (int c = 0; c < kQuad; ++c) bits[c] = table[bytes >> c * 8 & 0xFFU];
        bytes = low_bytes(bits);
      }
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(a.y) + at) = bytes;
      return;
    }
    const QuantizedStore store{a.stored, 0, a.low, a.high};
    if (a.stored == StoredType::f16) {
      Four<__half> halves;
#pragma unroll
      for (int c = 0; c < kQuad; ++c) halves.v[c] = __float2half_rn(store.real(v[c]));
      *reinterpret_cast<Four<__half>*>(static_cast<__half*>(a.y) + at) = halves;
    } else {
      Four<float> floats;
#pragma unroll
      for (int c = 0; c < kQuad; ++c) floats.v[c] = store.real(v[c]);
      *reinterpret_cast<Four<float>*>(static_cast<float*>(a.y) + at) = floats;
    }
  }
};

// Where a thread's results begin.
struct Place {
  int quad, column, row, image;
  __device__ __forceinline__ Place(const QDepthwiseArgs& a, int columns) {
    unsigned rest = blockIdx.x * kThreads + threadIdx.x;
    const auto take = [&](int extent) {
      const unsigned above = rest / static_cast<unsigned>(extent);
      const auto position = static_cast<int>(rest - above * static_cast<unsigned>(extent));
      rest = above;
      return position;
    };
    quad = take(a.channels / kQuad);
    column = take((a.out_w + columns - 1) / columns) * columns;
    row = take((a.out_h + a.rows - 1) / a.rows) * a.rows;
    image = static_cast<int>(rest);
  }
};

template <int Window, int Stride, int Columns>
__global__ void __launch_bounds__(kThreads, 4) depthwise_quads(const __grid_constant__ QDepthwiseArgs a) {
  constexpr int kIn = (Columns - 1) * Stride + Window;  // columns of x
  constexpr bool kFifth = Window == 5;                  // a row of taps that the registers have no room for
  __shared__ std::uint32_t table[kTable / 4];
  if (a.table != nullptr && threadIdx.x < kTable / 4)
    table[threadIdx.x] = reinterpret_cast<const std::uint32_t*>(a.table)[threadIdx.x];
  __syncthreads();
  ptx::release_next_kernel();
  const Place place(a, Columns);
  if (place.image >= a.batch) return;

  const int channel = place.quad * kQuad;
  Four<int> first = *reinterpret_cast<const Four<int>*>(a.bias + channel);
  // The bits of a small sum are then a float.
#pragma unroll
  for (int c = 0; c < kQuad; ++c) first.v[c] += a.small_sums ? kMagicBits : 0;
  const auto multipliers = *reinterpret_cast<const Four<float>*>(a.multipliers + channel);
  const FinishQuad finish{a,
                          reinterpret_cast<const std::uint8_t*>(table),
                          {multipliers.v[0], multipliers.v[1], multipliers.v[2], multipliers.v[3]}};
  Four<int> weights[Window], fifth[kFifth ? Window : 1];
#pragma unroll
  for (int j = 0; j < Window; ++j) {
    weights[j] = *reinterpret_cast<const Four<int>*>(a.weights + j * a.channels + channel);
    if constexpr (kFifth)
      fifth[j] = *reinterpret_cast<const Four<int>*>(a.weights + (Window + j) * a.channels + channel);
  }
  ptx::wait_for_previous_kernel();

  const int left = place.column * Stride - a.pad_w;
  unsigned inside = 0;  // a bit for every column of x
#pragma unroll
  for (int j = 0; j < kIn; ++j)
    inside |= static_cast<unsigned>(left + j) < static_cast<unsigned>(a.in_w) ? 1U << j : 0U;
  const int pitch = a.in_w * a.channels;
  const std::uint8_t* x = static_cast<const std::uint8_t*>(a.x) +
                          place.image * (static_cast<std::int64_t>(a.in_h) * pitch) +
                          left * static_cast<std::int64_t>(a.channels) + channel;
  const auto load_row = [&](unsigned(&to)[kIn], int h) {
    const unsigned valid = static_cast<unsigned>(h) < static_cast<unsigned>(a.in_h) ? inside : 0U;
    const std::uint8_t* row = x + h * static_cast<std::int64_t>(pitch);
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
      to[j] = a.padding;
      if (valid >> j & 1U) to[j] = *reinterpret_cast<const unsigned*>(row + j * a.channels);
      to[j] ^= a.flip;
    }
  };
  unsigned columns[kIn][kQuad] = {};
  const auto push = [&](const unsigned(&pixels)[kIn]) {
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) columns[j][c] = pushed(columns[j][c], pixels[j], c);
    }
  };

  int h = place.row * Stride - a.pad_h;
  unsigned pixels[Stride][kIn];
  unsigned above[Window - Stride][kIn];
#pragma unroll
  for (int r = 0; r < Window - Stride; ++r) load_row(above[r], h + r);
#pragma unroll
  for (int s = 0; s < Stride; ++s) load_row(pixels[s], h + Window - Stride + s);
#pragma unroll
  for (int r = 0; r < Window - Stride; ++r) push(above[r]);
  h += Window;

  const int end = min(place.row + a.rows, a.out_h);
  std::int64_t at =
      ((static_cast<std::int64_t>(place.image) * a.out_h + place.row) * a.out_w + place.column) * a.channels +
      channel;
  for (int row = place.row; row < end; ++row) {
    // The next rows of x are under way while these are multiplied.
    unsigned next[Stride][kIn];
#pragma unroll
    for (int s = 0; s < Stride; ++s) load_row(next[s], row + 1 < end ? h + s : -1);
    h += Stride;
#pragma unroll
    for (int s = 0; s < Stride - (kFifth ? 1 : 0); ++s) push(pixels[s]);
    int sums[Columns][kQuad];
#pragma unroll
    for (int t = 0; t < Columns; ++t) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        sums[t][c] = first.v[c];
#pragma unroll
        for (int j = 0; j < Window; ++j) {
          sums[t][c] = __dp4a(static_cast<int>(columns[t * Stride + j][c]), weights[j].v[c], sums[t][c]);
          if constexpr (kFifth)
            sums[t][c] =
                __dp4a(static_cast<int>(pixels[Stride - 1][t * Stride + j]), fifth[j].v[c], sums[t][c]);
        }
      }
    }
    if constexpr (kFifth) push(pixels[Stride - 1]);
    const auto write = [&]<bool Small>() {
#pragma unroll
      for (int t = 0; t < Columns; ++t) {
        if (place.column + t < a.out_w)
          finish.template write<Small>(sums[t], at + t * static_cast<std::int64_t>(a.channels));
      }
    };
    if (a.small_sums) {
      write.template operator()<true>();
    } else {
      write.template operator()<false>();
    }
    at += static_cast<std::int64_t>(a.out_w) * a.channels;
#pragma unroll
    for (int s = 0; s < Stride; ++s) {
#pragma unroll
      for (int j = 0; j < kIn; ++j) pixels[s][j] = next[s][j];
    }
  }
}

struct Instance {
  int window, stride, columns;
  void (*kernel)(QDepthwiseArgs);
};

template <int Window, int Stride, int Columns>
constexpr Instance instance() {
  return {Window, Stride, Columns, &depthwise_quads<Window, Stride, Columns>};
}

const Instance* find_instance(const QDepthwiseArgs& a) {
  static constexpr Instance kInstances[] = {instance<3, 1, 4>(), instance<3, 2, 2>(), instance<5, 1, 2>(),
                                            instance<5, 2, 2>()};
  for (const Instance& i : kInstances) {
    if (i.window == a.window && i.stride == a.stride) return &i;
  }
  return nullptr;
}

std::int64_t blocks_for(const QDepthwiseArgs& a, int columns, int rows) {
  const auto parts = [](std::int64_t n, std::int64_t d) { return (n + d - 1) / d; };
  return parts(a.batch * parts(a.out_h, rows) * parts(a.out_w, columns) * (a.channels / kQuad), kThreads);
}

}  // namespace

cudaError_t prepare_qconv_depthwise(QDepthwiseArgs& args, bool& overlap) {
  const Instance* instance = find_instance(args);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const auto* function = reinterpret_cast<const void*>(instance->kernel);
  int gpu = 0;
  int processors = 0;
  int resident = 0;
  cudaError_t status = cudaGetDevice(&gpu);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, kThreads, 0);
  if (status == cudaSuccess) status = can_overlap(function, overlap);
  if (status != cudaSuccess) return status;
  // Long threads read fewer rows twice, short ones are enough to occupy the GPU. The cost of a thread is counted in
  // rows: those it reads, those it writes, and its start.
  constexpr int kStart = 2;
  double best = 0;
  for (int parts = 1; parts <= args.out_h; ++parts) {
    const int rows = (args.out_h + parts - 1) / parts;
    const double waves = static_cast<double>(blocks_for(args, instance->columns, rows)) /
                         (std::max(resident, 1) * static_cast<double>(processors));
    const double cost =
        std::max(waves, 1.0) * (kStart + rows * (args.stride + 1) + args.window - args.stride);
    if (parts == 1 || cost < best) best = cost, args.rows = rows;
  }
  return cudaSuccess;
}

cudaError_t launch_qconv_depthwise_quads(const QDepthwiseArgs& args, bool overlap, cudaStream_t stream) {
  const Instance* instance = find_instance(args);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const std::int64_t blocks = blocks_for(args, instance->columns, args.rows);
  return launch_overlapping(instance->kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), overlap,
                            stream, args);
}

}  // namespace pipit::cuda
