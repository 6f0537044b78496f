// pipit ceilings: what this machine reaches at most, measured and kept for pipit profile --floor.
#include <fmt/format.h>

#include "apps/commands/commands.h"
#include "apps/display/ceilings_table.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/platform/thread_pool.h"
#include "pipit/measuring/ceilings_json.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

// Rates that vary more are those of a busy machine.
constexpr double kRestless = 0.15;

struct CeilingsOptions {
  bool json = false;
  bool quiet = false;
  bool kept = false;
  bool wide = false;
  std::string device = "cpu";
  int threads = 0;
};

int ceilings(const CeilingsOptions& options) {
  const DeviceKind device = options.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  require_device(device);
  const int threads = options.threads == 0 ? default_threads() : options.threads;
  const std::filesystem::path file = ceilings_file();
  KeptCeilings found;
  if (options.kept) {
    found = kept_ceilings(file, device, 0, threads);
    if (!found.ceilings.known()) fail("{}; 'pipit ceilings' measures them", found.problem);
  } else {
    if (!file.empty()) prepare_ceilings_file(file);
    Progress progress("ceilings", {{"measuring"}}, options.quiet);
    found.ceilings = measure_ceilings(device, 0, threads, progress.stage("measuring"));
    const std::string problem = file.empty() ? "" : keep_ceilings(file, found.ceilings);
    if (!problem.empty() && !options.quiet)
      print_notes({problem + "; what other processes keep at the same moment may be lost"});
  }
  const Ceilings& made = found.ceilings;
  if (options.json) {
    nlohmann::ordered_json json = {{"pipit", version()}, {"command", "ceilings"}, {"schema", 1}};
    json["file"] = file.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(file.string());
    json["days"] = found.days;
    json["ceilings"] = ceilings_json(made);
    print_json(json);
  } else {
    const int width = table_width(options.wide);
    fmt::print("{}\n{}\n", wrapped(printable(made.machine) + "\n", 2, width), ceilings_table(made, width));
    const std::string where = file.empty()
                                  ? "not kept: set HOME or XDG_CACHE_HOME"
                                  : fmt::format("kept in {} for {} days", printable(file.string()), kMaxDays);
    fmt::print("{}", wrapped(fmt::format("{} in {:.1f} s; {}\n",
                                         options.kept ? fmt::format("measured {:.1f} days ago", found.days)
                                                      : "measured",
                                         made.seconds, where),
                             2, width));
  }
  if (!options.quiet && made.spread() > kRestless)
    print_error(
        fmt::format("note: rates vary by {:.0f} %: something else ran; measure again on a quiet machine",
                    100 * made.spread()));
  const bool gpu = device == DeviceKind::cuda;
  print_next(options.quiet, {"profile", "resnet50", gpu ? "--device" : "", gpu ? "cuda" : "", "--floor"},
             "how close each layer comes to them");
  return kExitOk;
}

}  // namespace

void add_ceilings(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CeilingsOptions>();
  CLI::App* command =
      app.add_subcommand("ceilings", "Measure the peak rates of this machine, for profile --floor");
  one_of(command->add_option("--device", options->device, "Device whose ceilings are measured"),
         {"cpu", "cuda"})
      ->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all CPUs this process may use")
      ->check(thread_count())
      ->capture_default_str();
  command->add_flag("--kept", options->kept, "Show the stored ceilings, and measure nothing");
  add_output_flags(*command, options->json, options->quiet);
  add_wide_to(*command, options->wide);
  command->footer(
      "Arithmetic is measured on registers, for every instruction set of the CPU, and memory with the loops "
      "of STREAM, for every level of cache, each until its median is known to 1 %. Floors use the best "
      "round.\n"
      "Ceilings are stored in the user's cache folder ($XDG_CACHE_HOME/pipit or ~/.cache/pipit) for 30 days. "
      "They apply to this CPU, number of threads and instruction set, or to this GPU with its driver and "
      "libraries.\n"
      "Examples:\n"
      "  pipit ceilings\n"
      "  pipit ceilings --threads 1 --json\n"
      "  pipit ceilings --kept");
  command->callback([options, &exit_code] { exit_code = ceilings(*options); });
}

}  // namespace pipit::internal::apps
