#include "engine/cuda/runtime.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/cuda/library.h"

namespace pipit::internal::cuda {

namespace {

struct Accounts {
  std::mutex mutex;
  std::map<int, BufferBytes> by_gpu;
};

Accounts& accounts() {
  static Accounts& all = *new Accounts;
  return all;
}

}  // namespace

BufferBytes buffer_bytes(int gpu) {
  const std::lock_guard lock(accounts().mutex);
  return accounts().by_gpu[gpu];
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // not sticky for the next call, where it can be cleared at all
  const char* hint =
      status == cudaErrorInitializationError
          ? "; a child of fork() cannot use CUDA where its parent has: load models after fork()"
          : "";
  fail("CUDA: {} ({}) in {}{}", cudaGetErrorString(status), cudaGetErrorName(status), call, hint);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&data_), bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    (void)cudaMemGetInfo(&free, &total);
    fail("CUDA: out of memory: {} bytes asked for, {} of {} are free; use a smaller batch", bytes, free,
         total);
  }
  check(status, "cudaMalloc");
  (void)cudaGetDevice(&gpu_);  // cudaMalloc has just worked there
  const std::lock_guard lock(accounts().mutex);
  BufferBytes& account = accounts().by_gpu[gpu_];
  account.now += bytes;
  account.peak = std::max(account.peak, account.now);
}

DeviceBuffer::DeviceBuffer(const void* host, std::size_t bytes) : DeviceBuffer(bytes) {
  if (bytes == 0) return;
  PIPIT_CUDA(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
  // From pageable memory the call returns while the last bytes are still in flight, and no Stream waits for the default
  // one (CUDA Runtime API, "API synchronization behavior").
  PIPIT_CUDA(cudaStreamSynchronize(nullptr));
}

DeviceBuffer zeroed_buffer(std::size_t bytes) {
  DeviceBuffer buffer(bytes);
  if (bytes == 0) return buffer;
  PIPIT_CUDA(cudaMemset(buffer.data(), 0, bytes));
  PIPIT_CUDA(cudaStreamSynchronize(nullptr));  // as above
  return buffer;
}

void DeviceBuffer::release() noexcept {
  if (data_ == nullptr) return;
  (void)cudaFree(data_);
  const std::lock_guard lock(accounts().mutex);
  accounts().by_gpu[gpu_].now -= bytes_;
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes == 0 ? 1 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail("CUDA: {} bytes of page-locked host memory are not to be had; use a smaller batch", bytes);
  }
  check(status, "cudaMallocHost");
  data_.reset(static_cast<std::byte*>(memory));
}

bool is_device_memory(const void* data, int gpu) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeManaged ||
         (attributes.type == cudaMemoryTypeDevice && attributes.device == gpu);
}

Stream::Stream() {
  PIPIT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Stream::~Stream() {
  forget_stream(stream_);
  (void)cudaStreamDestroy(stream_);
}

void Stream::synchronize() const {
  PIPIT_CUDA(cudaStreamSynchronize(stream_));
}

void Stream::wait(const Event& event) const {
  PIPIT_CUDA(cudaStreamWaitEvent(stream_, event, 0));
}

void Stream::wait(cudaStream_t stream, const Event& event) {
  PIPIT_CUDA(cudaStreamWaitEvent(stream, event, 0));
}

Event::Event(bool blocking) {
  PIPIT_CUDA(cudaEventCreateWithFlags(&event_, blocking ? cudaEventBlockingSync : cudaEventDefault));
}

void Event::record(cudaStream_t stream) const {
  PIPIT_CUDA(cudaEventRecord(event_, stream));
}

void Event::record_in_graph(cudaStream_t stream) const {
  PIPIT_CUDA(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal));
}

void Event::synchronize() const {
  PIPIT_CUDA(cudaEventSynchronize(event_));
}

bool Event::happened() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

double Event::since(const Event& earlier) const {
  float milliseconds = 0;
  PIPIT_CUDA(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return milliseconds;
}

std::unique_lock<std::recursive_mutex> Graph::begin(const Stream& stream) {
  std::unique_lock<std::recursive_mutex> lock = lock_for_capture();
  PIPIT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  return lock;
}

void Graph::end(const Stream& stream) {
  cudaGraph_t captured = nullptr;
  PIPIT_CUDA(cudaStreamEndCapture(stream, &captured));
  std::size_t nodes = 0;
  cudaError_t status = cudaGraphGetNodes(captured, nullptr, &nodes);
  if (status == cudaSuccess && nodes > 0) status = cudaGraphInstantiate(&graph_, captured, 0);
  (void)cudaGraphDestroy(captured);
  check(status, "cudaGraphInstantiate");
  captured_ = true;
}

void Graph::abandon(const Stream& stream) noexcept {
  cudaGraph_t captured = nullptr;
  (void)cudaStreamEndCapture(stream, &captured);
  if (captured != nullptr) (void)cudaGraphDestroy(captured);
  (void)cudaGetLastError();
}

void Graph::launch(cudaStream_t stream) const {
  if (graph_ != nullptr) PIPIT_CUDA(cudaGraphLaunch(graph_, stream));
}

}  // namespace pipit::internal::cuda
