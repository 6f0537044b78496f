// pipit compare A B: whether what was measured twice differs, by more than the noise of both.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "apps/commands/commands.h"
#include "apps/display/comparison_text.h"
#include "apps/display/next_command.h"
#include "apps/display/notes.h"
#include "apps/display/print_json.h"
#include "apps/display/shell_word.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/sweep_comparison.h"
#include "apps/measuring/times_file.h"
#include "apps/options/options.h"
#include "apps/options/output_option.h"
#include "apps/options/values.h"
#include "engine/base/version.h"
#include "pipit/measuring/comparison.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

struct CompareOptions {
  std::string first, second;
  OutputOption output;
  std::optional<double> fail_above;  // percent
  bool wide = false;
  bool json = false;
  bool quiet = false;
};

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

// What both files hold, and what has to be said of it.
struct Found {
  std::vector<tools::TimeComparison> comparisons;
  std::vector<std::string> notes;
};

void note_machines(Found& found, const std::string& first, const std::string& first_machine,
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
void note_processes(Found& found, std::size_t kept, const std::string& first, const std::string& second) {
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

Found compare_times_of(const CompareOptions& options) {
  const std::vector<TimedRuns> first = read_times(options.first);
  const std::vector<TimedRuns> second = read_times(options.second);
  const auto pairs = pairs_of(first, second);
  if (pairs.empty())
    fail("{} and {} have no model, precision, batch and number of threads in common", options.first,
         options.second);
  Found found;
  if (pairs.size() < std::max(first.size(), second.size()))
    found.notes.push_back(fmt::format("{} of {} results of {} and {} of {} have no counterpart",
                                      first.size() - pairs.size(), first.size(), options.first,
                                      second.size() - pairs.size(), options.second));
  for (const auto& [a, b] : pairs) {
    note_machines(found, a->text(), a->machine, b->text(), b->machine);
    found.comparisons.push_back(compare_runs(*a, *b));
  }
  const auto& [a, b] = pairs[0];
  note_processes(found, std::min(a->processes.size(), b->processes.size()), again(first, options.first),
                 again(second, options.second));
  return found;
}

Found compare_sweeps_of(const CompareOptions& options, const SweptRows& first, const SweptRows& second) {
  Found found;
  note_machines(found, options.first, fmt::format("{}, {}", first.device, counted(first.threads, "thread")),
                options.second, fmt::format("{}, {}", second.device, counted(second.threads, "thread")));
  try {
    found.comparisons.push_back(compare_sweeps(first, second));
  } catch (const Error& e) {
    fail("{} and {}: {}", options.first, options.second, e.what());
  }
  const bool csv = is_csv(options.first) || is_csv(options.second);
  note_processes(found, csv ? 0 : found.comparisons[0].ratio.repeats, again(first, options.first),
                 again(second, options.second));
  const auto compared = static_cast<std::size_t>(
      std::ranges::count_if(found.comparisons[0].layers,
                            [](const tools::ComparedLayer& layer) { return layer.ratio.has_value(); }));
  if (compared < std::max(first.rows.size(), second.rows.size()))
    found.notes.push_back(fmt::format("{} of {} rows of {} and {} of {} have no counterpart that ran",
                                      first.rows.size() - compared, first.rows.size(), options.first,
                                      second.rows.size() - compared, second.rows.size()));
  return found;
}

Found compare_files(const CompareOptions& options) {
  const std::optional<SweptRows> first = read_sweep(options.first);
  const std::optional<SweptRows> second = read_sweep(options.second);
  if (first.has_value() != second.has_value()) {
    const std::string& other = first ? options.second : options.first;
    read_times(other);  // says what is wrong with it, if anything is
    fail("{} is of a sweep, {} is not", first ? options.first : options.second, other);
  }
  return first ? compare_sweeps_of(options, *first, *second) : compare_times_of(options);
}

int compare(const CompareOptions& options) {
  options.output.check({options.first, options.second});
  const Found found = compare_files(options);
  nlohmann::ordered_json json = {{"pipit", version()},
                                 {"command", "compare"},
                                 {"first", options.first},
                                 {"second", options.second},
                                 {"comparisons", nlohmann::ordered_json::array()}};
  bool failed = false;
  for (const tools::TimeComparison& comparison : found.comparisons) {
    failed |= options.fail_above && fails_above(comparison.ratio, *options.fail_above);
    json["comparisons"].push_back(comparison_json(comparison));
    if (options.json) continue;
    const int width = table_width(options.wide);
    fmt::print("{}{}", &comparison == found.comparisons.data() ? "" : "\n",
               comparison_text(comparison, width));
  }
  if (options.fail_above) json["fail_above"] = *options.fail_above;
  json["failed"] = failed;
  options.output.write(detail::json_text(json));
  if (options.json) print_json(json);
  if (!options.quiet) print_notes(found.notes);
  // With too few processes a note has said what to type.
  if (found.comparisons[0].ratio.change != tools::TimeChange::unknown)
    print_next(
        options.quiet,
        {"compare", options.first, options.second, options.fail_above ? "--output" : "--fail-above",
         options.fail_above ? "comparison.csv" : "3"},
        options.fail_above ? "all of it for a spreadsheet" : "exit code 4 where it is slower, for scripts");
  return failed ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare", "Say whether two profiles, benchmarks or sweeps differ by more than their noise");
  command
      ->add_option("A", options->first,
                   "JSON of pipit profile or bench; JSON, CSV or --results of pipit sweep")
      ->required()
      ->type_name("FILE");
  command->add_option("B", options->second, "The same for the other side of the comparison")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--fail-above", options->fail_above,
                   "Exit code 4 if a whole run, or the geometric mean of a sweep, is shown to be slower by "
                   "more than N percent, or if there are too few processes to tell")
      ->check(nonnegative_number());
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv});
  add_wide_to(*command, options->wide);
  add_output_flags(*command, options->json, options->quiet);
  command->footer(
      "Ratios are medians of B over medians of A, with 95 % intervals; layers are judged together. "
      "Disturbances of a whole process cannot be seen inside it, so a verdict needs at least three processes "
      "of each side, run in turns; more are better. A file holds their JSON one after the other.\n"
      "Examples:\n"
      "  for i in 1 2 3 4 5; do pipit bench resnet50 --json >> a.json; pipit bench resnet50 --kernel "
      "no-winograd --json >> b.json; done\n"
      "  pipit compare a.json b.json --fail-above 3");
  command->callback([options, &exit_code] { exit_code = compare(*options); });
}

}  // namespace pipit::internal::apps
