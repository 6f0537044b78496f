#include "engine/cuda/host_step.h"

#include <algorithm>

namespace pipit::internal::cuda {

namespace {

TensorDesc widened(TensorDesc desc) {
  if (is_stored_float(desc.dtype)) desc.dtype = DType::f32;
  return desc;
}

// body(T{}) with the type of what is stored in 16 bits.
template <typename Body>
void with_narrow(DType type, const Body& body) {
  type == DType::f16 ? body(Half{}) : body(BFloat16{});
}

}  // namespace

HostStep::HostStep(const Step& step, ThreadPool& pool)
    : step_(step),
      pool_(pool),
      scratch_(step.kernel->scratch_bytes()),
      state_(zeroed_host_buffer(step.kernel->state_bytes())) {
  // The memory of what moves into the vector stays where it is, so views may be taken at once.
  const auto stage = [](const TensorDesc& desc) {
    const bool narrow = is_stored_float(desc.dtype);
    return Staged{PinnedBuffer(desc.bytes()), HostBuffer(narrow ? widened(desc).bytes() : 0), desc};
  };
  const auto view = [](const Staged& s) {
    return TensorView{widened(s.stored),
                      is_stored_float(s.stored.dtype) ? s.widened.data() : s.device.data()};
  };
  for (const Placement& p : step.inputs) {
    const bool copied = p.kind == Placement::Kind::arena || p.kind == Placement::Kind::input;
    if (copied) {
      inputs_.push_back(view(staged_inputs_.emplace_back(stage(p.desc))));
      continue;
    }
    staged_inputs_.push_back({PinnedBuffer(0), HostBuffer(0), p.desc});
    inputs_.push_back({p.desc, p.constant ? p.constant->view().data : nullptr});
  }
  for (const Placement& p : step.outputs)
    outputs_.push_back(view(staged_outputs_.emplace_back(stage(p.desc))));
}

void HostStep::enqueue(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                       cudaStream_t stream) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Placement::Kind kind = step_.inputs[i].kind;
    if (kind != Placement::Kind::arena && kind != Placement::Kind::input) continue;
    PIPIT_CUDA(cudaMemcpyAsync(staged_inputs_[i].device.data(), inputs[i].data, inputs[i].desc.bytes(),
                               cudaMemcpyDeviceToHost, stream));
  }
  PIPIT_CUDA(cudaLaunchHostFunc(stream, &HostStep::call, this));
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    PIPIT_CUDA(cudaMemcpyAsync(outputs[o].data, staged_outputs_[o].device.data(), outputs[o].desc.bytes(),
                               cudaMemcpyHostToDevice, stream));
  }
}

// On a thread of the driver, where neither an exception nor a call of the CUDA runtime is allowed.
void HostStep::call(void* self) {
  auto& step = *static_cast<HostStep*>(self);
  try {
    step.run();
  } catch (...) {
    const std::lock_guard lock(step.mutex_);
    if (!step.error_) step.error_ = std::current_exception();
  }
}

void HostStep::run() {
  for (std::size_t i = 0; i < staged_inputs_.size(); ++i) {
    const Staged& s = staged_inputs_[i];
    if (s.widened.bytes() == 0) continue;
    with_narrow(s.stored.dtype, [&]<typename T>(T) {
      const auto* from = reinterpret_cast<const T*>(s.device.data());
      std::transform(from, from + s.stored.elements(), reinterpret_cast<float*>(s.widened.data()),
                     [](T x) { return to_float(x); });
    });
  }
  step_.kernel->run(inputs_, outputs_, RunContext{pool_, scratch_.data(), nullptr, state_.data()});
  for (const Staged& s : staged_outputs_) {
    if (s.widened.bytes() == 0) continue;
    const auto* from = reinterpret_cast<const float*>(s.widened.data());
    with_narrow(s.stored.dtype, [&]<typename T>(T) {
      std::transform(from, from + s.stored.elements(), reinterpret_cast<T*>(s.device.data()),
                     [](float x) { return to_stored<T>(x); });
    });
  }
}

void HostStep::check() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    std::swap(error, error_);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace pipit::internal::cuda
