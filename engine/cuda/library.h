// cuBLASLt and cuDNN, loaded when first asked for: the binary also starts on machines that lack them.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define PIPIT_HAVE_CUDNN 1
#else
#define PIPIT_HAVE_CUDNN 0
#endif

namespace pipit::internal::cuda {

/// The functions of cuBLASLt that pipit calls. Usable where `problem` is empty.
struct CublasLt {
  std::string problem;  ///< why the library cannot be used here
  std::string version;  ///< "13.0.0"
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
};

/// Loads the library on the first call; never throws. Safe to call from several threads.
const CublasLt& cublaslt();
/// The handle of the current GPU, made on first use and kept for the process; cuBLASLt allows several threads to
/// share it. Throws Error when the library cannot be used.
cublasLtHandle_t cublaslt_handle();
/// Throws Error with the call and the status unless it is success.
void check(cublasStatus_t status, const char* call);
#define PIPIT_CUBLASLT(call) ::pipit::internal::cuda::check((call), #call)

/// What cuDNN is on this machine; usable where `problem` is empty.
struct CudnnState {
  std::string problem;
  std::string version;  ///< "9.19.0"
};
/// Loads the library on the first call; never throws. Safe to call from several threads.
const CudnnState& cudnn_state();

#if PIPIT_HAVE_CUDNN
/// The functions of cuDNN's graph (backend) interface.
struct Cudnn {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;  ///< null before 9.0
  decltype(&cudnnBackendCreateDescriptor) descriptor_create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

/// Only where cudnn_state().problem is empty.
const Cudnn& cudnn();
void check(cudnnStatus_t status, const char* call);
#define PIPIT_CUDNN(call) ::pipit::internal::cuda::check((call), #call)

/// The handle of the current GPU, made on first use and kept for the process. A handle carries its stream, so it is
/// used by one thread at a time: hold the lock from choosing the stream until the work is launched, and as long as the
/// stream is captured.
struct CudnnHandle {
  cudnnHandle_t handle = nullptr;
  std::recursive_mutex mutex;
  cudaStream_t stream = nullptr;

  /// The stream of what is launched next. Only while the lock is held.
  void use(cudaStream_t wanted);
};
CudnnHandle& cudnn_handle();

/// A handle of the current GPU to make plans with, on no stream, which no other caller has meanwhile: threads make
/// theirs at the same time, also while others capture a stream. Plans are launched by cudnn_handle() all the same.
class PlanningHandle {
 public:
  PlanningHandle();
  ~PlanningHandle();
  PlanningHandle(const PlanningHandle&) = delete;
  PlanningHandle& operator=(const PlanningHandle&) = delete;
  operator cudnnHandle_t() const { return handle_; }

 private:
  int gpu_;
  cudnnHandle_t handle_ = nullptr;
};
#endif

// When a handle of cuDNN's gets another stream, the library records an event in the one before. So that one must still
// be there, and must not be captured by another thread: graphs in the making are not thread-safe.

/// To be called before a stream is destroyed.
void forget_stream(cudaStream_t stream) noexcept;
/// To be held while a stream of the current GPU is captured. Waits while others capture, or launch what is cuDNN's;
/// empty where cuDNN is not in use.
std::unique_lock<std::recursive_mutex> lock_for_capture();

}  // namespace pipit::internal::cuda
