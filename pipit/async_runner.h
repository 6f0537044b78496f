/// @file
/// Many runs of a model at once, without threads of the caller's own.
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

/// How runs are spread over a machine, as `pipit bench --streams` spreads them.
struct AsyncOptions {
  /// How many run at once, each in a session of its own; 1 to 1024. 0: on the CPU as many as `threads` allow, each with
  /// as many as the model was compiled for if that is less than all of them, else one; on GPUs one for each, whose
  /// copies overlap with the computation of others.
  int streams = 0;
  /// On the CPU: threads of all streams together, at least as many; 0: as LoadOptions::threads.
  int threads = 0;
  /// Runs that wait at most while all streams are busy, 1 to 65536; 0: four times as many as streams.
  int queue = 0;
};

/// Runs a model asynchronously: submit() puts a run into a queue and returns, and streams take runs from it, each in a
/// thread with a ModelSession of its own. They begin in the order of submission and may end in another one. The outputs
/// have the bits of ModelSession::run(). Any number of threads may submit to one runner. It keeps what it needs of its
/// model. Can be moved, not copied; one that was moved from may only be assigned to or destroyed. In the child of a
/// fork() it has no threads: there submit() and wait() throw Error, and what was queued is forgotten.
class PIPIT_API AsyncRunner {
 public:
  /// Called when a run has ended, in a thread of the runner: with null after success, else with what was thrown.
  using Done = std::function<void(std::exception_ptr error)>;

  /// Allocates the sessions and starts the streams. On the CPU throughput is best where the model was compiled for as
  /// few threads as a stream has (LoadOptions::threads = 1 by default), as the other constructor does. Throws
  /// ArgumentError for options out of range, or more streams than threads; Error when memory is not to be had.
  explicit AsyncRunner(const CompiledModel& model, const AsyncOptions& options = {});
  /// Loads the model for that: LoadOptions::threads is the number of all streams together unless `options` says it.
  /// Throws what CompiledModel does as well.
  explicit AsyncRunner(const std::string& model, const LoadOptions& load = {},
                       const AsyncOptions& options = {});
  AsyncRunner(AsyncRunner&& other) noexcept;  ///< `other` may only be assigned to or destroyed after it.
  AsyncRunner& operator=(AsyncRunner&& other) noexcept;  ///< As the destructor, then as the constructor.
  /// Waits until everything that was submitted has ended. What a Done callback has thrown and wait() has not is lost.
  ~AsyncRunner();

  /// Queues a run on one array for each of CompiledModel::inputs(), which are copied, and returns its outputs as they
  /// will be. Waits while the queue is full. What ModelSession::run() would throw, the future throws. Throws Error
  /// itself for an array without data.
  std::future<std::vector<Array>> submit(std::span<const ArrayView> inputs);
  /// The same from a list: submit({{pixels, shape}}).
  std::future<std::vector<Array>> submit(std::initializer_list<ArrayView> inputs) {
    return submit(std::span(inputs.begin(), inputs.size()));
  }
  /// The same without copies on the CPU (ModelSession::run() into the caller's memory says when): both inputs and
  /// outputs stay the caller's, and have to outlive the run, until the future is ready.
  std::future<void> submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs);
  /// The same with a callback, instead of a future, which allocates nothing if std::function needs nothing for it.
  /// The callback may submit runs; where the queue is full that throws Error, for waiting might never end. What it
  /// throws is kept: the next wait() throws it.
  void submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs, Done done);

  /// Waits until everything that was submitted has ended; then throws the first exception that a Done callback has
  /// thrown since the last wait(). Not to be called in a callback, where it throws Error.
  void wait();

  /// How many run at once.
  int streams() const;
  /// The model underneath.
  const CompiledModel& model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipit
