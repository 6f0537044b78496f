#include "apps/measuring/bench_rows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>

#include "apps/measuring/runner.h"
#include "engine/base/clock.h"
#include "engine/platform/host_memory.h"

namespace pipit::apps {

namespace {

constexpr double kTurnMs = 10;
constexpr int kMostGraphRuns = 100;

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
    const ModelOptions source{row.model, row.setting.batch, timing.dims, timing.shapes};
    Model model = source.load();
    runner_ = std::make_unique<Runner>(model.name, std::move(model.graph),
                                       common_options(timing.common, row.setting));
    row.load_ms = milliseconds_since(begin);
    row.arena_bytes = runner_->plan->arena_bytes();
    row.setting.precision = precision_name(computed_precision(*runner_->plan));
    inputs_ = random_inputs(runner_->plan->graph(), model.name);
    for (const Tensor& t : inputs_) views_.push_back(t.view());
    if (!inputs_.empty() && inputs_[0].shape().rank() > 0) row.setting.batch = inputs_[0].shape()[0];
    // At least a tenth of the time box too: a few runs of a small model do not bring a core to its speed.
    const Clock::time_point warm = Clock::now();
    for (int r = 0; r < timing.warmup || milliseconds_since(warm) < 100 * timing.seconds; ++r) {
      const double ms = run();
      if (r == 0) row.first_run_ms = ms;
    }
    row.peak_rss_bytes = peak_resident_memory();
  }

  BenchRow& row() { return *row_; }
  std::size_t held_before() const { return held_before_; }

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
    if (runner_->session->device_session() == nullptr) return;
    const auto runs = static_cast<int>(std::min<std::size_t>(row_->ms.count, kMostGraphRuns));
    row_->graph_ms = runner_->profile(views_, 1, runs).graph_ms;
  }

 private:
  double run() {
    const Clock::time_point begin = Clock::now();
    runner_->run(views_);
    return milliseconds_since(begin);
  }

  BenchRow* row_;
  std::size_t held_before_ = 0;
  std::unique_ptr<Runner> runner_;
  std::vector<Tensor> inputs_;
  std::vector<ConstTensorView> views_;
};

}  // namespace

void measure_in_turns(const BenchTiming& timing, std::span<BenchRow* const> rows) {
  std::vector<std::unique_ptr<BenchEntry>> entries;
  for (BenchRow* row : rows)
    noting_errors(*row, [&] { entries.push_back(std::make_unique<BenchEntry>(timing, *row)); });
  const auto most = static_cast<std::size_t>(timing.runs.value_or(std::numeric_limits<std::int64_t>::max()));
  const double turn_ms = entries.size() > 1 && !timing.runs ? kTurnMs : 0;
  const double box_ms = 1e3 * timing.seconds * static_cast<double>(entries.size());
  const Clock::time_point start = Clock::now();
  for (std::size_t turn = 0; !entries.empty() && turn < most; ++turn) {
    if (turn > 0 && timing.boxed && milliseconds_since(start) >= box_ms) break;
    std::erase_if(entries, [&](const std::unique_ptr<BenchEntry>& entry) {
      return !noting_errors(entry->row(), [&] { entry->take_turn(turn_ms); });
    });
    std::reverse(entries.begin(), entries.end());  // nobody is always behind the same one
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

}  // namespace pipit::apps
