#include "pipit/compiled_model.h"

#include "engine/base/error.h"
#include "engine/runtime/session.h"
#include "pipit/detail/load.h"

namespace pipit {

using namespace internal;

namespace internal::detail {

struct SessionState {
  std::shared_ptr<const CompiledState> model;
  Session session;
  std::vector<ConstTensorView> inputs;
  std::vector<ArrayView> outputs;
};

}  // namespace internal::detail

void ArrayView::check_count(std::size_t count) const {
  if (static_cast<std::int64_t>(count) != shape.elements())
    fail("{} values given for an array of shape {}", count, shape.str());
}

void ArrayView::check_type(DType asked) const {
  if (asked != dtype) fail("array of {} read as {}", dtype_name(dtype), dtype_name(asked));
}

ModelSession::ModelSession(std::unique_ptr<detail::SessionState> state) : state_(std::move(state)) {}
ModelSession::ModelSession(ModelSession&& other) noexcept = default;
ModelSession& ModelSession::operator=(ModelSession&& other) noexcept = default;
ModelSession::~ModelSession() = default;

std::span<const ArrayView> ModelSession::run(std::span<const ArrayView> inputs) {
  const detail::CompiledState& model = *state_->model;
  if (inputs.size() != model.inputs.size())
    fail("{}: {} inputs given, it takes {}", model.name, inputs.size(), model.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    static const std::byte nothing{};  // where empty arrays may point
    const ArrayView& given = inputs[i];
    const bool empty = given.data == nullptr && given.shape.elements() == 0;
    const void* data = empty ? &nothing : given.data;
    state_->inputs[i] = {TensorDesc{given.shape, given.dtype}, static_cast<const std::byte*>(data)};
  }
  const auto outputs = naming(model.name, [&] { return state_->session.run(state_->inputs); });
  for (std::size_t i = 0; i < outputs.size(); ++i) state_->outputs[i].data = outputs[i].data;
  return state_->outputs;
}

CompiledModel::CompiledModel(const std::string& model, const LoadOptions& options)
    : state_(detail::compile_model(detail::read_model(model, options), options)) {}

CompiledModel::CompiledModel(std::span<const std::byte> onnx, const std::string& name,
                             const LoadOptions& options)
    : state_(detail::compile_model(detail::read_model(onnx, name, options), options)) {}

const std::string& CompiledModel::name() const {
  return state_->name;
}

std::span<const TensorInfo> CompiledModel::inputs() const {
  return state_->inputs;
}

std::span<const TensorInfo> CompiledModel::outputs() const {
  return state_->outputs;
}

std::span<const std::string> CompiledModel::notes() const {
  return state_->notes;
}

const std::map<std::string, std::string>& CompiledModel::metadata() const {
  return state_->metadata;
}

int CompiledModel::devices() const {
  return static_cast<int>(state_->plans.size());
}

std::size_t CompiledModel::arena_bytes() const {
  return state_->plans[0]->arena_bytes();
}

ModelSession CompiledModel::session(int device) const {
  if (device < 0 || device >= devices())
    fail("{}: there is no device {}; it was compiled for {}", name(), device, devices());
  const std::shared_ptr<const ExecutionPlan>& plan = state_->plans[static_cast<std::size_t>(device)];
  auto state = naming(name(), [&] {
    return std::make_unique<detail::SessionState>(detail::SessionState{state_, Session(plan), {}, {}});
  });
  state->inputs.resize(state_->inputs.size());
  for (const TensorInfo& info : state_->outputs) {
    ArrayView& view = state->outputs.emplace_back();
    view.dtype = info.dtype;
    view.shape = info.shape;
  }
  return ModelSession(std::move(state));
}

}  // namespace pipit
