/// @file
/// A model ready to run: tensors in, tensors out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/error.h"
#include "pipit/export.h"
#include "pipit/load_options.h"
#include "pipit/types.h"

namespace pipit {

/// @cond
namespace internal::detail {
struct PIPIT_API CompiledState;
struct PIPIT_API SessionState;
}  // namespace internal::detail
/// @endcond

/// How CompiledModel::reshaped() chooses kernels.
struct ReshapeOptions {
  /// On the CPU: layers run with the kernels of the original model wherever these accept the shapes, so that both
  /// models share all packed weights. False: kernels are chosen for the new shapes, which can be faster, but other
  /// kernels pack their own weights.
  bool same_kernels = true;
};

/// An input or output of a model.
struct TensorInfo {
  std::string name;          ///< in the model file
  DType dtype = DType::f32;  ///< never f16
  Shape shape;  ///< in the order of the file, for images mostly N, C, H, W; all extents are known
};

/// A dense array in row-major order (last dimension fastest) that the caller owns.
struct PIPIT_API ArrayView {
  DType dtype = DType::f32;    ///< of the elements
  Shape shape;                 ///< its extents
  const void* data = nullptr;  ///< shape.elements() elements

  /// No array.
  ArrayView() = default;
  /// A view of `values`, valid as long as they are. Throws Error when their number is not that of `extents`.
  template <typename T>
  ArrayView(std::span<const T> values, const Shape& extents)
      : dtype(DTypeOf<T>::value), shape(extents), data(values.data()) {
    check_count(values.size());
  }
  /// The same for a std::vector.
  template <typename T>
  ArrayView(const std::vector<T>& values, const Shape& extents)
      : ArrayView(std::span<const T>(values), extents) {}

  /// The elements. Throws Error when T is not their type.
  template <typename T>
  std::span<const T> values() const {
    check_type(DTypeOf<T>::value);
    return {static_cast<const T*>(data), static_cast<std::size_t>(shape.elements())};
  }

 private:
  void check_count(std::size_t count) const;
  void check_type(DType asked) const;
};

/// The same for writable memory: the destination of an output.
struct PIPIT_API MutableArrayView {
  DType dtype = DType::f32;  ///< of the elements
  Shape shape;               ///< its extents
  void* data = nullptr;      ///< room for shape.elements() elements

  /// No array.
  MutableArrayView() = default;
  /// A view of `values`, valid as long as they are. Throws Error when their number is not that of `extents`.
  template <typename T>
  MutableArrayView(std::span<T> values, const Shape& extents)
      : dtype(DTypeOf<T>::value), shape(extents), data(values.data()) {
    check_count(values.size());
  }
  /// The same for a std::vector.
  template <typename T>
  MutableArrayView(std::vector<T>& values, const Shape& extents)
      : MutableArrayView(std::span<T>(values), extents) {}

 private:
  void check_count(std::size_t count) const;
};

/// A dense array in row-major order in GPU memory that the caller owns: allocated on the GPU (cudaMalloc) or managed.
/// An input is only read.
struct DeviceArray {
  DType dtype = DType::f32;  ///< of the elements
  Shape shape;               ///< its extents
  void* data = nullptr;      ///< address on the GPU of shape.elements() elements

  /// No array.
  DeviceArray() = default;
  /// A view of shape.elements() elements at `values`, an address on the GPU.
  template <typename T>
  DeviceArray(T* values, const Shape& extents) : dtype(DTypeOf<T>::value), shape(extents), data(values) {}
};

/// A dense array in row-major order that owns its memory, which is aligned to 64 bytes. Can be moved, not copied.
class PIPIT_API Array {
 public:
  /// No array.
  Array() = default;
  /// Allocates an array with uninitialized elements.
  Array(DType dtype, const Shape& shape);
  /// A copy of the elements.
  explicit Array(const ArrayView& view);

