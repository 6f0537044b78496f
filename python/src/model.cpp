// Models and sessions. python/pipit/_model.py has what users see of them.
#include <atomic>

#include "python/src/arrays.h"
#include "python/src/device_outputs.h"
#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

// A session and the model that it is of; one thread at a time.
class Session {
 public:
  /// `gpu`: that device's ordinal; negative on a CPU.
  Session(const CompiledModel& model, int device, int gpu)
      : model_(model), session_(model.session(device)), gpu_(gpu) {
    const auto outputs = model.outputs();
    if (gpu >= 0) memory_ = std::make_shared<OutputMemory>(std::vector(outputs.begin(), outputs.end()), gpu);
  }

  /// Writes the outputs to `outputs`. The GIL is released while the model runs.
  void run(const nb::tuple& arrays, const nb::sequence& outputs) {
    const Use use(busy_, model_.name());
    const Inputs inputs = inputs_of(arrays, model_.inputs());
    const Outputs results = outputs_of(outputs, model_.outputs());
    const nb::gil_scoped_release release;
    session_.run(inputs.views, results.views);
  }

  /// Queues a run on `stream`, a handle of CUDA's, and returns its outputs, which are `outputs` unless that is None.
  /// The GIL is released while the run is queued.
  nb::object run_on_device(const nb::tuple& arrays, const nb::object& outputs, std::uintptr_t stream) {
    const Use use(busy_, model_.name());
    auto* const queue = reinterpret_cast<void*>(stream);
    const auto inputs = device_inputs_of(arrays, model_.inputs(), gpu_);
    OnDevice<nb::ndarray<>> given;
    nb::object results = outputs;
    if (outputs.is_none()) {
      results = memory_->arrays(queue, given.views);
    } else {
      given = device_outputs_of(nb::cast<nb::sequence>(outputs), model_.outputs(), gpu_);
    }
    const nb::gil_scoped_release release;
    session_.run_on_device(inputs.views, given.views, queue);
    return results;
  }

