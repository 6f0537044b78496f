/// @file
/// How long whole runs of models take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipit/compare.h"
#include "pipit/export.h"
#include "pipit/timing.h"

namespace pipit::tools {

/// How models are timed.
struct BenchOptions {
  TimingOptions timing = {};  ///< settings and inputs
  /// Numbers of sessions that run at once and share the weights of one plan: on the CPU each with its share of the
  /// threads, on a GPU each on its own CUDA stream. If not empty, rows are measurements of throughput, also that of one
  /// stream.
  std::vector<int> streams = {};
  /// Time box of each row: no run begins after it. Unset: 2 seconds, or exactly `runs`.
  std::optional<double> seconds = {};
  std::optional<std::int64_t> runs = {};  ///< at most this many timed runs of each row
  int warmup = 2;  ///< runs before them, at least 1, and at least a tenth of the time box
  /// Another model, which runs in turns with each model and is compared with it. Empty: the first precision and number
  /// of streams of a model is compared with its others.
  std::string against = {};
  std::optional<double> max_slowdown = {};  ///< largest slowdown that a comparison may show, in percent
  bool peaks = false;  ///< also the peak rates of the CPU: stored (measure_ceilings()), or measured now
  /// Called before rows are measured, with the number of rows done, the number of all rows, and what comes next. May be
  /// empty. An exception from it ends the work.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& next)> progress = {};
};

/// A model in one setting. Times are those of whole runs in milliseconds, on a GPU with the copies in and out.
struct BenchRow {
  std::string model;                      ///< as given
  Precision precision = Precision::fp32;  ///< precision of the computation
  std::int64_t batch = 1;                 ///< samples of a run
  int threads = 0;                        ///< of all streams together
  int streams = 1;                        ///< runs at once
  std::string setting;                    ///< the setting in words: "fp32, batch 8, 2 threads"
  std::string error;                      ///< why there are no times; empty if there are
  bool unsupported = false;               ///< the error: this setting cannot run the model
  std::optional<DType> input_type;        ///< of the first input, if any
  std::vector<double> samples_ms;         ///< of single runs
  std::size_t runs = 0;                   ///< their number
  double median_ms = 0;                   ///< of samples_ms
  double p90_ms = 0;                      ///< nine of ten are faster
  double p99_ms = 0;                      ///< 99 of 100 are faster
  double mean_ms = 0;                     ///< of samples_ms
  double cv = 0;                          ///< standard deviation over mean
  double images_per_s = 0;  ///< by the median; with BenchOptions::streams of all streams together
  std::optional<double> images_per_s_p10;  ///< of turns of streams
  std::optional<double> images_per_s_p90;  ///< of turns of streams
  double graph_ms = 0;                     ///< on a GPU: device time of one run, without copies
  double load_ms = 0;                      ///< from opening the file until the plan is ready
  double first_run_ms = 0;                 ///< the first run, which touches all memory
  std::size_t arena_bytes = 0;             ///< of all streams
  std::size_t peak_rss_bytes = 0;          ///< of the process, without the other rows of its turns
  std::string note;                        ///< a warning if times vary strongly; else empty
};

/// Peak rates of the CPU with `threads` threads.
struct CpuPeak {
  int threads = 0;           ///< threads that ran
  double fp32_gflops = 0;    ///< 10^9 operations per second, two per multiply-accumulate
  double read_gb_per_s = 0;  ///< 10^9 bytes per second from memory
};

/// What bench() found.
struct BenchResult {
  std::vector<BenchRow> rows;               ///< models outermost, then as TimingOptions, then streams
  std::vector<TimeComparison> comparisons;  ///< of rows that took turns
  std::vector<CpuPeak> peaks;               ///< with BenchOptions::peaks
  bool too_slow = false;                    ///< a comparison exceeds BenchOptions::max_slowdown
  std::vector<std::string> notes;           ///< notes about all rows
  std::string json;                         ///< all of it, as `pipit bench --json` writes it (docs/json.md)
};

/// Times whole runs of models in every combination of settings. Rows that are compared run in turns of 10 ms (streams:
/// 100 ms), and the median of the turns' ratios counts; differences below 1 % give no verdict, since the position of
/// data in memory alone can cause them. A row that fails has its error, and the others continue. Throws Error if the
/// device cannot be used, and ArgumentError for invalid options. Call it from one thread at a time: it uses all of its
/// threads.
PIPIT_API BenchResult bench(const std::vector<std::string>& models, const BenchOptions& options = {});

}  // namespace pipit::tools