  /// The type of the elements.
  DType dtype() const { return dtype_; }
  /// Its extents.
  const Shape& shape() const { return shape_; }
  /// A view, valid until the array's memory is freed or replaced by assignment; moving the array keeps it valid.
  operator ArrayView() const;
  /// A writable view.
  MutableArrayView view();
  /// The elements. Throws Error when T is not their type.
  template <typename T>
  std::span<const T> values() const {
    return static_cast<ArrayView>(*this).values<T>();
  }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  DType dtype_ = DType::f32;
  Shape shape_;
  std::unique_ptr<std::byte, Free> data_;
};

/// An array for the input named `name`.
struct NamedArray {
  std::string_view name;  ///< TensorInfo::name of an input
  ArrayView array;        ///< its values
};

/// One array for each input of a model, in any order: {{"image", pixels}, {"mask", mask}}. Valid as long as the list or
/// vector that it was made from; a list in a call, until the call returns.
class NamedArrays {
 public:
  /// From a list.
  NamedArrays(std::initializer_list<NamedArray> arrays) : arrays_(arrays.begin(), arrays.size()) {}
  /// From an array or a std::vector of them.
  explicit NamedArrays(std::span<const NamedArray> arrays) : arrays_(arrays) {}
  /// All arrays.
  std::span<const NamedArray> all() const { return arrays_; }

 private:
  std::span<const NamedArray> arrays_;
};

/// Memory for runs of a compiled model. One thread at a time may use a session; sessions of one model run in any number
/// of threads at once. It keeps what it needs of its model. Can be moved, not copied.
class PIPIT_API ModelSession {
 public:
  ModelSession(ModelSession&& other) noexcept;  ///< `other` may only be assigned to or destroyed after it.
  ModelSession& operator=(ModelSession&& other) noexcept;  ///< As the constructor.
  ~ModelSession();                                         ///< Frees its memory.

  /// Runs the model on one array for each of CompiledModel::inputs(), in that order, with exactly its type and shape.
  /// Returns one for each of outputs(), valid until the next run of this session, which must not read them: on the CPU
  /// it throws Error where an input lies in the session's memory. Allocates no memory (on a GPU: from the second run
  /// on). The same inputs give the same bits for any number of threads. Throws Error, beginning with the model, for
  /// another number of arrays, another type or shape, and for errors of the device.
  std::span<const ArrayView> run(std::span<const ArrayView> inputs);
  /// The same from a list: run({{pixels, shape}}).
  std::span<const ArrayView> run(std::initializer_list<ArrayView> inputs) {
    return run(std::span(inputs.begin(), inputs.size()));
  }
  /// The same by names: run({{"image", pixels}, {"mask", mask}}). Throws Error, listing the names, for an unknown name,
  /// a name given twice and a missing name.
  std::span<const ArrayView> run(const NamedArrays& inputs);

  /// Runs the model and writes its outputs to the caller's memory, one view for each of CompiledModel::outputs() with
  /// exactly its type and shape. On the CPU the last layer writes there directly if the memory is aligned to 64 bytes
  /// and the layer neither works in place nor joins results of other layers; otherwise, and on a GPU, each output is
  /// copied once. The bits are the same. Allocates nothing (on a GPU: from the second run on). Throws what the other
  /// run() does, and Error if an output overlaps an input, another output or this session's memory; then nothing is
  /// written. After an error of the run itself the contents of the outputs are unspecified.
  void run(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs);
  /// The same from lists: run({{pixels, shape}}, {{scores, Shape{1, 10}}}).
  void run(std::initializer_list<ArrayView> inputs, std::initializer_list<MutableArrayView> outputs) {
    run(std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()));
  }
  /// The same with inputs by names.
  void run(const NamedArrays& inputs, std::span<const MutableArrayView> outputs);

