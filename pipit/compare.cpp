#include "pipit/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "pipit/measuring/comparison.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/times_file.h"
#include "pipit/sweeping/sweep_comparison.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

// Pairs of what both files have. One result in each is a pair whatever they are; models are told apart by name only
// where a file has several, for the same model may lie elsewhere.
std::vector<std::pair<const TimedRuns*, const TimedRuns*>> pairs_of(const std::vector<TimedRuns>& first,
                                                                    const std::vector<TimedRuns>& second) {
  if (first.size() == 1 && second.size() == 1) return {{&first[0], &second[0]}};
  const auto models = [](const std::vector<TimedRuns>& all) {
    std::set<std::string> names;
    for (const TimedRuns& runs : all) names.insert(runs.model);
    return names.size();
  };
  const bool by_model = models(first) > 1 || models(second) > 1;
  std::vector<std::pair<const TimedRuns*, const TimedRuns*>> pairs;
  for (const TimedRuns& a : first) {
    const auto b = std::ranges::find_if(second, [&](const TimedRuns& r) {
      return r.device == a.device && r.precision == a.precision && r.batch == a.batch &&
             r.threads == a.threads && r.streams == a.streams && (!by_model || r.model == a.model);
    });
    if (b != second.end()) pairs.emplace_back(&a, &*b);
  }
  return pairs;
}

void note_machines(CompareResult& found, const std::string& first, const std::string& first_machine,
                   const std::string& second, const std::string& second_machine) {
  if (first_machine == second_machine) return;
  found.notes.push_back(
      fmt::format("{} was measured on {}, {} on {}", first, first_machine, second, second_machine));
}

bool is_csv(const std::string& file) {
  return file.ends_with(".csv");
}

