// Outputs in the memory of a GPU that the package allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python/src/casters.h"

namespace pipit::internal::python {

/// Memory of a session's outputs that no array has, for its next runs on the same stream: these come after what was
/// queued there on the array that had it. The GIL guards it. Alive as long as one of its arrays.
class OutputMemory : public std::enable_shared_from_this<OutputMemory> {
 public:
  OutputMemory(std::vector<TensorInfo> outputs, int gpu);

  /// New arrays for the outputs of a run on `stream`.
  nb::list arrays(void* stream, std::vector<DeviceArray>& views);

  const TensorInfo& info(std::size_t output) const { return outputs_[output]; }
  int gpu() const { return gpu_; }
  /// Takes back what arrays() gave.
  void give_back(std::size_t output, void* stream, GpuMemory memory) noexcept;

 private:
  struct Unused {
    std::size_t output;
    void* stream;
    GpuMemory memory;
  };
  std::vector<TensorInfo> outputs_;
  int gpu_;
  std::vector<Unused> unused_;
};

/// pipit.DeviceArray: one output of a run.
class OutputOnDevice {
 public:
  OutputOnDevice(std::shared_ptr<OutputMemory> owner, std::size_t output, void* stream, GpuMemory memory)
      : owner_(std::move(owner)), output_(output), stream_(stream), memory_(std::move(memory)) {}
  ~OutputOnDevice() { owner_->give_back(output_, stream_, std::move(memory_)); }
  OutputOnDevice(const OutputOnDevice&) = delete;
  OutputOnDevice& operator=(const OutputOnDevice&) = delete;

  const TensorInfo& info() const { return owner_->info(output_); }
  int gpu() const { return owner_->gpu(); }
  std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(stream_); }
  const GpuMemory& memory() const { return memory_; }

 private:
  std::shared_ptr<OutputMemory> owner_;
  std::size_t output_;
  void* stream_;
  GpuMemory memory_;
};

}  // namespace pipit::internal::python