  /// On a GPU: queues a run on `stream`, a cudaStream_t of the session's GPU (null: the default stream), and returns
  /// without waiting for it. The run reads its inputs from memory of that GPU and writes its outputs there. Nothing is
  /// copied if the memory is aligned to 64 bytes (as from cudaMalloc) and outputs are as for run() with the caller's
  /// memory; otherwise there is one copy on the GPU. Runs of one session execute one after the other, whatever their
  /// streams. The session remembers the latest 8 sets of addresses. A run with other ones copies inputs and outputs on
  /// the GPU; the next one with the same takes as long as launching every kernel. Memory must stay valid until the run
  /// has ended. An error in the values
  /// of a run (an index out of range) is thrown by a later call of the session. Must not be called while `stream` is
  /// captured. Throws what run() does, and Error for a model on the CPU and for memory that is not the GPU's.
  void run_on_device(std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs,
                     void* stream = nullptr);

  /// Output `name` of the latest run, if it returned views; valid as long as these. Throws Error, listing the names, if
  /// there is no such output, and Error if no run has returned views or a later one wrote to the caller's memory.
  const ArrayView& output(std::string_view name) const;

 private:
  friend class CompiledModel;
  explicit ModelSession(std::unique_ptr<internal::detail::SessionState> state);
  std::unique_ptr<internal::detail::SessionState> state_;
};

/// A model with kernels chosen, weights packed and memory planned. Immutable: copies share it, and any number of
/// threads may use one. One that was moved from may only be assigned to or destroyed. Models may be loaded and run
/// until the process is gone: by destructors of static objects, and by detached threads while main() returns. A child
/// that fork() makes may run and free the models and sessions of its parent on a CPU, and load others; fork while no
/// other thread loads one.
class PIPIT_API CompiledModel {
 public:
  /// Reads and compiles a model: an ONNX file, or one of the names that `pipit models` lists. Throws Error naming the
  /// file and what is wrong with it or with `options`; UnsupportedError with every reason for a model that cannot run,
  /// and for a precision that nothing of it would compute in.
  explicit CompiledModel(const std::string& model, const LoadOptions& options = {});
  /// The same from the bytes of an ONNX file, which may refer to no other files; `name` stands for it in messages.
  CompiledModel(std::span<const std::byte> onnx, const std::string& name, const LoadOptions& options = {});

  /// As given to the constructor.
  const std::string& name() const;
  /// In the order of the file, as ModelSession::run() takes them.
  std::span<const TensorInfo> inputs() const;
  /// In the order of the file, as ModelSession::run() returns them.
  std::span<const TensorInfo> outputs() const;
  /// The position of the input called `name` in inputs(). Throws Error, listing the names, if there is none.
  std::size_t find_input(std::string_view name) const;
  /// The same for an output in outputs().
  std::size_t find_output(std::string_view name) const;
  /// What a user should know: rewrites that were not possible, a tuning cache of another machine, layers that stay in
  /// floating point. One sentence each.
  std::span<const std::string> notes() const;
  /// What the model's file says of itself, by key.
  const std::map<std::string, std::string>& metadata() const;
  /// The number of devices that have a copy: DeviceOptions::gpus, else 1.
  int devices() const;
  /// Bytes that a session needs for values between the layers.
  std::size_t arena_bytes() const;

  /// Allocates what a run needs on device `device` of devices(). Throws Error when there is no such device or the
  /// memory is not to be had.
  ModelSession session(int device = 0) const;

  /// The same model for other shapes, read again and compiled with otherwise the same options. On the CPU both share
  /// the packed weights that are equal, as all models of a process do: only layers with other kernels
  /// (ReshapeOptions::same_kernels) take memory for their own. Throws what the constructor does, and Error for a model
  /// that was loaded from bytes, which it does not keep, or by a Classifier: load such a model again, which also shares
  /// equal packed weights.
  CompiledModel reshaped(const RunShapes& shapes, const ReshapeOptions& options = {}) const;
  /// The same model for another number of samples.
  CompiledModel with_batch(std::int64_t batch) const;

  /// @cond
  explicit CompiledModel(std::shared_ptr<const internal::detail::CompiledState> state)
      : state_(std::move(state)) {}
  const internal::detail::CompiledState& state() const { return *state_; }
  /// @endcond

 private:
  std::shared_ptr<const internal::detail::CompiledState> state_;
};

}  // namespace pipit
