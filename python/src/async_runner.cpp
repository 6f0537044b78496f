// Many runs of a model at once. python/pipit/_async_runner.py has what users see of it.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "python/src/arrays.h"
#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

// A submitted run, and all that must live until it has ended. It is made and freed with the GIL.
struct Run {
  nb::object future;          // what the caller waits for
  nb::object results;         // arrays of Python that the outputs go to
  Inputs inputs;              // where they are the caller's
  std::vector<Array> copies;  // of the inputs, where they are not
  Outputs outputs;
  std::exception_ptr error;
};

// An AsyncRunner, and the runs of it that have ended. Its threads run no Python code: they put what has ended into a
// list, and a thread of Python takes it from there and completes the futures.
class Runner {
 public:
  Runner(const CompiledModel& model, const AsyncOptions& options)
      : runner_(std::in_place, model, options), model_(model) {}
  Runner(const std::string& model, const LoadOptions& load, const AsyncOptions& options)
      : runner_(std::in_place, model, load, options), model_(runner_->model()) {}
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {  // without the GIL too, where nothing was submitted
    end();
    for (Run* run : ended_) delete run;
  }

  const CompiledModel& model() const { return model_; }

  int streams() {
    const std::shared_lock use(use_);
    return runner_ ? runner_->streams() : 0;
  }

  /// Queues a run; waits while the queue is full. Where `copy` says so the inputs may change as soon as this returns.
  void submit(const nb::object& future, const nb::tuple& arrays, const nb::sequence& results, bool copy) {
    auto run = std::make_unique<Run>();
    run->future = future;
    run->results = results;
    run->inputs = inputs_of(arrays, model_.inputs());
    run->outputs = outputs_of(results, model_.outputs());
    std::vector<ArrayView> views = run->inputs.views;
    if (copy) {
      for (ArrayView& view : views) view = run->copies.emplace_back(view);
      run->inputs = {};
    }
    Run* const own = run.get();
    {
      const nb::gil_scoped_release release;
      const std::shared_lock use(use_);
      if (!runner_) throw Error(model_.name() + ": the runner is closed; make another one for more runs");
      runner_->submit(views, own->outputs.views, [this, own](std::exception_ptr error) {
        own->error = std::move(error);
        const std::lock_guard lock(mutex_);
        ended_.push_back(own);
        changed_.notify_one();
      });
    }
    run.release();  // completed() frees it
  }

  /// Waits until runs have ended, and returns (future, results, exception or None) of each; an empty list once the
  /// runner is closed and all have been returned.
  nb::list completed() {
    std::vector<Run*> ended;
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !ended_.empty(); });
      ended.swap(ended_);
    }
    nb::list list;
    for (Run* run : ended) {
      const std::unique_ptr<Run> own(run);
      list.append(nb::make_tuple(own->future, own->results,
                                 own->error ? exception_of(own->error) : nb::object(nb::none())));
    }
    return list;
  }

  /// Waits until all runs have ended, and frees the threads and the memory. The model stays.
  void close() {
    const nb::gil_scoped_release release;
    end();
  }

 private:
  void end() {
    {
      const std::unique_lock use(use_);
      runner_.reset();
    }
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  std::shared_mutex use_;  // close() waits for calls of submit()
  std::mutex mutex_;       // of what follows, which the runner's threads use until runner_ is destroyed
  std::condition_variable changed_;
  std::vector<Run*> ended_;
  bool closed_ = false;
  std::optional<AsyncRunner> runner_;
  CompiledModel model_;
};

Runner* make_runner(const CompiledModel& model, const AsyncOptions& options) {
  return run_long(nb::none(), nb::none(), [=](LongWork&) { return std::make_unique<Runner>(model, options); })
      .release();
}

Runner* load_runner(const std::string& model, const LoadOptions& options, const AsyncOptions& spread) {
  return run_long(nb::none(), nb::none(),
                  [=](LongWork&) { return std::make_unique<Runner>(model, options, spread); })
      .release();
}

}  // namespace

void bind_async_runner(nb::module_& module) {
  OptionFields<AsyncOptions>(module, "AsyncOptions", "pipit::AsyncOptions")
      .field("streams", &AsyncOptions::streams)
      .field("threads", &AsyncOptions::threads)
      .field("queue", &AsyncOptions::queue);

  nb::class_<Runner>(module, "AsyncRunner", "pipit::AsyncRunner")
      .def_prop_ro("model", [](const Runner& runner) { return runner.model(); })
      .def_prop_ro("streams", &Runner::streams)
      .def("submit", &Runner::submit, nb::arg("future"), nb::arg("inputs"), nb::arg("results"),
           nb::arg("copy"),
           nb::sig("def submit(self, future: typing.Any, inputs: tuple[typing.Any, ...], results: "
                   "typing.Sequence[typing.Any], copy: bool) -> None"))
      .def("completed", &Runner::completed,
           nb::sig("def completed(self) -> list[tuple[typing.Any, list[typing.Any], Exception | None]]"))
      .def("close", &Runner::close);
  module.def("make_runner", &make_runner, nb::arg("model"), nb::arg("options"));
  module.def("load_runner", &load_runner, nb::arg("model"), nb::arg("load"), nb::arg("options"));
}

}  // namespace pipit::internal::python
