#include "layers/cuda/libraries/cudnn_graph.h"

#if PIPIT_HAVE_CUDNN

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/cuda/runtime.h"
#include "layers/cuda/libraries/cudnn_operations.h"

namespace pipit::cuda {

namespace {

using Notes = std::vector<cudnnBackendNumericalNote_t>;

// What the library says of the engine's arithmetic.
Notes notes_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine;
  std::int64_t count = 0;
  PIPIT_CUDNN(
      cudnn().get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  Notes notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  PIPIT_CUDNN(cudnn().get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()));
  notes.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return notes;
}

// True when an engine may round f32 operands (TF32), may give other bits on the next run, or loses digits to a
// large Winograd tile or to sums in reduced precision.
bool imprecise(const Notes& notes, DType type) {
  return std::ranges::any_of(notes, [&](auto note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
           (type == DType::f32 && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  });
}

// See CudnnPlan::least_products(). The only Winograd tile that is not imprecise makes 2 x 2 outputs of 4 x 4 products.
double least_products_of(const Notes& notes) {
  double share = 1;
  for (const auto note : notes) {
    if (note == CUDNN_NUMERICAL_NOTE_WINOGRAD || note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4)
      share = std::min(share, 16.0 / 36);
    if (note == CUDNN_NUMERICAL_NOTE_FFT) share = 0;
  }
  return share;
}

class BuiltPlan final : public CudnnPlan {
 public:
  BuiltPlan(CudnnOperations operations, Descriptor config, const Notes& notes, cudnnHandle_t handle)
      : operations_(std::move(operations)),
        least_products_(least_products_of(notes)),
        config_(std::move(config)),
        plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    plan_.set_handle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_);
    plan_.finalize();
    std::int64_t count = 0;
    PIPIT_CUDNN(cudnn().get(plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                            &workspace_));
    if (workspace_ > kMaxWorkspace) fail("it needs {} bytes of workspace", workspace_);
  }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_); }
  double least_products() const override { return least_products_; }

  void run(const CudnnOperands& operands, cudaStream_t stream) const override {
    std::vector<std::int64_t> ids;
    std::vector<const void*> pointers;
    const auto add = [&](CudnnId id, const void* pointer) {
      if (pointer == nullptr) return;
      ids.push_back(id);
      pointers.push_back(pointer);
    };
    add(kX, operands.x);
    add(kW, operands.w);
    add(kY, operands.y);
    add(kBias, operands.bias);
    add(kMultiplier, operands.multiplier);
    add(kResidual, operands.residual);
    add(kResidualScale, operands.residual_scale);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(pointers.size()), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands.workspace);
    pack.finalize();
    CudnnHandle& shared = cudnn_handle();
    const std::lock_guard lock(shared.mutex);
    shared.use(stream);
    PIPIT_CUDNN(cudnn().execute(shared.handle, plan_, pack));
  }

 private:
  CudnnOperations operations_;
  double least_products_;
  Descriptor config_;
  Descriptor plan_;
  std::int64_t workspace_ = 0;
};

// The plans of one convolution, built as they are asked for.
class PlanList {
 public:
  // Null when there are not so many, with the reason.
  std::shared_ptr<const CudnnPlan> get(const CudnnConv& conv, std::size_t number, std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (plans_.size() <= number && !exhausted_) {
      const PlanningHandle handle;
      while (plans_.size() <= number && !exhausted_) extend(conv, handle);
    }
    if (plans_.size() > number) return plans_[number];
    reason = plans_.empty() ? reason_
                            : fmt::format("cuDNN {} proposes {} plans that are exact and repeatable",
                                          cudnn_state().version, plans_.size());
    return nullptr;
  }

 private:
  static constexpr std::int64_t kMaxConfigs = 16;

  static std::vector<Descriptor> configurations(const CudnnConv& conv, cudnnBackendHeurMode_t mode,
                                                cudnnHandle_t handle) {
    const CudnnOperations operations(conv, handle);
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations.graph());
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    heuristics.finalize();
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < kMaxConfigs; ++i)
      raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    std::int64_t count = 0;
    PIPIT_CUDNN(cudnn().get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            kMaxConfigs, &count, raw.data()));
    configs.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kMaxConfigs)));
    return configs;
  }

  // Builds the next usable configuration of the list; where mode A has none at all, of the fallback's.
  void extend(const CudnnConv& conv, cudnnHandle_t handle) {
    try {
      std::vector<Descriptor> configs =
          configurations(conv, fallback_ ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A, handle);
      while (next_ < configs.size()) {
        Descriptor& config = configs[next_++];
        try {
          const Notes notes = notes_of(config);
          if (imprecise(notes, conv.dtype)) continue;
          plans_.push_back(
              std::make_shared<BuiltPlan>(CudnnOperations(conv, handle), std::move(config), notes, handle));
          return;
        } catch (const Error& error) {
          reason_ = error.what();
        }
      }
    } catch (const Error& error) {
      reason_ = error.what();
    }
    if (fallback_ || !plans_.empty()) {
      exhausted_ = true;
    } else {
      fallback_ = true;
      next_ = 0;
    }
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<const CudnnPlan>> plans_;
  bool fallback_ = false;
  std::size_t next_ = 0;  // configuration of the list
  bool exhausted_ = false;
  std::string reason_ =
      fmt::format("cuDNN {} proposes no kernel that is exact and repeatable", cudnn_state().version);
};

}  // namespace

std::string CudnnConv::key() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(dtype),
                     static_cast<int>(y_dtype), fmt::join(x.extents, ","), fmt::join(x.strides, ","),
                     fmt::join(w.extents, ","), fmt::join(w.strides, ","), fmt::join(y.extents, ","),
                     fmt::join(y.strides, ","), fmt::join(stride, ","), fmt::join(dilation, ","),
                     fmt::join(pad_begin, ","), fmt::join(pad_end, ","), bias, residual, low, high);
}

std::shared_ptr<const CudnnPlan> CudnnPlan::find(const CudnnConv& conv, std::string& reason, int proposal) {
  constexpr std::size_t kMaxEntries = 512;
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<PlanList>>;
  int gpu = 0;
  PIPIT_CUDA(cudaGetDevice(&gpu));
  const std::string key = fmt::format("{}: {}", gpu, conv.key());
  std::shared_ptr<PlanList> plans;
  {
    const std::lock_guard lock(mutex);
    if (known.size() >= kMaxEntries && known.find(key) == known.end()) known.clear();
    std::shared_ptr<PlanList>& entry = known[key];
    if (!entry) entry = std::make_shared<PlanList>();
    plans = entry;
  }
  // Building can take a second; other threads build other convolutions' meanwhile.
  return plans->get(conv, static_cast<std::size_t>(proposal), reason);
}

}  // namespace pipit::cuda

#endif
