#include "pipit/measuring/bench_rows.h"

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/platform/host_memory.h"
#include "engine/platform/thread_pool.h"
#include "layers/passes/rewriter.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/turns.h"

namespace pipit::internal::detail {

namespace {

constexpr double kStreamsTurnMs = 100;  // longer than runs by much, for streams do not end together
constexpr int kMaxGraphRuns = 100;

// Whether it went well; else the row says why not.
bool noting_errors(tools::BenchRow& row, const std::function<void()>& work) {
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
  BenchEntry(const tools::BenchOptions& options, const std::shared_ptr<KernelTuning>& tuning,
             MeasuredRow& measured)
      : measured_(measured), row_(measured.row), box_ms_(1e3 * options.seconds.value_or(kBenchSeconds)) {
    reset_peak_resident_memory();
    held_before_ = peak_resident_memory();
    model_.emplace(row_.model, options.timing, measured.setting, tuning);
    const Runner& runner = *model_->runner;
    row_.load_ms = model_->ready_ms;
    sessions_.push_back(runner.session.get());
    add_sessions(options);
    row_.arena_bytes = sessions_.size() * runner.plan->arena_bytes();
    measured.setting.precision = computed_precision(*runner.plan);
    measured.bf16 = bf16_gain_here(*runner.plan);
    const std::vector<Tensor>& inputs = model_->inputs;
    if (!inputs.empty()) row_.input_type = inputs[0].desc().dtype;
    if (!inputs.empty() && inputs[0].shape().rank() > 0) measured.setting.batch = inputs[0].shape()[0];
    // At least a tenth of the time box too: a few runs of a small model do not bring a core to its speed.
    const Clock::time_point warm = Clock::now();
    for (int r = 0; r < options.warmup || milliseconds_since(warm) < kWarmupShare * box_ms_; ++r) {
      const double ms = run();
      if (r == 0) row_.first_run_ms = ms;
    }
    if (!options.streams.empty()) run_streams(kWarmupShare * box_ms_);
    row_.peak_rss_bytes = peak_resident_memory();
  }

  void tell_notes(const tools::BenchOptions& options) const { model_->tell_notes(options.timing); }
  tools::BenchRow& row() { return row_; }
  std::size_t held_before() const { return held_before_; }

  // The same of all streams at once, each in a thread of its own.
  void take_turn_of_streams(double ms) {
    double runs_per_ms = 0;
    for (std::vector<double>& times : run_streams(ms)) {
      if (times.size() > 1 && ms > 0) times.erase(times.begin());
      runs_per_ms += static_cast<double>(times.size()) / std::accumulate(times.begin(), times.end(), 0.0);
      row_.samples_ms.insert(row_.samples_ms.end(), times.begin(), times.end());
    }
    measured_.turns_ms.push_back(1 / runs_per_ms);
  }

  void take_turn(double ms) {
    std::vector<double> times = turn_times([this] { return run(); }, ms);
    row_.samples_ms.insert(row_.samples_ms.end(), times.begin(), times.end());
    measured_.turns_ms.push_back(quantile(std::move(times), 0.5));
  }

  void finish() {
    const Summary ms = summarize(row_.samples_ms);
    row_.runs = ms.count;
    row_.median_ms = ms.median;
    row_.p90_ms = ms.p90;
    row_.p99_ms = ms.p99;
    row_.mean_ms = ms.mean;
    row_.cv = ms.cv;
    Runner& runner = *model_->runner;
    if (runner.session->device_session() == nullptr || sessions_.size() > 1) return;
    const auto runs = static_cast<int>(std::min<std::size_t>(ms.count, kMaxGraphRuns));
    row_.graph_ms = runner.profile(model_->views, 1, runs).graph_ms;
  }

 private:
  double run(std::size_t stream = 0) {
    const Clock::time_point begin = Clock::now();
    naming(row_.model, [&] { return sessions_[stream]->run(model_->views); });
    return milliseconds_since(begin);
  }

  // What --streams asks for besides the runner's session, which has as many threads as any of them.
  void add_sessions(const tools::BenchOptions& options) {
    const auto& [precision, batch, threads, streams] = measured_.setting;
    const bool share = options.timing.load.device.kind == DeviceKind::cpu;
    if (share && streams > threads)
      throw ArgumentError(
          fmt::format("{} streams and {} threads: each stream needs a thread of its own; --threads {}",
                      streams, threads, streams));
    for (int s = 1; s < streams; ++s) {
      const int own = share ? threads / streams + (s < threads % streams ? 1 : 0) : threads;
      more_.push_back(std::make_unique<Session>(
          model_->runner->plan, share ? std::make_shared<ThreadPool>(own) : std::shared_ptr<ThreadPool>()));
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

  MeasuredRow& measured_;
  tools::BenchRow& row_;
  double box_ms_;
  std::size_t held_before_ = 0;
  std::optional<TimedModel> model_;
  std::vector<std::unique_ptr<Session>> more_;
  std::vector<Session*> sessions_;  // of the runner, and more_
};

}  // namespace

void measure_in_turns(const tools::BenchOptions& options, const std::shared_ptr<KernelTuning>& tuning,
                      std::span<MeasuredRow* const> rows) {
  std::vector<std::unique_ptr<BenchEntry>> entries;
  for (MeasuredRow* row : rows) {
    const bool loaded = noting_errors(
        row->row, [&] { entries.push_back(std::make_unique<BenchEntry>(options, tuning, *row)); });
    if (loaded) entries.back()->tell_notes(options);
  }
  const bool streams = !options.streams.empty();
  const bool boxed = options.seconds || !options.runs;
  const auto most = static_cast<std::size_t>(options.runs.value_or(std::numeric_limits<std::int64_t>::max()));
  const bool alone = entries.size() == 1 && !streams;
  const double turn_ms = alone || options.runs ? 0 : streams ? kStreamsTurnMs : kTurnMs;
  const double box_ms = 1e3 * options.seconds.value_or(kBenchSeconds) * static_cast<double>(entries.size());
  const Clock::time_point start = Clock::now();
  for (std::size_t turn = 0; !entries.empty() && turn < most; ++turn) {
    if (turn > 0 && boxed && milliseconds_since(start) >= box_ms) break;
    std::erase_if(entries, [&](const std::unique_ptr<BenchEntry>& entry) {
      return !noting_errors(
          entry->row(), [&] { streams ? entry->take_turn_of_streams(turn_ms) : entry->take_turn(turn_ms); });
    });
    std::reverse(entries.begin(), entries.end());  // no row always follows the same one
  }
  std::size_t held_first = std::numeric_limits<std::size_t>::max();
  for (const auto& entry : entries) held_first = std::min(held_first, entry->held_before());
  for (const auto& entry : entries) {
    tools::BenchRow& row = entry->row();
    if (entries.size() == 1) row.peak_rss_bytes = peak_resident_memory();
    row.peak_rss_bytes -= entry->held_before() - held_first;
    noting_errors(row, [&] { entry->finish(); });
  }
}

}  // namespace pipit::internal::detail
