// RAII over the CUDA runtime: checked calls, memory, streams, events, graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/base/error.h"
#include "engine/graph/tensor.h"

namespace pipit::internal::cuda {

/// Throws Error with the call, the error's name and its text unless the status is success.
void check(cudaError_t status, const char* call);
#define PIPIT_CUDA(call) ::pipit::internal::cuda::check((call), #call)

/// Call after every launch: reports what the launch itself refused (grid, shared memory, architecture).
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

/// Makes a GPU current for as long as it lives, then the one that was current before: other libraries in the thread
/// expect theirs.
class CurrentGpu {
 public:
  CurrentGpu() { PIPIT_CUDA(cudaGetDevice(&before_)); }
  explicit CurrentGpu(int gpu) : CurrentGpu() {
    if (gpu != before_) PIPIT_CUDA(cudaSetDevice(gpu));
  }
  ~CurrentGpu() {
    int now = before_;
    if (cudaGetDevice(&now) == cudaSuccess && now != before_) (void)cudaSetDevice(before_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
};

/// Memory of the current GPU; 256-byte aligned. Throws Error with the size when it is not to be had.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  /// Allocates and copies from host memory; the bytes are there for every stream when it returns.
  DeviceBuffer(const void* host, std::size_t bytes);
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        gpu_(other.gpu_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(gpu_, other.gpu_);
    return *this;
  }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void release() noexcept;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int gpu_ = 0;
};

/// Memory that holds zeros, for every stream when it returns.
DeviceBuffer zeroed_buffer(std::size_t bytes);

/// What the DeviceBuffers of this process hold on a GPU, in bytes: now, and at most so far.
struct BufferBytes {
  std::size_t now = 0;
  std::size_t peak = 0;
};
BufferBytes buffer_bytes(int gpu);

/// Page-locked host memory: copies to and from it are asynchronous, on every GPU. Throws Error with the size when it
/// is not to be had.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { (void)cudaFreeHost(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

class Event;

/// Whether memory can be read and written by kernels of the GPU `gpu` as it lies there: allocated on it, or managed.
bool is_device_memory(const void* data, int gpu);

/// A stream of its own on the current GPU, not synchronizing with the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void synchronize() const;
  /// Work queued from now on begins after the event's latest record(), if there was one.
  void wait(const Event& event) const;
  /// The same of a stream that is not pipit's.
  static void wait(cudaStream_t stream, const Event& event);

 private:
  cudaStream_t stream_ = nullptr;
};

/// A mark in a stream of the current GPU.
class Event {
 public:
  /// `blocking`: a thread in synchronize() sleeps rather than spins.
  explicit Event(bool blocking = false);
  ~Event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  operator cudaEvent_t() const { return event_; }
  void record(cudaStream_t stream) const;
  /// While the stream is captured: every run of the graph records the event.
  void record_in_graph(cudaStream_t stream) const;
  /// Waits until the latest record() has happened.
  void synchronize() const;
  /// Whether it has happened, or there was none.
  bool happened() const;
  /// Milliseconds from an earlier event; both must have happened.
  double since(const Event& earlier) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// A captured sequence of launches, ready to replay.
class Graph {
 public:
  Graph() = default;
  /// Captures what `body` launches on the stream.
  template <typename Body>
  Graph(const Stream& stream, Body&& body) {
    const std::unique_lock<std::recursive_mutex> lock = begin(stream);
    try {
      body();
    } catch (...) {
      abandon(stream);
      throw;
    }
    end(stream);
  }
  ~Graph() {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }
  Graph(Graph&& other) noexcept
      : graph_(std::exchange(other.graph_, nullptr)), captured_(std::exchange(other.captured_, false)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(captured_, other.captured_);
    return *this;
  }
  /// Whether something was captured, be it nothing at all.
  explicit operator bool() const { return captured_; }
  /// Launches nothing where nothing was captured: CUDA refuses a graph without nodes.
  void launch(cudaStream_t stream) const;

 private:
  /// The lock is to be held until the end.
  static std::unique_lock<std::recursive_mutex> begin(const Stream& stream);
  void end(const Stream& stream);
  static void abandon(const Stream& stream) noexcept;
  cudaGraphExec_t graph_ = nullptr;  // null where nothing was captured, or a graph without nodes
  bool captured_ = false;
};

}  // namespace pipit::internal::cuda
