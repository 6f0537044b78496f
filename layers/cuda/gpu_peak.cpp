#include "layers/gpu_peak.h"

#include <functional>
#include <random>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/graph/half.h"
#include "engine/platform/device.h"
#include "layers/cuda/libraries/lt_gemm.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;

// The shortest of five times of `body`, which launches on the stream, in seconds; after two that do not count.
double best_seconds(const cuda::Stream& stream, const std::function<void()>& body) {
  const cuda::Event begin;
  const cuda::Event end;
  double best = 0;
  for (int round = -2; round < 5; ++round) {
    begin.record(stream);
    body();
    end.record(stream);
    stream.synchronize();
    const double seconds = 1e-3 * end.since(begin);
    if (round <= 0 || seconds < best) best = seconds;
  }
  return best;
}

double copy_bytes_per_second(int gpu, const cuda::Stream& stream) {
  constexpr int kCopies = 8;
  const std::size_t bytes = std::min(std::size_t{1} << 30, gpu_memory(gpu) / 16);
  const DeviceBuffer from(bytes);
  const DeviceBuffer to(bytes);
  PIPIT_CUDA(cudaMemsetAsync(from.data(), 0x5A, bytes, stream));
  const double seconds = best_seconds(stream, [&] {
    for (int i = 0; i < kCopies; ++i)
      PIPIT_CUDA(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream));
  });
  return 2.0 * kCopies * static_cast<double>(bytes) / seconds;
}

// Random values: products of zeros run faster than those of data. One block of them, over and over.
template <typename T>
DeviceBuffer random_matrix(std::int64_t elements, T (*convert)(float)) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<T> block(std::size_t{1} << 18);
  for (T& v : block) v = convert(normal(random));
  DeviceBuffer matrix(static_cast<std::size_t>(elements) * sizeof(T));
  for (std::size_t at = 0; at < matrix.bytes(); at += block.size() * sizeof(T)) {
    PIPIT_CUDA(cudaMemcpy(matrix.data() + at, block.data(),
                          std::min(block.size() * sizeof(T), matrix.bytes() - at), cudaMemcpyHostToDevice));
  }
  return matrix;
}

DeviceBuffer random_matrix(std::int64_t elements, DType dtype) {
  if (dtype == DType::f16) return random_matrix<Half>(elements, [](float v) { return to_half(v); });
  return random_matrix<float>(elements, [](float v) { return v; });
}

double product_flops_per_second(DType dtype, const cuda::Stream& stream) {
  constexpr int kProducts = 4;
  cuda::GemmShape shape;
  shape.dtype = dtype;
  const std::int64_t n = dtype == DType::f16 ? 8192 : 4096;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldd = n;
  shape.transpose_b = true;
  std::string reason;
  const std::unique_ptr<cuda::LtGemm> gemm = cuda::LtGemm::create(shape, reason);
  if (!gemm) fail("the arithmetic peak cannot be measured: {}", reason);
  const DeviceBuffer a = random_matrix(n * n, dtype);
  const DeviceBuffer b = random_matrix(n * n, dtype);
  const DeviceBuffer d(a.bytes());
  const DeviceBuffer workspace(gemm->workspace_bytes());
  const double seconds = best_seconds(stream, [&] {
    for (int i = 0; i < kProducts; ++i)
      gemm->run(a.data(), b.data(), nullptr, d.data(), workspace.data(), stream);
  });
  return 2.0 * kProducts * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
}

}  // namespace

MachinePeak measure_gpu_peak(int gpu, Precision precision) {
  if (precision == Precision::int8) fail("the arithmetic peak is measured in fp32 and fp16, not in int8");
  select_gpu(gpu);
  const cuda::Stream stream;
  MachinePeak peak;
  peak.bytes_per_second = copy_bytes_per_second(gpu, stream);
  peak.flops_per_second =
      product_flops_per_second(precision == Precision::fp16 ? DType::f16 : DType::f32, stream);
  return peak;
}

}  // namespace pipit
