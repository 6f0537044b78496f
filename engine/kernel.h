// Kernel: what runs one node on one device in one precision.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "engine/layer.h"
#include "engine/thread_pool.h"
#include "pipit/types.h"

namespace pipit {

/// One node with everything that is known before the run. Valid only while a candidate is asked or created.
struct NodeSpec {
  const Layer& layer;
  std::span<const TensorDesc* const> inputs;  ///< null where an optional input is absent
  std::span<const TensorDesc> outputs;
  /// Per input: the constant, or null when it is computed at run time (or absent).
  std::span<const std::shared_ptr<const Tensor>> constants;
  Precision precision = Precision::fp32;
  int threads = 1;  ///< workers that will call run's parallel loops; sizes per-worker scratch
  int gpu = 0;      ///< ordinal of the GPU that is current while candidates are asked and kernels created
  /// Which of its ways to run the node a candidate shall create (Candidate::variants); empty: its own choice.
  std::string_view variant = {};

  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Tensor* constant(std::size_t i) const { return i < constants.size() ? constants[i].get() : nullptr; }
};

/// What a run hands to every kernel besides its operands.
struct RunContext {
  ThreadPool& pool;
  std::byte* scratch =
      nullptr;  ///< scratch_bytes() bytes, aligned (256 on a GPU, 64 on the CPU), contents unspecified
  void* stream = nullptr;  ///< on a GPU: the cudaStream_t to launch on; run() must not synchronise it
};

/// Where an input lies in an output that holds its rows (the elements of one pixel, say) one by one: bytes to its first
/// row, and from row to row.
struct RowPlace {
  std::size_t offset = 0;
  std::size_t stride = 0;
};

/// Created once per node: packs weights, builds descriptors, declares scratch. run() allocates nothing and
/// may be called by several sessions at once.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// False when run() never reads constant input `index` (it was packed at creation), so that the plan may
  /// release the original.
  virtual bool reads_constant(std::size_t /*index*/) const { return true; }
  /// Asked once, after creation, when output 0 is used by nothing but one input of `next`, whose other inputs are
  /// constants and whose one output is as large. True: from now on run() computes `next` as well and writes
  /// its output in place of output 0. May be asked again for what follows.
  virtual bool absorb(const NodeSpec& /*next*/) { return false; }
  /// Asked once, after absorb() and write_rows_apart(): whether output 0 may lie where input `index` does, which has
  /// its desc, is not read again, and shares no memory with another operand.
  virtual bool may_overwrite(std::size_t /*index*/) const { return false; }
  /// Where output 0 holds input `index` unchanged; nothing where it does not.
  virtual std::optional<RowPlace> place_of_input(std::size_t /*index*/) const { return std::nullopt; }
  /// Told once, after absorb(): the kernel before writes input `index` right to its place, where run() finds it.
  virtual void find_in_place(std::size_t /*index*/) {}
  /// Asked once, after absorb(), when output 0 is used by nothing but a kernel that has a place for it. True: from now
  /// on run() leaves `stride` bytes from the start of one row of channels of output 0 to that of the next, and leaves
  /// what lies between them alone.
  virtual bool write_rows_apart(std::size_t /*stride*/) { return false; }
  /// Asked once, after absorb() of both kernels, when input 0 is what `producer` computes and nothing else reads, and
  /// the other inputs are constants; `spec` is this kernel's node. True: this kernel has taken `producer` and what it
  /// needs of its own constants, and run() from now on gets the producer's inputs and computes both nodes piece by
  /// piece, so that what lies between them stays in a cache.
  virtual bool take_over(std::unique_ptr<Kernel>& /*producer*/, const NodeSpec& /*spec*/) { return false; }
  /// Computes the outputs. inputs[i] is not present() for an absent optional input or a released constant.
  virtual void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                   const RunContext& context) const = 0;
};

}  // namespace pipit
