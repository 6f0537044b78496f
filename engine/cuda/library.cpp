#include "engine/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <initializer_list>
#include <map>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"
#include "engine/platform/nvidia_wheels.h"

namespace pipit::internal::cuda {

namespace {

// Opens the first of the names that loads, where the system finds libraries or else in NVIDIA's wheels, and looks up
// functions in it. Libraries stay loaded for the process: they hold state of the driver that must outlive every
// session.
class Loader {
 public:
  explicit Loader(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (open(name)) return;
    }
    static const std::vector<std::string>& folders = *new std::vector(folders_of_nvidia_wheels(own_file()));
    for (const char* name : names) {
      for (const std::string& folder : folders) {
        if (open((std::filesystem::path(folder) / name).string())) return;
      }
    }
    problem_ = fmt::format("{} could not be loaded ({})", *names.begin(), reason_);
  }

  template <typename Function>
  void find(Function& function, const char* name) {
    if (library_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && problem_.empty())
      problem_ = fmt::format("the library lacks {}; it is too old", name);
  }
  template <typename Function>
  void find_optional(Function& function, const char* name) {
    if (library_ != nullptr) function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  const std::string& problem() const { return problem_; }

 private:
  // The reason of the first failure is kept: later names are other versions.
  bool open(const std::string& name) {
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return true;
    const char* reason = dlerror();
    if (reason_.empty()) reason_ = reason != nullptr ? reason : "unknown error";
    return false;
  }

  void* library_ = nullptr;
  std::string reason_;
  std::string problem_;
};

int current_gpu() {
  int gpu = 0;
  PIPIT_CUDA(cudaGetDevice(&gpu));
  return gpu;
}

CublasLt load_cublaslt() {
  CublasLt lt;
  Loader loader{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  loader.find(lt.create, "cublasLtCreate");
  loader.find(lt.destroy, "cublasLtDestroy");
  loader.find(lt.get_version, "cublasLtGetVersion");
  loader.find(lt.status_string, "cublasLtGetStatusString");
  loader.find(lt.matmul, "cublasLtMatmul");
  loader.find(lt.desc_create, "cublasLtMatmulDescCreate");
  loader.find(lt.desc_destroy, "cublasLtMatmulDescDestroy");
  loader.find(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  loader.find(lt.layout_create, "cublasLtMatrixLayoutCreate");
  loader.find(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  loader.find(lt.layout_set, "cublasLtMatrixLayoutSetAttribute");
  loader.find(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  loader.find(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  loader.find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  loader.find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  if (loader.problem().empty()) {
    // 120304 before 13, 130000 since: both as major * 10000 + minor * 100 + patch.
    const std::size_t v = lt.get_version();
    lt.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
    if (v < 120000) lt.problem = fmt::format("cuBLASLt {} is too old; pipit needs 12.0 or later", lt.version);
  } else {
    lt.problem = "cuBLASLt: " + loader.problem();
  }
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt& lt = *new CublasLt(load_cublaslt());
  return lt;
}

cublasLtHandle_t cublaslt_handle() {
  const CublasLt& lt = cublaslt();
  if (!lt.problem.empty()) fail("{}", lt.problem);
  static std::mutex mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[current_gpu()];
  if (handle == nullptr) PIPIT_CUBLASLT(lt.create(&handle));
  return handle;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail("cuBLASLt {}: {} failed: {}", cublaslt().version, call, cublaslt().status_string(status));
}

#if PIPIT_HAVE_CUDNN

namespace {

struct LoadedCudnn {
  Cudnn api;
  CudnnState state;
};

LoadedCudnn load_cudnn() {
  LoadedCudnn result;
  Cudnn& dnn = result.api;
  Loader loader{"libcudnn.so.9", "libcudnn.so"};
  loader.find(dnn.create, "cudnnCreate");
  loader.find(dnn.set_stream, "cudnnSetStream");
  loader.find(dnn.get_version, "cudnnGetVersion");
  loader.find(dnn.error_string, "cudnnGetErrorString");
  loader.find_optional(dnn.last_error, "cudnnGetLastErrorString");
  loader.find(dnn.descriptor_create, "cudnnBackendCreateDescriptor");
  loader.find(dnn.descriptor_destroy, "cudnnBackendDestroyDescriptor");
  loader.find(dnn.set, "cudnnBackendSetAttribute");
  loader.find(dnn.get, "cudnnBackendGetAttribute");
  loader.find(dnn.finalize, "cudnnBackendFinalize");
  loader.find(dnn.execute, "cudnnBackendExecute");
  if (loader.problem().empty()) {
    const std::size_t v = dnn.get_version();
    result.state.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
    if (v < 90000) {
      // Versions before 9 count in thousands.
      result.state.version = fmt::format("{}.{}.{}", v / 1000, v / 100 % 10, v % 100);
      result.state.problem =
          fmt::format("cuDNN {} is too old; pipit needs 9.0 or later", result.state.version);
    }
  } else {
    result.state.problem = "cuDNN: " + loader.problem();
  }
  return result;
}

const LoadedCudnn& loaded_cudnn() {
  static const LoadedCudnn& loaded = *new LoadedCudnn(load_cudnn());
  return loaded;
}

}  // namespace

const CudnnState& cudnn_state() {
  return loaded_cudnn().state;
}

const Cudnn& cudnn() {
  return loaded_cudnn().api;
}

namespace {

struct CudnnHandles {
  std::mutex mutex;
  std::map<int, CudnnHandle> of_gpu;
  std::map<int, std::vector<cudnnHandle_t>> planning;  // handles that are not in use
};
// Never destroyed: streams may end later than static objects.
CudnnHandles& cudnn_handles() {
  static CudnnHandles& handles = *new CudnnHandles;
  return handles;
}

}  // namespace

CudnnHandle& cudnn_handle() {
  if (!cudnn_state().problem.empty()) fail("{}", cudnn_state().problem);
  CudnnHandles& handles = cudnn_handles();
  const std::lock_guard lock(handles.mutex);
  CudnnHandle& entry = handles.of_gpu[current_gpu()];
  if (entry.handle == nullptr) PIPIT_CUDNN(cudnn().create(&entry.handle));
  return entry;
}

PlanningHandle::PlanningHandle() : gpu_(current_gpu()) {
  if (!cudnn_state().problem.empty()) fail("{}", cudnn_state().problem);
  {
    CudnnHandles& handles = cudnn_handles();
    const std::lock_guard lock(handles.mutex);
    std::vector<cudnnHandle_t>& unused = handles.planning[gpu_];
    if (!unused.empty()) {
      handle_ = unused.back();
      unused.pop_back();
      return;
    }
  }
  PIPIT_CUDNN(cudnn().create(&handle_));
}

PlanningHandle::~PlanningHandle() {
  CudnnHandles& handles = cudnn_handles();
  const std::lock_guard lock(handles.mutex);
  handles.planning[gpu_].push_back(handle_);
}

void CudnnHandle::use(cudaStream_t wanted) {
  if (stream == wanted) return;
  PIPIT_CUDNN(cudnn().set_stream(handle, wanted));
  stream = wanted;
}

void forget_stream(cudaStream_t stream) noexcept {
  CudnnHandles& handles = cudnn_handles();
  std::vector<CudnnHandle*> entries;  // which stay where they are
  {
    const std::lock_guard lock(handles.mutex);
    for (auto& [gpu, entry] : handles.of_gpu) entries.push_back(&entry);
  }
  for (CudnnHandle* entry : entries) {
    const std::lock_guard lock(entry->mutex);
    if (entry->stream != stream) continue;
    (void)cudnn().set_stream(entry->handle, nullptr);
    entry->stream = nullptr;
  }
}

std::unique_lock<std::recursive_mutex> lock_for_capture() {
  CudnnHandle* entry = nullptr;
  {
    CudnnHandles& handles = cudnn_handles();
    const std::lock_guard lock(handles.mutex);
    const auto found = handles.of_gpu.find(current_gpu());
    if (found != handles.of_gpu.end()) entry = &found->second;
  }
  return entry != nullptr ? std::unique_lock(entry->mutex) : std::unique_lock<std::recursive_mutex>();
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = {};
  if (cudnn().last_error != nullptr) cudnn().last_error(detail, sizeof detail);
  fail("cuDNN {}: {} failed: {}{}{}", cudnn_state().version, call, cudnn().error_string(status),
       detail[0] != '\0' ? ": " : "", detail);
}

#else

const CudnnState& cudnn_state() {
  static const CudnnState& state =
      *new CudnnState{"this build has no cuDNN support (its headers were not found)", {}};
  return state;
}

void forget_stream(cudaStream_t /*stream*/) noexcept {}
std::unique_lock<std::recursive_mutex> lock_for_capture() {
  return {};
}

#endif

}  // namespace pipit::internal::cuda

namespace pipit::internal {

CudaLibraries cuda_libraries() {
  const auto describe = [](const auto& library) {
    return library.problem.empty() ? library.version : "not usable: " + library.problem;
  };
  return {describe(cuda::cublaslt()), describe(cuda::cudnn_state())};
}

}  // namespace pipit::internal
