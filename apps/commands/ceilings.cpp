// pipit ceilings: what this machine reaches at most, measured and kept for pipit profile --floor.
#include <fmt/format.h>

#include "apps/commands/commands.h"
#include "apps/display/ceilings_table.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/machine.h"

namespace pipit::internal::apps {

namespace {

struct CeilingsOptions {
  bool json = false;
  bool quiet = false;
  bool wide = false;
  std::string device = "cpu";
  tools::CeilingsOptions how;
};

void print_text(const CeilingsOptions& options, const tools::CeilingsResult& result) {
  const tools::MachineCeilings& made = result.ceilings;
  const int width = table_width(options.wide);
  fmt::print("{}\n{}\n", wrapped(printable(made.machine) + "\n", 2, width), ceilings_table(made, width));
  const std::string where =
      result.file.empty()
          ? "not kept: set HOME or XDG_CACHE_HOME"
          : fmt::format("kept in {} for {} days", printable(result.file.string()), result.kept_days);
  fmt::print("{}", wrapped(fmt::format("{} in {:.1f} s; {}\n",
                                       options.how.kept ? fmt::format("measured {:.1f} days ago", result.days)
                                                        : "measured",
                                       made.seconds, where),
                           2, width));
}

int ceilings(const CeilingsOptions& options) {
  const bool gpu = options.device == "cuda";
  tools::CeilingsOptions how = options.how;
  how.device.kind = gpu ? DeviceKind::cuda : DeviceKind::cpu;
  std::optional<Progress> progress;
  ProgressReport measuring;
  how.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) {
      progress.emplace("ceilings", std::vector<Progress::Stage>{{"measuring"}}, options.quiet);
      measuring = progress->stage("measuring");
    }
    measuring(done, total);
  };
  const tools::CeilingsResult result = tools::measure_ceilings(how);
  progress.reset();
  if (options.json) {
    fmt::print("{}", result.json);
  } else {
    print_text(options, result);
  }
  if (!options.quiet) print_notes(result.notes);
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
  command
      ->add_option("--threads", options->how.device.threads, "CPU threads; 0: all CPUs this process may use")
      ->check(thread_count())
      ->capture_default_str();
  command->add_flag("--kept", options->how.kept, "Show the stored ceilings, and measure nothing");
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
