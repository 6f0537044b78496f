// Times of whole runs of models, one by one or in turns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/options/settings.h"
#include "engine/base/statistics.h"
#include "pipit/detail/bf16_gain.h"

namespace pipit::internal::apps {

/// How long and on what a row of bench is measured.
struct BenchTiming {
  CommonOptions common;  ///< without threads and precision
  std::vector<std::string> dims, shapes, values;
  std::vector<std::string> inputs;   ///< as InputFiles takes them
  double seconds = 2;                ///< for each row
  bool boxed = true;                 ///< no run begins after them
  std::optional<std::int64_t> runs;  ///< at most this many
  int warmup = 2;
  bool streams = false;      ///< rows are of sessions at once, also of one
  bool byte_images = false;  ///< models get images as bytes
};

struct BenchRow {
  std::string model;
  Setting setting;                 ///< the one asked for until the model is loaded
  std::string input_type;          ///< of the first input, where there is one
  std::vector<double> samples_ms;  ///< of single runs
  /// Medians of the turns, where there are others to take turns with; of streams the time of each over the number of
  /// runs in all of them.
  std::vector<double> turns_ms;
  Summary ms;
  double load_ms = 0;
  double first_run_ms = 0;
  double graph_ms = 0;                   ///< on a GPU
  std::optional<detail::Bf16Gain> bf16;  ///< what bf16 could save, by kept ceilings where there are some
  std::size_t arena_bytes = 0;           ///< of all streams
  std::size_t peak_rss_bytes = 0;        ///< of the process, without what the rows before it in a group hold
  std::string error;                     ///< why there is nothing of all this
  bool unsupported = false;              ///< the error is that the model cannot be run so
};

/// Loads all rows, then runs them in turns of about 10 ms, so that what disturbs one disturbs the others as much. What
/// a turn runs after its first run finds its weights where it left them; that first one is not counted. With a limit of
/// runs a turn is one run, and so is everything where there is one row. Turns of
/// streams last 100 ms, in which they start runs; what of one stream's last run the others leave alone counts as well.
/// Errors are noted in the rows; the others go on.
void measure_in_turns(const BenchTiming& timing, std::span<BenchRow* const> rows);

}  // namespace pipit::internal::apps
