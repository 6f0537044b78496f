// Descriptors of cuDNN's graph interface as objects.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cuda/library.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// One descriptor: attributes are set, then it is finalized; every failure throws Error.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    PIPIT_CUDNN(cudnn().descriptor_create(type, &handle_));
  }
  ~Descriptor() {
    if (handle_ != nullptr) (void)cudnn().descriptor_destroy(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  operator cudnnBackendDescriptor_t() const { return handle_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* data) {
    PIPIT_CUDNN(cudnn().set(handle_, name, type, count, data));
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  void set_bool(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, 1, &value); }
  void set_float(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set_double(cudnnBackendAttributeName_t name, double value) { set(name, CUDNN_TYPE_DOUBLE, 1, &value); }
  void set_handle(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
    set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  void finalize() { PIPIT_CUDNN(cudnn().finalize(handle_)); }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace pipit::cuda

#endif
