// Arrays of Python as those of pipit, without copies: NumPy's, and all that has DLPack or the buffer protocol.
#pragma once

#include <nanobind/ndarray.h>

#include <vector>

#include "python/src/casters.h"

namespace pipit::internal::python {

using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using OutputArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// DLPack's type.
nb::dlpack::dtype dlpack_type(DType type);

/// Arrays that are held as long as this.
struct Inputs {
  std::vector<InputArray> held;
  std::vector<ArrayView> views;  ///< of them
};

/// One array for each of `infos`. Elements in another order than row-major are copied. Throws ArgumentError naming the
/// input for another number of arrays, another type or shape, and for what is no array in the CPU's memory.
Inputs inputs_of(const nb::tuple& arrays, std::span<const TensorInfo> infos);

/// Arrays that a run writes to, held as long as this.
struct Outputs {
  std::vector<OutputArray> held;
  std::vector<MutableArrayView> views;  ///< of them
};

/// The same for arrays that outputs are written to; they must be writable and in row-major order.
Outputs outputs_of(const nb::sequence& arrays, std::span<const TensorInfo> infos);

/// Arrays in the memory of a GPU, held as long as this.
template <typename Array>
struct OnDevice {
  std::vector<Array> held;
  std::vector<DeviceArray> views;  ///< of them
};

/// One array for each of `infos`, as inputs_of(), in the memory of GPU `gpu`. Nothing is copied: they must be in
/// row-major order. DLPack's capsules are arrays, too.
OnDevice<nb::ndarray<nb::ro>> device_inputs_of(const nb::tuple& arrays, std::span<const TensorInfo> infos,
                                               int gpu);
/// The same for arrays that outputs are written to; they must be writable.
OnDevice<nb::ndarray<>> device_outputs_of(const nb::sequence& arrays, std::span<const TensorInfo> infos,
                                          int gpu);

}  // namespace pipit::internal::python