 private:
  struct Use {
    Use(std::atomic_flag& flag, const std::string& model) : busy(flag) {
      if (busy.test_and_set())
        throw Error(model + ": another thread uses this session; give each thread a session of its own");
    }
    ~Use() { busy.clear(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    std::atomic_flag& busy;
  };

  CompiledModel model_;
  ModelSession session_;
  int gpu_;
  std::shared_ptr<OutputMemory> memory_;  // null on a CPU
  std::atomic_flag busy_;
};

CompiledModel load(const std::string& model, const LoadOptions& options) {
  return run_long(nb::none(), nb::none(), [model, how = options](LongWork& work) mutable {
    how.progress = stages_of(work);
    return CompiledModel(model, how);
  });
}

CompiledModel load_bytes(const nb::bytes& onnx, const std::string& name, const LoadOptions& options) {
  const auto* begin = static_cast<const std::byte*>(onnx.data());
  return run_long(nb::none(), nb::none(),
                  [file = std::vector<std::byte>(begin, begin + onnx.size()), name,
                   how = options](LongWork& work) mutable {
                    how.progress = stages_of(work);
                    return CompiledModel(file, name, how);
                  });
}

tools::ModelProfile profile(const CompiledModel& model, const nb::tuple& arrays,
                            const tools::ProfileOptions& options) {
  const Inputs inputs = arrays.size() > 0 ? inputs_of(arrays, model.inputs()) : Inputs{};
  // Copies: the caller may leave before the work has ended.
  std::vector<std::vector<std::byte>> copies;
  for (std::size_t i = 0; i < inputs.held.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(inputs.views[i].data);
    copies.emplace_back(begin, begin + inputs.held[i].nbytes());
  }
  return run_long(
      nb::none(), nb::none(),
      [model, how = options, copies = std::move(copies), views = inputs.views](LongWork& work) mutable {
        how.progress = stages_of(work);
        for (std::size_t i = 0; i < views.size(); ++i) views[i].data = copies[i].data();
        return tools::profile(model, views, how);
      });
}

tools::InspectedModel inspect(const CompiledModel& model, bool why) {
  const nb::gil_scoped_release release;
  return tools::inspect(model, {.why = why});
}

CompiledModel reshaped(const CompiledModel& model, const RunShapes& shapes, bool same_kernels) {
  return run_long(nb::none(), nb::none(),
                  [=](LongWork&) { return model.reshaped(shapes, {.same_kernels = same_kernels}); });
}

CompiledModel with_batch(const CompiledModel& model, std::int64_t batch) {
  return run_long(nb::none(), nb::none(), [=](LongWork&) { return model.with_batch(batch); });
}

template <typename Container>
nb::tuple tuple_of(const Container& values) {
  nb::list list;
  for (const auto& value : values) list.append(nb::cast(value));
  return nb::tuple(list);
}

}  // namespace

void bind_model(nb::module_& module) {
  ResultFields<TensorInfo>(module, "TensorInfo", "An input or output of a model.")
      .field("name", &TensorInfo::name, "in the model file")
      .field("dtype", &TensorInfo::dtype, "NumPy's name of the element type, 'float32'")
      .field("shape", &TensorInfo::shape, "all extents, for images mostly N, C, H, W");

  OptionFields<RunShapes>(module, "RunShapes", "pipit::RunShapes")
      .field("batch", &RunShapes::batch)
      .field("dimensions", &RunShapes::dimensions)
      .field("shapes", &RunShapes::inputs);

  nb::class_<Session>(module, "Session", "pipit::ModelSession")
      .def("run", &Session::run, nb::arg("inputs"), nb::arg("outputs"),
           nb::sig(
               "def run(self, inputs: tuple[typing.Any, ...], outputs: typing.Sequence[typing.Any]) -> None"))
      .def("run_on_device", &Session::run_on_device, nb::arg("inputs"), nb::arg("outputs").none(),
           nb::arg("stream"),
           nb::sig("def run_on_device(self, inputs: tuple[typing.Any, ...], outputs: "
                   "typing.Sequence[typing.Any] | None, stream: int) -> list[typing.Any]"));

  nb::class_<CompiledModel>(module, "CompiledModel", "pipit::CompiledModel")
      .def_prop_ro("name", &CompiledModel::name)
      .def_prop_ro(
          "inputs", [](const CompiledModel& model) { return tuple_of(model.inputs()); },
          nb::sig("def inputs(self) -> tuple[TensorInfo, ...]"))
      .def_prop_ro(
          "outputs", [](const CompiledModel& model) { return tuple_of(model.outputs()); },
          nb::sig("def outputs(self) -> tuple[TensorInfo, ...]"))
      .def_prop_ro(
          "notes", [](const CompiledModel& model) { return tuple_of(model.notes()); },
          nb::sig("def notes(self) -> tuple[str, ...]"))
      .def_prop_ro("metadata", &CompiledModel::metadata)
      .def_prop_ro("devices", &CompiledModel::devices)
      .def_prop_ro("arena_bytes", &CompiledModel::arena_bytes)
      .def(
          "session",
          [](const CompiledModel& model, int device, int gpu) { return new Session(model, device, gpu); },
          nb::arg("device") = 0, nb::arg("gpu") = -1)
      .def("reshaped", &reshaped, nb::arg("shapes"), nb::arg("same_kernels"))
      .def("with_batch", &with_batch, nb::arg("batch"));

  module.def("load", &load, nb::arg("model"), nb::arg("options"));
  module.def("load_bytes", &load_bytes, nb::arg("onnx"), nb::arg("name"), nb::arg("options"));
  module.def("inspect", &inspect, nb::arg("model"), nb::arg("why"));
  module.def(
      "profile", &profile, nb::arg("model"), nb::arg("inputs"), nb::arg("options"),
      nb::sig("def profile(model: CompiledModel, inputs: tuple[typing.Any, ...], options: ProfileOptions) -> "
              "Profile"));
}

}  // namespace pipit::internal::python
