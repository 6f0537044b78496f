// Models, sessions and tensors.
#include <algorithm>
#include <cstddef>

#include "pipit/capi/handles.h"

namespace pipit::internal::capi {

namespace {

// DLPack's numbers (dlpack.h: DLDeviceType, DLDataTypeCode).
constexpr std::int32_t kHost = 1;
constexpr std::int32_t kPinnedHost = 3;
constexpr std::int32_t kGpu = 2;
constexpr std::int32_t kManaged = 13;
constexpr std::uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBool = 6;
// And its layouts, where pointers have 64 bits.
static_assert(sizeof(void*) != 8 || sizeof(pipit_tensor) == 48);
static_assert(offsetof(pipit_tensor, device) == sizeof(void*) && sizeof(pipit_device) == 8);
static_assert(offsetof(pipit_tensor, ndim) == sizeof(void*) + 8 && sizeof(pipit_dtype) == 4);
static_assert(offsetof(pipit_tensor, dtype) == sizeof(void*) + 12);
static_assert(offsetof(pipit_tensor, shape) == sizeof(void*) + 16);
static_assert(offsetof(pipit_tensor, strides) == 2 * sizeof(void*) + 16);
static_assert(offsetof(pipit_tensor, byte_offset) == 3 * sizeof(void*) + 16);

constexpr pipit_dtype dlpack_type(DType type) {
  const auto bits = static_cast<std::uint8_t>(8 * dtype_bytes(type));
  switch (type) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16:
      return {kFloat, bits, 1};
    case DType::i8:
    case DType::i32:
    case DType::i64:
      return {kInt, bits, 1};
    case DType::u8:
      return {kUInt, bits, 1};
    case DType::boolean:
      return {kBool, bits, 1};
  }
  return {};
}

std::string type_text(const pipit_dtype& type) {
  return "(code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits, " +
         std::to_string(type.lanes) + " lanes)";
}

// An extent that is 1 may have any stride.
bool is_dense(const pipit_tensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr || shape.elements() == 0) return true;
  std::int64_t stride = 1;
  for (int axis = shape.rank(); axis-- > 0;) {
    if (shape[axis] != 1 && tensor.strides[axis] != stride) return false;
    stride *= shape[axis];
  }
  return true;
}

bool has_shape(const pipit_tensor& tensor, const Shape& shape) {
  return tensor.ndim == shape.rank() &&
         (tensor.ndim == 0 ||
          (tensor.shape != nullptr && std::equal(shape.dims().begin(), shape.dims().end(), tensor.shape)));
}

void check_count(std::size_t count, std::size_t expected, const char* what) {
  if (count != expected)
    throw ArgumentError(std::to_string(count) + " " + what + "s are given; the model has " +
                        std::to_string(expected));
}

std::string shape_text(const pipit_tensor& tensor) {
  if (tensor.ndim == 0) return "scalar";
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank) return "of " + std::to_string(tensor.ndim) + " dimensions";
  if (tensor.shape == nullptr) return "NULL";
  std::string text;
  for (std::int32_t axis = 0; axis < tensor.ndim; ++axis)
    text += (axis == 0 ? "" : "x") + std::to_string(tensor.shape[axis]);
  return text;
}

}  // namespace

void describe(const TensorInfo& info, pipit_tensor& tensor) noexcept {
  tensor = {};
  tensor.device.device_type = kHost;
  tensor.ndim = info.shape.rank();
  tensor.dtype = dlpack_type(info.dtype);
  tensor.shape = const_cast<std::int64_t*>(info.shape.dims().data());  // DLTensor has no const
}

ArrayView array_of(const pipit_tensor& tensor, const TensorInfo& info, const char* what, MemoryKind memory) {
  const auto refuse = [&](const std::string& why) -> void {
    throw ArgumentError(std::string(what) + " '" + info.name + "': " + why);
  };
  const bool host = memory == MemoryKind::host;
  const std::int32_t type_of_device = tensor.device.device_type;
  if (type_of_device != (host ? kHost : kGpu) && type_of_device != (host ? kPinnedHost : kManaged))
    refuse("its memory is of device type " + std::to_string(type_of_device) +
           (host ? "; expected host memory, 1 or 3" : "; expected memory of a GPU, 2 or 13"));
  const pipit_dtype type = dlpack_type(info.dtype);
  if (tensor.dtype.code != type.code || tensor.dtype.bits != type.bits || tensor.dtype.lanes != type.lanes)
    refuse("its type is " + type_text(tensor.dtype) + "; expected " + std::string(dtype_name(info.dtype)) +
           ", " + type_text(type));
  if (!has_shape(tensor, info.shape))
    refuse("its shape is " + shape_text(tensor) + "; expected " + info.shape.str());
  if (!is_dense(tensor, info.shape)) refuse("its strides leave gaps or another order than row-major");
  if (tensor.data == nullptr && info.shape.elements() != 0) refuse("its data is NULL");
  ArrayView view;
  view.dtype = info.dtype;
  view.shape = info.shape;
  view.data = tensor.data == nullptr ? nullptr : static_cast<const char*>(tensor.data) + tensor.byte_offset;
  return view;
}