// " --batch 1,8": each value once, or nothing where there is only `usual`.
template <typename Member>
std::string list_again(const std::vector<TimedRuns>& all, const char* option, Member TimedRuns::*member,
                       const Member& usual) {
  std::vector<std::string> words;
  for (const TimedRuns& runs : all) {
    std::string word = fmt::format("{}", runs.*member);
    if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  if (words.size() == 1 && all[0].*member == usual) return {};
  return fmt::format(" {} {}", option, shell_word(fmt::format("{}", fmt::join(words, ","))));
}

// The command that measures all of it again and appends it to `file`; `file` may also be one that is yet to be.
std::string again(const std::vector<TimedRuns>& all, const std::string& file) {
  std::string line = fmt::format("pipit {}", all[0].command);
  std::vector<std::string> models;
  for (const TimedRuns& runs : all) {
    if (std::ranges::find(models, runs.model) == models.end()) models.push_back(runs.model);
  }
  for (const std::string& model : models) line += " " + shell_word(model);
  if (all[0].device != "cpu") line += " --device " + shell_word(all[0].device);
  line += list_again(all, "--precision", &TimedRuns::precision, std::string("fp32"));
  line += list_again(all, "--batch", &TimedRuns::batch, std::int64_t{1});
  line += list_again(all, "--streams", &TimedRuns::streams, 1);
  return line + list_again(all, "--threads", &TimedRuns::threads, 0) + " --json >> " + shell_word(file);
}

// The same of a sweep, whose options are not known. Of CSV there is one table in a file: JSON begins anew, beside it.
std::string again(const SweptRows& rows, const std::string& file) {
  return fmt::format("pipit {} --json >> {}", rows.sweep, shell_word(is_csv(file) ? file + ".json" : file));
}

// `kept`: processes that need not be repeated. `first` and `second`: what runs one more.
void note_processes(CompareResult& found, std::size_t kept, const std::string& first,
                    const std::string& second) {
  const std::size_t have = found.comparisons[0].ratio.repeats;
  if (have >= kMinProcesses) return;
  std::string times;
  for (std::size_t i = kept; i < kMinProcesses; ++i) times += fmt::format(" {}", i - kept + 1);
  found.notes.push_back(fmt::format(
      "{} of each is too few: what disturbs a whole process cannot be seen inside of it. With {} there is "
      "a verdict. These, in turns, each side by its own build and with the options that it had:\n"
      "  for i in{}; do {}; {}; done",
      counted(static_cast<std::int64_t>(have), "process", "processes"), kMinProcesses, times, first, second));
}

CompareResult compare_times_of(const std::string& first_path, const std::string& second_path) {
  const std::vector<TimedRuns> first = read_times(first_path);
  const std::vector<TimedRuns> second = read_times(second_path);
  const auto pairs = pairs_of(first, second);
  if (pairs.empty())
    fail("{} and {} have no model, precision, batch and number of threads in common", first_path,
         second_path);
  CompareResult found;
  if (pairs.size() < std::max(first.size(), second.size()))
    found.notes.push_back(fmt::format("{} of {} results of {} and {} of {} have no counterpart",
                                      first.size() - pairs.size(), first.size(), first_path,
                                      second.size() - pairs.size(), second_path));
  for (const auto& [a, b] : pairs) {
    note_machines(found, a->text(), a->machine, b->text(), b->machine);
    found.comparisons.push_back(compare_runs(*a, *b));
  }
  const auto& [a, b] = pairs[0];
  note_processes(found, std::min(a->processes.size(), b->processes.size()), again(first, first_path),
                 again(second, second_path));
  return found;
}

CompareResult compare_sweeps_of(const std::string& first_path, const std::string& second_path,
                                const SweptRows& first, const SweptRows& second) {
  CompareResult found;
  note_machines(found, first_path, fmt::format("{}, {}", first.device, counted(first.threads, "thread")),
                second_path, fmt::format("{}, {}", second.device, counted(second.threads, "thread")));
  try {
    found.comparisons.push_back(compare_sweeps(first, second));
  } catch (const Error& e) {
    fail("{} and {}: {}", first_path, second_path, e.what());
  }
  const bool csv = is_csv(first_path) || is_csv(second_path);
  note_processes(found, csv ? 0 : found.comparisons[0].ratio.repeats, again(first, first_path),
                 again(second, second_path));
  const auto compared = static_cast<std::size_t>(std::ranges::count_if(
      found.comparisons[0].layers, [](const ComparedLayer& layer) { return layer.ratio.has_value(); }));
  if (compared < std::max(first.rows.size(), second.rows.size()))
    found.notes.push_back(fmt::format("{} of {} rows of {} and {} of {} have no counterpart that ran",
                                      first.rows.size() - compared, first.rows.size(), first_path,
                                      second.rows.size() - compared, second.rows.size()));
  return found;
}

CompareResult compare_files(const std::string& first_path, const std::string& second_path) {
  const std::optional<SweptRows> first = read_sweep(first_path);
  const std::optional<SweptRows> second = read_sweep(second_path);
  if (first.has_value() != second.has_value()) {
    const std::string& other = first ? second_path : first_path;
    read_times(other);  // says what is wrong with it, if anything is
    fail("{} is a sweep, {} is not", first ? first_path : second_path, other);
  }
  return first ? compare_sweeps_of(first_path, second_path, *first, *second)
               : compare_times_of(first_path, second_path);
}

}  // namespace

CompareResult compare(const std::filesystem::path& first, const std::filesystem::path& second,
                      const CompareOptions& options) {
  if (options.max_slowdown && !(*options.max_slowdown >= 0))
    throw ArgumentError(fmt::format("max_slowdown is {} %; expected 0 or more", *options.max_slowdown));
  CompareResult result = compare_files(first.string(), second.string());
  nlohmann::ordered_json json = {{"pipit", version()},
                                 {"command", "compare"},
                                 {"first", first.string()},
                                 {"second", second.string()},
                                 {"comparisons", nlohmann::ordered_json::array()}};
  for (TimeComparison& comparison : result.comparisons) {
    comparison.too_slow = options.max_slowdown && fails_above(comparison.ratio, *options.max_slowdown);
    result.too_slow |= comparison.too_slow;
    json["comparisons"].push_back(comparison_json(comparison));
  }
  if (options.max_slowdown) json["fail_above"] = *options.max_slowdown;
  json["failed"] = result.too_slow;
  result.json = json_text(json);
  return result;
}

}  // namespace pipit::tools
