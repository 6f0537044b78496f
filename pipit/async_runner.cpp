#include "pipit/async_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/platform/thread_pool.h"
#include "engine/runtime/session.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/load.h"

namespace pipit {

using namespace internal;

namespace internal::detail {

// Streams and the threads of all of them.
struct Spread {
  int streams = 1;
  int threads = 1;
  int of_stream(int s) const { return threads / streams + (s < threads % streams ? 1 : 0); }
};

struct AsyncJob {
  std::vector<ArrayView> inputs;
  std::vector<MutableArrayView> outputs;
  AsyncRunner::Done done;
};

}  // namespace internal::detail

namespace {

using detail::check_range;
using detail::Spread;
using Job = detail::AsyncJob;

// One computes, one is copied to the GPU, one is filled.
constexpr int kSlots = 3;

// `of_run`: threads of a stream that the model was compiled for; 0: to be chosen.
Spread spread_over_cpu(const AsyncOptions& options, int of_run) {
  check_range("streams", options.streams, 0, 1024);
  check_range("threads", options.threads, 0, 1024);
  check_range("queue", options.queue, 0, 65536);
  Spread spread;
  spread.threads = options.threads > 0 ? options.threads : default_threads();
  const int wanted = of_run > 0 && of_run < spread.threads ? of_run : 1;
  spread.streams = options.streams > 0 ? options.streams : spread.threads / wanted;
  if (spread.streams > spread.threads)
    throw ArgumentError(
        fmt::format("{} streams and {} threads: each stream needs its own thread; threads = {}",
                    spread.streams, spread.threads, spread.streams));
  if (of_run > 0) spread.threads = std::min(spread.threads, spread.streams * of_run);
  return spread;
}

CompiledModel load_for(const std::string& model, LoadOptions load, AsyncOptions& options) {
  if (load.device.kind == DeviceKind::cpu) {
    if (options.threads == 0) options.threads = load.device.threads;
    const Spread spread = spread_over_cpu(options, 0);
    load.device.threads = spread.of_stream(0);
    options.threads = spread.threads;
    options.streams = spread.streams;
  }
  return CompiledModel(model, load);
}

template <typename Byte, typename View>
auto view_of(const View& view) {
  static std::byte nothing{};  // where empty arrays may point
  auto* const data = static_cast<Byte*>(view.data);
  return data == nullptr && view.shape.elements() == 0 ? &nothing : data;
}

}  // namespace

struct AsyncRunner::State {
  State(const CompiledModel& compiled, const AsyncOptions& options) : model(compiled), process(getpid()) {
    const std::vector<std::shared_ptr<const ExecutionPlan>>& plans = model.state().plans;
    const PlanOptions& planned = plans[0]->options();
    const bool cpu = planned.device == DeviceKind::cpu;
    Spread spread = spread_over_cpu(cpu ? options : AsyncOptions{.streams = 1, .queue = options.queue},
                                    cpu ? planned.threads : 1);
    if (!cpu) {
      check_range("streams", options.streams, 0, 1024);
      spread.streams = options.streams > 0 ? options.streams : static_cast<int>(plans.size());
    }
    ring.resize(static_cast<std::size_t>(options.queue > 0 ? options.queue : 4 * spread.streams));
    for (Job& job : ring) reserve(job);
    for (int s = 0; s < spread.streams; ++s) {
      const std::shared_ptr<const ExecutionPlan>& plan = plans[static_cast<std::size_t>(s) % plans.size()];
      Stream& stream = streams.emplace_back();
      stream.session = naming(model.name(), [&] {
        std::shared_ptr<ThreadPool> pool;
        if (cpu) pool = std::make_shared<ThreadPool>(spread.of_stream(s));
        return std::make_unique<Session>(plan, std::move(pool));
      });
      if (!cpu) naming(model.name(), [&] { stream.session->make_slots(kSlots); });
      stream.jobs.resize(cpu ? 1 : kSlots);
      for (Job& job : stream.jobs) reserve(job);
      stream.inputs.resize(model.inputs().size());
      stream.outputs.resize(model.outputs().size());
    }
    try {
      for (Stream& stream : streams) stream.thread = std::thread([this, &stream] { serve(stream); });
    } catch (...) {
      close();
      throw;
    }
  }

  ~State() { close(); }