void arrays_of(const pipit_tensor* tensors, std::size_t count, std::span<const TensorInfo> infos,
               const char* what, std::vector<ArrayView>& arrays) {
  check_count(count, infos.size(), what);
  if (count > 0) need(tensors, (std::string(what) + "s").c_str());
  arrays.resize(count);
  for (std::size_t i = 0; i < count; ++i) arrays[i] = array_of(tensors[i], infos[i], what);
}

namespace {

void describe_one(const pipit_model* model, std::span<const TensorInfo> (CompiledModel::*all)() const,
                  const char* what, std::size_t index, const char** name, pipit_tensor* tensor) {
  need(model, "model");
  need(tensor, "tensor");
  const std::span<const TensorInfo> infos = (model->model.*all)();
  if (index >= infos.size())
    throw ArgumentError("there is no " + std::string(what) + " " + std::to_string(index) +
                        "; the model has " + std::to_string(infos.size()));
  if (name != nullptr) *name = infos[index].name.c_str();
  describe(infos[index], *tensor);
}

void find(const pipit_model* model, std::span<const TensorInfo> (CompiledModel::*all)() const,
          const char* what, const char* name, size_t* index) {
  need(model, "model");
  need(name, "name");
  need(index, "index");
  std::string names;
  const std::span<const TensorInfo> infos = (model->model.*all)();
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].name == name) {
      *index = i;
      return;
    }
    names += (i == 0 ? "'" : ", '") + infos[i].name + "'";
  }
  throw ArgumentError("there is no " + std::string(what) + " '" + name + "'; the model has " +
                      (names.empty() ? "none" : names));
}

void mutable_arrays_of(const pipit_tensor* tensors, std::size_t count, std::span<const TensorInfo> infos,
                       std::vector<MutableArrayView>& arrays) {
  check_count(count, infos.size(), "output");
  if (count > 0) need(tensors, "outputs");
  arrays.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ArrayView array = array_of(tensors[i], infos[i], "output");
    arrays[i].dtype = array.dtype;
    arrays[i].shape = array.shape;
    arrays[i].data = const_cast<void*>(array.data);  // DLTensor's are
  }
}

void call_done(pipit_run_done done, void* user, const std::exception_ptr& error) {
  if (!error) return done(user, nullptr);
  pipit_status* status = nullptr;
  try {
    std::rethrow_exception(error);
  } catch (...) {
    report(&status);
  }
  done(user, status);
  pipit_status_free(status);
}

void device_arrays_of(const pipit_tensor* tensors, std::size_t count, std::span<const TensorInfo> infos,
                      const char* what, std::vector<DeviceArray>& arrays) {
  check_count(count, infos.size(), what);
  if (count > 0) need(tensors, (std::string(what) + "s").c_str());
  arrays.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ArrayView array = array_of(tensors[i], infos[i], what, MemoryKind::gpu);
    arrays[i].dtype = array.dtype;
    arrays[i].shape = array.shape;
    arrays[i].data = const_cast<void*>(array.data);
  }
}

std::span<const ArrayView> run(pipit_session& session, const pipit_tensor* inputs, std::size_t count) {
  arrays_of(inputs, count, session.model.inputs(), "input", session.inputs);
  return session.session.run(session.inputs);
}

void check_outputs(const pipit_session& session, const pipit_tensor* outputs, std::size_t count) {
  check_count(count, session.model.outputs().size(), "output");
  if (count > 0) need(outputs, "outputs");
}

}  // namespace

}  // namespace pipit::internal::capi

using namespace pipit;
using namespace pipit::internal::capi;

namespace {

LoadOptions reporting_load_options(const pipit_options& all) {
  LoadOptions load = load_options(all);
  load.progress = all.progress.of_stages();
  return load;
}

}  // namespace

pipit_model* pipit_model_load(const char* model, const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    return new pipit_model{CompiledModel(model, reporting_load_options(given(options)))};
  });
}

pipit_model* pipit_model_load_bytes(const void* bytes, size_t size, const char* name,
                                    const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(bytes, "bytes");
    need(name, "name");
    const std::span onnx(static_cast<const std::byte*>(bytes), size);
    return new pipit_model{CompiledModel(onnx, name, reporting_load_options(given(options)))};
  });
}

void pipit_model_free(pipit_model* model) {
  delete model;
}

const char* pipit_model_name(const pipit_model* model) {
  return model != nullptr ? model->model.name().c_str() : nullptr;
}

size_t pipit_model_input_count(const pipit_model* model) {
  return model != nullptr ? model->model.inputs().size() : 0;
}

size_t pipit_model_output_count(const pipit_model* model) {
  return model != nullptr ? model->model.outputs().size() : 0;
}

