#include "apps/measuring/bench_rows.h"

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <thread>

#include "engine/base/clock.h"
#include "engine/platform/host_memory.h"
#include "engine/platform/thread_pool.h"
#include "layers/passes/rewriter.h"
#include "pipit/detail/preparation.h"
#include "pipit/measuring/input_file.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

constexpr double kTurnMs = 10;
constexpr double kStreamsTurnMs = 100;  // longer than runs by much, for streams do not end together
constexpr int kMaxGraphRuns = 100;

// Whether it went well; else the row says why not.
bool noting_errors(BenchRow& row, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const UnsupportedError& e) {
    row.error = e.what();
    row.unsupported = true;
  } catch (const Error& e) {
    row.error = e.what();
  } catch (const std::bad_alloc&) {
    row.error = "out of memory";
  }
  return false;
}

// A row with its model loaded.
class BenchEntry {
 public:
  BenchEntry(const BenchTiming& timing, BenchRow& row) : row_(&row) {
    reset_peak_resident_memory();
    held_before_ = peak_resident_memory();
    const Clock::time_point begin = Clock::now();
    ModelOptions source;
    source.model = row.model;
    source.batch = row.setting.batch;
    source.dims = timing.dims;
    source.shapes = timing.shapes;
    source.values = timing.values;
    Model model = source.load();
    CommonOptions common = common_options(timing.common, row.setting);
    if (timing.byte_images) common.byte_images = detail::prepare_for(model, {}).preprocess;
    const InputFiles files(timing.inputs, model, common.byte_images.has_value());
    runner_ = std::make_unique<Runner>(common.make_runner(model.name, std::move(model.graph)));
    row.load_ms = milliseconds_since(begin);
    sessions_.push_back(runner_->session.get());
    add_sessions(timing);
    row.arena_bytes = sessions_.size() * runner_->plan->arena_bytes();
    row.setting.precision = precision_name(computed_precision(*runner_->plan));
    row.bf16 = bf16_gain_here(*runner_->plan);
    inputs_ = files.tensors(runner_->plan->graph());
    if (!inputs_.empty()) row.input_type = dtype_name(inputs_[0].desc().dtype);
    for (const Tensor& t : inputs_) views_.push_back(t.view());
    if (!inputs_.empty() && inputs_[0].shape().rank() > 0) row.setting.batch = inputs_[0].shape()[0];
    // At least a tenth of the time box too: a few runs of a small model do not bring a core to its speed.
    const Clock::time_point warm = Clock::now();
    for (int r = 0; r < timing.warmup || milliseconds_since(warm) < 100 * timing.seconds; ++r) {
      const double ms = run();
      if (r == 0) row.first_run_ms = ms;
    }
    if (timing.streams) run_streams(100 * timing.seconds);
    row.peak_rss_bytes = peak_resident_memory();
  }

  BenchRow& row() { return *row_; }
  std::size_t held_before() const { return held_before_; }

  // The same of all streams at once, each in a thread of its own.
  void take_turn_of_streams(double ms) {
    double runs_per_ms = 0;
    for (std::vector<double>& times : run_streams(ms)) {
      if (times.size() > 1 && ms > 0) times.erase(times.begin());
      runs_per_ms += static_cast<double>(times.size()) / std::accumulate(times.begin(), times.end(), 0.0);
      row_->samples_ms.insert(row_->samples_ms.end(), times.begin(), times.end());
    }
    row_->turns_ms.push_back(1 / runs_per_ms);
  }

  // At least one run, and more until `ms` have passed.
  void take_turn(double ms) {
    const Clock::time_point begin = Clock::now();
    std::vector<double> times;
    do {
      times.push_back(run());
    } while (milliseconds_since(begin) < ms);
    if (times.size() > 1) times.erase(times.begin());
    row_->samples_ms.insert(row_->samples_ms.end(), times.begin(), times.end());
    row_->turns_ms.push_back(quantile(std::move(times), 0.5));
  }