  void submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs, Done done) {
    check_process();
    {
      std::unique_lock lock(mutex);
      if (queued == ring.size() && serving == this)
        fail("{}: the queue of {} runs is full; a callback cannot wait for space in it", model.name(),
             ring.size());
      room.wait(lock, [&] { return queued < ring.size(); });
      Job& job = ring[(first + queued) % ring.size()];
      job.inputs.assign(inputs.begin(), inputs.end());
      job.outputs.assign(outputs.begin(), outputs.end());
      job.done = std::move(done);
      ++queued;
    }
    ready.notify_one();
  }

  void wait() {
    check_process();
    if (serving == this) fail("{}: a callback cannot wait for its own run to end", model.name());
    std::exception_ptr error;
    {
      std::unique_lock lock(mutex);
      idle.wait(lock, [&] { return queued + running == 0; });
      error = std::exchange(callback_error, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }

  bool in_child() const { return process != getpid(); }

  CompiledModel model;

  struct Stream {
    std::unique_ptr<Session> session;
    std::vector<Job> jobs;  // that it runs: one, on a GPU one for each slot
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    std::thread thread;
  };
  std::vector<Stream> streams;

 private:
  void reserve(Job& job) const {
    job.inputs.reserve(model.inputs().size());
    job.outputs.reserve(model.outputs().size());
  }

  void check_process() const {
    if (in_child())
      fail(
          "{}: this process is a child of fork(), where this AsyncRunner has no threads; "
          "create another one here",
          model.name());
  }

  void close() {
    {
      const std::lock_guard lock(mutex);
      closed = true;
    }
    ready.notify_all();
    for (Stream& stream : streams) {
      if (stream.thread.joinable()) stream.thread.join();
    }
  }

  // Takes the next run. Without one: waits if `patient`; false once there will be none.
  bool take(Job& job, bool patient) {
    std::unique_lock lock(mutex);
    if (patient) ready.wait(lock, [&] { return queued > 0 || closed; });
    if (queued == 0) return false;
    std::swap(job, ring[first]);
    first = (first + 1) % ring.size();
    --queued;
    ++running;
    // Those who wait are woken when half of the queue is empty: for every run the switches of threads would take
    // longer than small models do.
    const bool wake = queued == ring.size() / 2;
    lock.unlock();
    if (wake) room.notify_all();
    return true;
  }

  void finish(Job& job, std::exception_ptr error) {
    try {
      if (job.done) job.done(std::move(error));
      job.done = nullptr;  // what it holds is freed here, and may throw nothing
    } catch (...) {
      job.done = nullptr;
      const std::lock_guard lock(mutex);
      if (!callback_error) callback_error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (--running + queued == 0) idle.notify_all();
  }

  void serve(Stream& stream) {
    serving = this;
    if (stream.session->overlaps()) {
      serve_slots(stream);
    } else {
      Job& job = stream.jobs[0];
      while (take(job, true)) finish(job, error_of([&] { run(stream, job); }));
    }
  }

  template <typename Act>
  std::exception_ptr error_of(Act act) const {
    try {
      naming(model.name(), act);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  // The views that the session takes of a job's arrays.
  void look_at(Stream& stream, const Job& job) {
    stream.inputs.clear();
    for (const ArrayView& array : job.inputs)
      stream.inputs.push_back({TensorDesc{array.shape, array.dtype}, view_of<const std::byte>(array)});
    stream.outputs.clear();
    for (const MutableArrayView& array : job.outputs)
      stream.outputs.push_back({TensorDesc{array.shape, array.dtype}, view_of<std::byte>(array)});
  }

  void run(Stream& stream, const Job& job) {
    look_at(stream, job);
    stream.session->run(stream.inputs, stream.outputs);
  }

  // Slots in a circle: each is filled and submitted while runs before it are copied and computed.
  void serve_slots(Stream& stream) {
    const std::size_t slots = stream.jobs.size();
    std::size_t oldest = 0, in_flight = 0;
    for (;;) {
      while (in_flight < slots) {
        const std::size_t slot = (oldest + in_flight) % slots;
        Job& job = stream.jobs[slot];
        if (!take(job, in_flight == 0)) break;
        const std::exception_ptr error = error_of([&] { fill_and_submit(stream, static_cast<int>(slot)); });
        if (error) {
          finish(job, error);
        } else {
          ++in_flight;
        }
      }
      if (in_flight == 0) return;
      Job& job = stream.jobs[oldest];
      finish(job, error_of([&] { collect(stream, static_cast<int>(oldest)); }));
      oldest = (oldest + 1) % slots;
      --in_flight;
    }
  }

  void fill_and_submit(Stream& stream, int slot) {
    look_at(stream, stream.jobs[static_cast<std::size_t>(slot)]);
    stream.session->check(stream.inputs, stream.outputs);
    for (std::size_t i = 0; i < stream.inputs.size(); ++i) {
      const ConstTensorView& input = stream.inputs[i];
      std::memcpy(stream.session->slot_input(slot, static_cast<int>(i)).data, input.data, input.desc.bytes());
    }
    stream.session->submit(slot);
  }

  void collect(Stream& stream, int slot) {
    const SlotRun run = stream.session->collect(slot);
    look_at(stream, stream.jobs[static_cast<std::size_t>(slot)]);
    for (std::size_t i = 0; i < run.outputs.size(); ++i)
      std::memcpy(stream.outputs[i].data, run.outputs[i].data, run.outputs[i].desc.bytes());
  }

  static thread_local const State* serving;  // in threads of a runner: that one

  const pid_t process;
  std::mutex mutex;  // guards all that follows
  std::condition_variable ready, room, idle;
  std::vector<Job> ring;
  std::size_t first = 0, queued = 0, running = 0;
  bool closed = false;
  std::exception_ptr callback_error;
};

thread_local const AsyncRunner::State* AsyncRunner::State::serving = nullptr;

AsyncRunner::AsyncRunner(const CompiledModel& model, const AsyncOptions& options)
    : state_(std::make_unique<State>(model, options)) {}

AsyncRunner::AsyncRunner(const std::string& model, const LoadOptions& load, const AsyncOptions& options) {
  AsyncOptions chosen = options;
  const CompiledModel compiled = load_for(model, load, chosen);
  state_ = std::make_unique<State>(compiled, chosen);
}

AsyncRunner::AsyncRunner(AsyncRunner&& other) noexcept = default;

AsyncRunner& AsyncRunner::operator=(AsyncRunner&& other) noexcept {
  AsyncRunner taken(std::move(other));  // ends as the one before; an assignment to itself changes nothing
  std::swap(state_, taken.state_);
  return *this;
}

AsyncRunner::~AsyncRunner() {
  // In a child there are no threads to join, and their locks may be held for ever.
  if (state_ && state_->in_child()) (void)state_.release();
}

std::future<std::vector<Array>> AsyncRunner::submit(std::span<const ArrayView> inputs) {
  struct Owned {
    std::vector<Array> inputs, outputs;
    std::promise<std::vector<Array>> promise;
  };
  const auto owned = std::make_shared<Owned>();
  std::vector<ArrayView> given;
  std::vector<MutableArrayView> into;
  for (const ArrayView& input : inputs) given.push_back(owned->inputs.emplace_back(input));
  for (const TensorInfo& output : model().outputs())
    into.push_back(owned->outputs.emplace_back(output.dtype, output.shape).view());
  std::future<std::vector<Array>> future = owned->promise.get_future();
  state_->submit(given, into, [owned](std::exception_ptr error) {
    if (error) return owned->promise.set_exception(std::move(error));
    owned->promise.set_value(std::move(owned->outputs));
  });
  return future;
}

std::future<void> AsyncRunner::submit(std::span<const ArrayView> inputs,
                                      std::span<const MutableArrayView> outputs) {
  const auto promise = std::make_shared<std::promise<void>>();
  std::future<void> future = promise->get_future();
  state_->submit(inputs, outputs, [promise](std::exception_ptr error) {
    if (error) return promise->set_exception(std::move(error));
    promise->set_value();
  });
  return future;
}

void AsyncRunner::submit(std::span<const ArrayView> inputs, std::span<const MutableArrayView> outputs,
                         Done done) {
  state_->submit(inputs, outputs, std::move(done));
}

void AsyncRunner::wait() {
  state_->wait();
}

int AsyncRunner::streams() const {
  return static_cast<int>(state_->streams.size());
}

const CompiledModel& AsyncRunner::model() const {
  return state_->model;
}

}  // namespace pipit