pipit_code pipit_model_input(const pipit_model* model, size_t index, const char** name, pipit_tensor* tensor,
                             pipit_status** status) {
  return done(status, [&] { describe_one(model, &CompiledModel::inputs, "input", index, name, tensor); });
}

pipit_code pipit_model_output(const pipit_model* model, size_t index, const char** name, pipit_tensor* tensor,
                              pipit_status** status) {
  return done(status, [&] { describe_one(model, &CompiledModel::outputs, "output", index, name, tensor); });
}

pipit_code pipit_model_find_input(const pipit_model* model, const char* name, size_t* index,
                                  pipit_status** status) {
  return done(status, [&] { find(model, &CompiledModel::inputs, "input", name, index); });
}

pipit_code pipit_model_find_output(const pipit_model* model, const char* name, size_t* index,
                                   pipit_status** status) {
  return done(status, [&] { find(model, &CompiledModel::outputs, "output", name, index); });
}

size_t pipit_model_note_count(const pipit_model* model) {
  return model != nullptr ? model->model.notes().size() : 0;
}

const char* pipit_model_note(const pipit_model* model, size_t index) {
  return model != nullptr ? text_at(model->model.notes(), index) : nullptr;
}

const char* pipit_model_metadata(const pipit_model* model, const char* key) {
  if (model == nullptr || key == nullptr) return nullptr;
  for (const auto& [name, value] : model->model.metadata()) {
    if (name == key) return value.c_str();
  }
  return nullptr;
}

int pipit_model_device_count(const pipit_model* model) {
  return model != nullptr ? model->model.devices() : 0;
}

size_t pipit_model_arena_bytes(const pipit_model* model) {
  return model != nullptr ? model->model.arena_bytes() : 0;
}

pipit_session* pipit_session_new(const pipit_model* model, int device, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    if (device < 0 || device >= model->model.devices())
      throw ArgumentError("device is " + std::to_string(device) + "; the model was compiled for " +
                          std::to_string(model->model.devices()));
    return new pipit_session{model->model, model->model.session(device), {}, {}, {}, {}};
  });
}

void pipit_session_free(pipit_session* session) {
  delete session;
}

pipit_code pipit_session_run(pipit_session* session, const pipit_tensor* inputs, size_t input_count,
                             const pipit_tensor* outputs, size_t output_count, pipit_status** status) {
  return done(status, [&] {
    need(session, "session");
    mutable_arrays_of(outputs, output_count, session->model.outputs(), session->outputs);
    arrays_of(inputs, input_count, session->model.inputs(), "input", session->inputs);
    session->session.run(session->inputs, session->outputs);
  });
}

pipit_code pipit_session_run_views(pipit_session* session, const pipit_tensor* inputs, size_t input_count,
                                   pipit_tensor* outputs, size_t output_count, pipit_status** status) {
  return done(status, [&] {
    need(session, "session");
    check_outputs(*session, outputs, output_count);
    const std::span<const ArrayView> results = run(*session, inputs, input_count);
    for (std::size_t i = 0; i < output_count; ++i) {
      describe(session->model.outputs()[i], outputs[i]);
      outputs[i].data = const_cast<void*>(results[i].data);
    }
  });
}

pipit_code pipit_session_run_on_stream(pipit_session* session, const pipit_tensor* inputs, size_t input_count,
                                       const pipit_tensor* outputs, size_t output_count, void* stream,
                                       pipit_status** status) {
  return done(status, [&] {
    need(session, "session");
    device_arrays_of(inputs, input_count, session->model.inputs(), "input", session->device_inputs);
    device_arrays_of(outputs, output_count, session->model.outputs(), "output", session->device_outputs);
    session->session.run_on_device(session->device_inputs, session->device_outputs, stream);
  });
}

pipit_runner* pipit_runner_new(const pipit_model* model, int streams, int threads, int queue,
                               pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    return new pipit_runner{
        AsyncRunner(model->model, {.streams = streams, .threads = threads, .queue = queue})};
  });
}

void pipit_runner_free(pipit_runner* runner) {
  delete runner;
}

pipit_code pipit_runner_submit(pipit_runner* runner, const pipit_tensor* inputs, size_t input_count,
                               const pipit_tensor* outputs, size_t output_count, pipit_run_done done_call,
                               void* user, pipit_status** status) {
  return done(status, [&] {
    need(runner, "runner");
    // Of the thread, so that a call allocates nothing after its first ones.
    thread_local std::vector<ArrayView> arrays;
    thread_local std::vector<MutableArrayView> into;
    const CompiledModel& model = runner->runner.model();
    mutable_arrays_of(outputs, output_count, model.outputs(), into);
    arrays_of(inputs, input_count, model.inputs(), "input", arrays);
    runner->runner.submit(arrays, into, [done_call, user](const std::exception_ptr& error) {
      if (done_call != nullptr) call_done(done_call, user, error);
    });
  });
}

pipit_code pipit_runner_wait(pipit_runner* runner, pipit_status** status) {
  return done(status, [&] {
    need(runner, "runner");
    runner->runner.wait();
  });
}
