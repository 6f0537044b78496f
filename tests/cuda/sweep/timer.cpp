#include "tests/cuda/sweep/timer.h"

#include <algorithm>
#include <random>

#include "engine/base/error.h"
#include "engine/graph/half.h"

namespace pipit::sweep {

namespace {

using cuda::DeviceBuffer;

constexpr std::size_t kInputs = std::size_t{1} << 30;
constexpr std::size_t kResults = std::size_t{2} << 30;
constexpr int kLaunches = 20;
constexpr int kReplays = 7;

// A buffer of copies of `pattern`.
template <typename T>
DeviceBuffer repeated(const std::vector<T>& pattern, std::size_t bytes) {
  DeviceBuffer buffer(bytes);
  std::size_t filled = pattern.size() * sizeof(T);
  PIPIT_CUDA(cudaMemcpy(buffer.data(), pattern.data(), filled, cudaMemcpyHostToDevice));
  for (; filled < bytes; filled *= 2)
    PIPIT_CUDA(cudaMemcpy(buffer.data() + filled, buffer.data(), std::min(filled, bytes - filled),
                          cudaMemcpyDeviceToDevice));
  return buffer;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

Timer::Timer() : results_(kResults) {
  constexpr std::size_t kPattern = std::size_t{1} << 20;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::int8_t> bytes(kPattern);
  for (std::int8_t& v : bytes) v = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
  std::vector<Half> halves(kPattern);
  for (Half& v : halves) v = to_half(uniform(random));
  bytes_ = repeated(bytes, kInputs);
  halves_ = repeated(halves, kInputs);
  int cache = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0));
  flushed_ = DeviceBuffer(static_cast<std::size_t>(cache) * 2);
  PIPIT_CUDA(cudaDeviceSynchronize());
}

std::byte* Timer::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) {
    scratch_ = DeviceBuffer();  // before the larger one is asked for
    scratch_ = DeviceBuffer(bytes);
  }
  return scratch_.data();
}

double Timer::replay(const cuda::Graph& graph, int launches, bool flush) const {
  const cuda::Event begin, end;
  std::vector<double> times;
  for (int r = 0; r < kReplays + 1; ++r) {
    if (flush) PIPIT_CUDA(cudaMemsetAsync(flushed_.data(), r, flushed_.bytes(), stream_));
    begin.record(stream_);
    graph.launch(stream_);
    end.record(stream_);
    stream_.synchronize();
    if (r > 0) times.push_back(end.since(begin));  // the first launch of a graph also uploads it
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2] * 1000 / launches;
}

Times Timer::measure(DType x_type, std::size_t x_bytes, std::size_t y_bytes, const Launch& launch) const {
  const DeviceBuffer& inputs = x_type == DType::i8 ? bytes_ : halves_;
  const std::size_t x_step = aligned(x_bytes), y_step = aligned(y_bytes);
  const std::size_t copies = std::min(inputs.bytes() / x_step, results_.bytes() / y_step);
  if (copies == 0) fail("operands of {} and {} bytes are too large for the timer", x_bytes, y_bytes);
  const auto launch_on = [&](std::size_t copy) {
    launch(inputs.data() + copy * x_step, results_.data() + copy * y_step, stream_);
  };
  launch_on(0);  // not captured: libraries initialize themselves on first use, which a capture forbids
  stream_.synchronize();
  const cuda::Graph rotating(stream_, [&] {
    for (std::size_t i = 0; i < kLaunches; ++i) launch_on(i % copies);
  });
  const cuda::Graph still(stream_, [&] {
    for (int i = 0; i < kLaunches; ++i) launch_on(0);
  });
  return {replay(rotating, kLaunches, true), replay(still, kLaunches, false)};
}

}  // namespace pipit::sweep
