/// @file
/// Many runs of a model at once, without any threads of the caller.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"

namespace pipit {

/// How runs are distributed over a machine, as by `pipit bench --streams`.
struct AsyncOptions {
  /// Number of runs that execute at once, each in its own session; 1 to 1024. 0: on the CPU, `threads` divided by the
  /// threads of a stream (the number that the model was compiled for if that is less than `threads`, else one); on
  /// GPUs one for each GPU, with copies that overlap with the computation of other runs.
  int streams = 0;
  /// On the CPU: number of threads of all streams together, at least the number of streams; 0: as
  /// DeviceOptions::threads.
  int threads = 0;
  /// Largest number of waiting runs, 1 to 65536; 0: four for each stream.
  int queue = 0;
};

/// Runs a model asynchronously: submit() puts a run into a queue and returns, and streams take runs from it, each in a
/// thread with its own ModelSession. Runs begin in the order of submission and may end in another order. The outputs
/// have the same bits as those of ModelSession::run(). Any number of threads may submit to one runner. A runner keeps
/// what it needs of its model. It can be moved, not copied; a moved-from runner may only be assigned to or destroyed.
/// In the child of a fork() it has no threads: there submit() and wait() throw Error, and queued runs are discarded.
class PIPIT_API AsyncRunner {
 public:
  /// Called when a run has ended, in a thread of the runner, with null after success and otherwise with the exception.
  using Done = std::function<void(std::exception_ptr error)>;

  /// Allocates the sessions and starts the streams. On the CPU throughput is best if the model was compiled for as many
  /// threads as one stream has (by default DeviceOptions::threads = 1), as the other constructor does. Throws
  /// ArgumentError for options out of range or more streams than threads, and Error if memory cannot be allocated.
  explicit AsyncRunner(const CompiledModel& model, const AsyncOptions& options = {});
  /// Loads the model for this use: DeviceOptions::threads is the number of threads of all streams together unless
  /// `options` sets it. Also throws what CompiledModel does.
  explicit AsyncRunner(const std::string& model, const LoadOptions& load = {},
                       const AsyncOptions& options = {});
  AsyncRunner(AsyncRunner&& other) noexcept;  ///< `other` may then only be assigned to or destroyed.
  AsyncRunner& operator=(AsyncRunner&& other) noexcept;  ///< First waits as the destructor does, then moves.
  /// Waits until all submitted runs have ended. An exception of a Done callback that wait() has not thrown is lost.
  ~AsyncRunner();

  /// Queues a run on one array for each of CompiledModel::inputs(), which are copied, and returns a future of its
  /// outputs. Waits while the queue is full. The future throws what ModelSession::run() would throw. Throws Error at
  /// once for an array without data.
  std::future<std::vector<Array>> submit(std::span<const ArrayView> inputs);
  /// The same from a list: submit({{pixels, shape}}).
  std::future<std::vector<Array>> submit(std::initializer_list<ArrayView> inputs) {
    return submit(std::span(inputs.begin(), inputs.size()));
  }
  /// The same without copies on the CPU (under the conditions of ModelSession::run() with the caller's memory): inputs
  /// and outputs stay in the caller's memory, which must stay valid until the future is ready.
  std::future<void> submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs);
  /// The same with a callback instead of a future. Allocates nothing if std::function allocates nothing for the
  /// callback. The callback may submit runs; if the queue is full this throws Error, because waiting might never end.
  /// An exception of the callback is stored, and the next wait() throws it.
  void submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs, Done done);

  /// Waits until all submitted runs have ended; then throws the first exception of a Done callback since the last
  /// wait(). Throws Error if called in a callback.
  void wait();

  /// Number of runs that execute at once.
  int streams() const;
  /// The model that it runs.
  const CompiledModel& model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipit
