#include "python/src/device_outputs.h"

#include <nanobind/stl/pair.h>

#include <algorithm>

#include "python/src/arrays.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

// Pieces of memory that wait for the next run: as many addresses as a session keeps captured graphs for.
constexpr std::size_t kMaxUnused = 8;

// Array API standard, __dlpack__: the stream of the one who asks; None means CUDA's legacy default stream, -1 no order.
constexpr std::int64_t kNoOrder = -1;

// DLPack's capsule of an array, which is kept alive by it.
nb::object capsule_of(nb::handle self, const nb::object& stream, const nb::object& max_version,
                      const nb::object& dl_device, const nb::object& copy) {
  const auto& array = nb::cast<const OutputOnDevice&>(self);
  const std::int64_t wanted = stream.is_none() ? 0 : nb::cast<std::int64_t>(stream);
  if (wanted < kNoOrder)
    throw ArgumentError("stream=" + std::to_string(wanted) + ": expected a stream's handle, None or -1");
  if (wanted != kNoOrder)
    order_streams(array.gpu(), reinterpret_cast<void*>(array.stream()),
                  reinterpret_cast<void*>(static_cast<std::uintptr_t>(wanted)));
  const TensorInfo& info = array.info();
  std::vector<std::size_t> extents(info.shape.dims().begin(), info.shape.dims().end());
  const nb::ndarray<nb::array_api> exported(array.memory().data(), extents.size(), extents.data(), self,
                                            nullptr, dlpack_type(info.dtype), nb::device::cuda::value,
                                            array.gpu(), 'C');
  return nb::cast(exported).attr("__dlpack__")(nb::arg("max_version") = max_version,
                                               nb::arg("dl_device") = dl_device, nb::arg("copy") = copy);
}

std::string described(const OutputOnDevice& array) {
  std::string extents;
  for (const std::int64_t extent : array.info().shape.dims())
    extents += (extents.empty() ? "" : ", ") + std::to_string(extent);
  return "<pipit.DeviceArray " + array.info().name + ": " + std::string(word(array.info().dtype)) + "[" +
         extents + "] on cuda:" + std::to_string(array.gpu()) + ">";
}

}  // namespace

OutputMemory::OutputMemory(std::vector<TensorInfo> outputs, int gpu)
    : outputs_(std::move(outputs)), gpu_(gpu) {
  unused_.reserve(kMaxUnused * outputs_.size());
}

nb::list OutputMemory::arrays(void* stream, std::vector<DeviceArray>& views) {
  nb::list list;
  views.resize(outputs_.size());
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    const TensorInfo& info = outputs_[output];
    const auto found = std::ranges::find_if(
        unused_, [&](const Unused& unused) { return unused.output == output && unused.stream == stream; });
    GpuMemory memory;
    if (found != unused_.end()) {
      memory = std::move(found->memory);
      unused_.erase(found);
    } else {
      memory = GpuMemory(static_cast<std::size_t>(info.shape.elements()) * dtype_bytes(info.dtype), gpu_);
    }
    views[output].dtype = info.dtype;
    views[output].shape = info.shape;
    views[output].data = memory.data();
    list.append(nb::cast(new OutputOnDevice(shared_from_this(), output, stream, std::move(memory)),
                         nb::rv_policy::take_ownership));
  }
  return list;
}

void OutputMemory::give_back(std::size_t output, void* stream, GpuMemory memory) noexcept {
  if (unused_.size() == kMaxUnused * outputs_.size()) unused_.erase(unused_.begin());
  unused_.push_back({output, stream, std::move(memory)});
}

void bind_device_outputs(nb::module_& module) {
  nb::class_<OutputOnDevice>(
      module, "DeviceArray",
      "An output in the memory of a GPU, for libraries with DLPack: torch.from_dlpack(array).\n\n"
      "Its memory stays valid as long as the array or one of the arrays made of it. After that a later run "
      "on\n"
      "the same stream may write to it: work on other streams must have ended by then, or keep it alive.")
      .def_prop_ro(
          "name", [](const OutputOnDevice& array) { return array.info().name; }, "of the output")
      .def_prop_ro(
          "dtype", [](const OutputOnDevice& array) { return array.info().dtype; },
          "NumPy's name of the element type")
      .def_prop_ro(
          "shape", [](const OutputOnDevice& array) { return array.info().shape; }, "all extents")
      .def_prop_ro("device", &OutputOnDevice::gpu, "ordinal of the GPU")
      .def_prop_ro("stream", &OutputOnDevice::stream, "handle of the stream of its run")
      .def("__dlpack__", &capsule_of, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = "
                   "None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> "
                   "typing.Any"),
           "DLPack's capsule. Work that is queued on `stream` from now on begins after the run.")
      .def(
          "__dlpack_device__",
          [](const OutputOnDevice& array) { return std::pair(nb::device::cuda::value + 0, array.gpu()); },
          "(2, ordinal of the GPU)")
      .def("__repr__", &described);
}

}  // namespace pipit::internal::python