  void finish() {
    row_->ms = summarize(row_->samples_ms);
    if (runner_->session->device_session() == nullptr || sessions_.size() > 1) return;
    const auto runs = static_cast<int>(std::min<std::size_t>(row_->ms.count, kMaxGraphRuns));
    row_->graph_ms = runner_->profile(views_, 1, runs).graph_ms;
  }

 private:
  double run(std::size_t stream = 0) {
    const Clock::time_point begin = Clock::now();
    naming(row_->model, [&] { return sessions_[stream]->run(views_); });
    return milliseconds_since(begin);
  }

  // What --streams asks for besides the runner's session, which has as many threads as any of them.
  void add_sessions(const BenchTiming& timing) {
    const auto& [precision, batch, threads, streams] = row_->setting;
    const bool share = timing.common.device == DeviceKind::cpu;
    if (share && streams > threads)
      fail("{} streams and {} threads: each stream needs a thread of its own; --threads {}", streams, threads,
           streams);
    for (int s = 1; s < streams; ++s) {
      const int own = share ? threads / streams + (s < threads % streams ? 1 : 0) : threads;
      more_.push_back(std::make_unique<Session>(
          runner_->plan, share ? std::make_shared<ThreadPool>(own) : std::shared_ptr<ThreadPool>()));
      sessions_.push_back(more_.back().get());
    }
  }

  // The times of each stream's runs, which it begins until `ms` have passed since all were ready.
  std::vector<std::vector<double>> run_streams(double ms) {
    std::vector<std::vector<double>> times(sessions_.size());
    std::vector<std::exception_ptr> errors(sessions_.size());
    std::barrier ready(std::ssize(sessions_));
    {
      std::vector<std::jthread> threads;
      for (std::size_t s = 0; s < sessions_.size(); ++s) {
        threads.emplace_back([&, s] {
          ready.arrive_and_wait();
          const Clock::time_point begin = Clock::now();
          try {
            do {
              times[s].push_back(run(s));
            } while (milliseconds_since(begin) < ms);
          } catch (...) {
            errors[s] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return times;
  }

  BenchRow* row_;
  std::size_t held_before_ = 0;
  std::unique_ptr<Runner> runner_;
  std::vector<std::unique_ptr<Session>> more_;
  std::vector<Session*> sessions_;  // of the runner, and more_
  std::vector<Tensor> inputs_;
  std::vector<ConstTensorView> views_;
};

}  // namespace

void measure_in_turns(const BenchTiming& timing, std::span<BenchRow* const> rows) {
  std::vector<std::unique_ptr<BenchEntry>> entries;
  for (BenchRow* row : rows)
    noting_errors(*row, [&] { entries.push_back(std::make_unique<BenchEntry>(timing, *row)); });
  const auto most = static_cast<std::size_t>(timing.runs.value_or(std::numeric_limits<std::int64_t>::max()));
  const bool alone = entries.size() == 1 && !timing.streams;
  const double turn_ms = alone || timing.runs ? 0 : timing.streams ? kStreamsTurnMs : kTurnMs;
  const double box_ms = 1e3 * timing.seconds * static_cast<double>(entries.size());
  const Clock::time_point start = Clock::now();
  for (std::size_t turn = 0; !entries.empty() && turn < most; ++turn) {
    if (turn > 0 && timing.boxed && milliseconds_since(start) >= box_ms) break;
    std::erase_if(entries, [&](const std::unique_ptr<BenchEntry>& entry) {
      return !noting_errors(entry->row(), [&] {
        timing.streams ? entry->take_turn_of_streams(turn_ms) : entry->take_turn(turn_ms);
      });
    });
    std::reverse(entries.begin(), entries.end());  // no row always follows the same one
  }
  std::size_t held_first = std::numeric_limits<std::size_t>::max();
  for (const auto& entry : entries) held_first = std::min(held_first, entry->held_before());
  for (const auto& entry : entries) {
    BenchRow& row = entry->row();
    if (entries.size() == 1) row.peak_rss_bytes = peak_resident_memory();
    row.peak_rss_bytes -= entry->held_before() - held_first;
    noting_errors(row, [&] { entry->finish(); });
  }
}

}  // namespace pipit::internal::apps
