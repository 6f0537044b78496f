#include "pipit/compiled_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/base/error.h"
#include "engine/plan/memory_planner.h"
#include "engine/runtime/session.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/load.h"

namespace pipit {

using namespace internal;

namespace internal::detail {

struct SessionState {
  std::shared_ptr<const CompiledState> model;
  Session session;
  std::vector<ConstTensorView> inputs;
  std::vector<ArrayView> outputs;
  std::vector<TensorView> into;  // outputs in the caller's memory
  std::vector<ArrayView> named;  // inputs that were given by name
  bool has_views = false;        // the latest run has returned `outputs`
};

}  // namespace internal::detail

namespace {

using detail::SessionState;

std::size_t position(const std::string& model, const char* what, std::span<const TensorInfo> infos,
                     std::string_view name) {
  const auto found = std::ranges::find(infos, name, &TensorInfo::name);
  if (found != infos.end()) return static_cast<std::size_t>(found - infos.begin());
  std::string names;
  for (const TensorInfo& info : infos) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", info.name);
  throw ArgumentError(fmt::format("{}: there is no {} '{}'; there {} {}", model, what, name,
                                  infos.size() == 1 ? "is" : "are", names.empty() ? "none" : names));
}

// Where empty arrays may point.
template <typename Byte>
Byte* data_of(const Shape& shape, Byte* data) {
  static std::byte nothing{};
  return data == nullptr && shape.elements() == 0 ? &nothing : data;
}

template <typename View>
void take_inputs(SessionState& state, std::span<const View> inputs) {
  const detail::CompiledState& model = *state.model;
  if (inputs.size() != model.inputs.size())
    throw ArgumentError(
        fmt::format("{}: got {} inputs, expected {}", model.name, inputs.size(), model.inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const View& given = inputs[i];
    detail::check_enumerator("dtype of an input", given.dtype, DType::bf16);
    state.inputs[i] = {TensorDesc{given.shape, given.dtype},
                       data_of(given.shape, static_cast<const std::byte*>(given.data))};
  }
}

template <typename View>
void take_outputs(SessionState& state, std::span<const View> outputs) {
  const detail::CompiledState& model = *state.model;
  if (outputs.size() != model.outputs.size())
    throw ArgumentError(fmt::format("{}: got memory for {} outputs, expected {}", model.name, outputs.size(),
                                    model.outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const View& given = outputs[i];
    detail::check_enumerator("dtype of an output", given.dtype, DType::bf16);
    state.into[i] = {TensorDesc{given.shape, given.dtype},
                     data_of(given.shape, static_cast<std::byte*>(given.data))};
  }
}

DType checked(DType dtype) {
  detail::check_enumerator("dtype", dtype, DType::bf16);
  return dtype;
}

std::span<const ArrayView> in_order(SessionState& state, const NamedArrays& inputs) {
  const detail::CompiledState& model = *state.model;
  std::ranges::fill(state.named, ArrayView());
  std::vector<ArrayView>& named = state.named;
  for (const NamedArray& given : inputs.all()) {
    const std::size_t i = position(model.name, "input", model.inputs, given.name);
    const auto same = [&](const NamedArray& other) { return other.name == given.name; };
    if (std::ranges::count_if(inputs.all(), same) > 1)
      throw ArgumentError(fmt::format("{}: input '{}' is given twice", model.name, given.name));
    named[i] = given.array;
  }
  for (const TensorInfo& info : model.inputs) {
    if (std::ranges::find(inputs.all(), info.name, &NamedArray::name) == inputs.all().end())
      throw ArgumentError(fmt::format("{}: input '{}' is not given; it is {} {}", model.name, info.name,
                                      dtype_name(info.dtype), info.shape.str()));
  }
  return named;
}

}  // namespace

void ArrayView::check_count(std::size_t count) const {
  if (static_cast<std::int64_t>(count) != shape.elements())
    throw ArgumentError(fmt::format("{} values given for an array of shape {}", count, shape.str()));
}

void MutableArrayView::check_count(std::size_t count) const {
  if (static_cast<std::int64_t>(count) != shape.elements())
    throw ArgumentError(fmt::format("room for {} values given for an array of shape {}", count, shape.str()));
}

void ArrayView::check_type(DType asked) const {
  if (asked != dtype)
    throw ArgumentError(fmt::format("array of {} read as {}", dtype_name(dtype), dtype_name(asked)));
}

Array::Array(DType dtype, const Shape& shape)
    : dtype_(checked(dtype)),
      shape_(shape),
      data_(static_cast<std::byte*>(
          ::operator new (TensorDesc{shape, dtype}.bytes(), std::align_val_t{kArenaAlignment}))) {}

Array::Array(const ArrayView& view) : Array(view.dtype, view.shape) {
  const std::size_t bytes = TensorDesc{shape_, dtype_}.bytes();
  if (bytes == 0) return;
  if (view.data == nullptr)
    throw ArgumentError(fmt::format("array of {} {} without data", dtype_name(dtype_), shape_.str()));
  std::memcpy(data_.get(), view.data, bytes);
}

void Array::Free::operator()(std::byte* data) const {
  ::operator delete (data, std::align_val_t{kArenaAlignment});
}

Array::operator ArrayView() const {
  ArrayView view;
  view.dtype = dtype_;
  view.shape = shape_;
  view.data = data_.get();
  return view;
}

MutableArrayView Array::view() {
  MutableArrayView view;
  view.dtype = dtype_;
  view.shape = shape_;
  view.data = data_.get();
  return view;
}

ModelSession::ModelSession(std::unique_ptr<detail::SessionState> state) : state_(std::move(state)) {}
ModelSession::ModelSession(ModelSession&& other) noexcept = default;
ModelSession& ModelSession::operator=(ModelSession&& other) noexcept = default;
ModelSession::~ModelSession() = default;

std::span<const ArrayView> ModelSession::run(std::span<const ArrayView> inputs) {
  SessionState& state = *state_;
  take_inputs(state, inputs);
  state.has_views = false;
  const auto outputs = naming(state.model->name, [&] { return state.session.run(state.inputs); });
  for (std::size_t i = 0; i < outputs.size(); ++i) state.outputs[i].data = outputs[i].data;
  state.has_views = true;
  return state.outputs;
}

std::span<const ArrayView> ModelSession::run(const NamedArrays& inputs) {
  return run(in_order(*state_, inputs));
}

void ModelSession::run(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs) {
  SessionState& state = *state_;
  take_inputs(state, inputs);
  take_outputs(state, outputs);
  state.has_views = false;
  naming(state.model->name, [&] { state.session.run(state.inputs, state.into); });
}

void ModelSession::run(const NamedArrays& inputs, std::span<const MutableArrayView> outputs) {
  run(in_order(*state_, inputs), outputs);
}

void ModelSession::run_on_device(std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs,
                                 void* stream) {
  SessionState& state = *state_;
  take_inputs(state, inputs);
  take_outputs(state, outputs);
  naming(state.model->name, [&] { state.session.run_on_device(state.inputs, state.into, stream); });
}

const ArrayView& ModelSession::output(std::string_view name) const {
  const detail::CompiledState& model = *state_->model;
  const std::size_t i = position(model.name, "output", model.outputs, name);
  if (!state_->has_views)
    throw ArgumentError(
        fmt::format("{}: no output '{}' yet: call a run() that returns views first", model.name, name));
  return state_->outputs[i];
}

CompiledModel::CompiledModel(const std::string& model, const LoadOptions& options)
    : state_(detail::read_and_compile(model, options)) {}

CompiledModel::CompiledModel(std::span<const std::byte> onnx, const std::string& name,
                             const LoadOptions& options)
    : state_(detail::read_and_compile(onnx, name, options)) {}

CompiledModel CompiledModel::reshaped(const RunShapes& shapes, const ReshapeOptions& how) const {
  if (!state_->source)
    fail(
        "{}: the model was loaded from bytes, which it does not keep, or by a Classifier: load it again for "
        "the "
        "other shapes",
        name());
  LoadOptions options = state_->options;
  options.shapes = shapes;
  const ExecutionPlan* like = how.same_kernels ? state_->plans[0].get() : nullptr;
  const std::shared_ptr<detail::CompiledState> state = detail::compile_model(
      detail::read_model(*state_->source, options), options, {.preprocess = nullptr, .like = like});
  state->source = state_->source;
  return CompiledModel(state);
}

CompiledModel CompiledModel::with_batch(std::int64_t batch) const {
  RunShapes shapes{.batch = batch, .dimensions = state_->options.shapes.dimensions};
  for (const auto& [input, shape] : state_->options.shapes.inputs) {
    const Shape& first = inputs()[0].shape;  // there are inputs where they have shapes
    const bool has_batch = shape.rank() > 0 && first.rank() > 0 && shape[0] == first[0];
    shapes.inputs.emplace(input, has_batch ? shape.with(0, batch) : shape);
  }
  return reshaped(shapes);
}

const std::string& CompiledModel::name() const {
  return state_->name;
}

std::span<const TensorInfo> CompiledModel::inputs() const {
  return state_->inputs;
}

std::span<const TensorInfo> CompiledModel::outputs() const {
  return state_->outputs;
}

std::size_t CompiledModel::find_input(std::string_view name) const {
  return position(state_->name, "input", state_->inputs, name);
}

std::size_t CompiledModel::find_output(std::string_view name) const {
  return position(state_->name, "output", state_->outputs, name);
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
    throw ArgumentError(
        fmt::format("{}: there is no device {}; it was compiled for {}", name(), device, devices()));
  const std::shared_ptr<const ExecutionPlan>& plan = state_->plans[static_cast<std::size_t>(device)];
  auto state = naming(name(), [&] {
    return std::make_unique<SessionState>(SessionState{.model = state_, .session = Session(plan)});
  });
  state->inputs.resize(state_->inputs.size());
  state->named.resize(state_->inputs.size());
  state->into.resize(state_->outputs.size());
  for (const TensorInfo& info : state_->outputs) {
    ArrayView& view = state->outputs.emplace_back();
    view.dtype = info.dtype;
    view.shape = info.shape;
  }
  return ModelSession(std::move(state));
}

}  // namespace pipit
