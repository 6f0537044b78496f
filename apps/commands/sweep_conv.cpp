// pipit sweep conv: convolutions over a grid of sizes, each precision and kernel against one base.
#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/commands/sweep_report.h"
#include "apps/display/next_command.h"
#include "apps/display/terminal.h"
#include "apps/options/list_option.h"
#include "apps/options/sweep_options.h"
#include "apps/options/values.h"
#include "pipit/option_values.h"

namespace pipit::internal::apps {

namespace {

struct SweepConvOptions {
  SweepOptions shared{.precisions = {"int8"}, .seconds = 0.04};
  tools::ConvSweepOptions how;  // what the library takes as it is given here
  std::size_t top = 10;
  bool wide = false;
};

// Seconds of a sweep, from which on it is said where they went.
constexpr double kWorthSaying = 10;

void print_seconds(const tools::ConvSweepSeconds& s) {
  if (s.inputs + s.plans + s.kernels + s.turns + s.errors <= kWorthSaying) return;
  fmt::print(stderr,
             "pipit: {:.1f} s for inputs and references, {:.1f} for plans of libraries, {:.1f} to choose "
             "kernels, {:.1f} in turns, {:.1f} for errors\n",
             s.inputs, s.plans, s.kernels, s.turns, s.errors);
}

int sweep_conv(const SweepConvOptions& options) {
  const SweepOptions& shared = options.shared;
  shared.check({});
  for (const std::string& base : options.how.bases) {
    if (shared.common.device != DeviceKind::cuda && base.starts_with("cudnn"))
      throw CLI::ValidationError("--base", base + " runs on a GPU; give --device cuda with it");
  }
  if (options.how.grid.points().empty())
    throw CLI::ValidationError(
        "--in", "and the other lists: the usual rule leaves every combination out; --all takes them");
  std::optional<Progress> bar;
  tools::ConvSweepOptions how = options.how;
  how.run = shared.run(bar);
  how.precisions = shared.all_precisions();
  const tools::ConvSweep sweep = tools::sweep_convolutions(how);
  bar.reset();
  if (!shared.common.quiet) print_seconds(sweep.seconds);
  shared.write(
      sweep.json, [&] { return conv_svg(sweep); },
      [&] { return conv_table(sweep, options.top, table_width(options.wide)); });
  print_next(shared.common.quiet,
             {"sweep", "conv", "--sample", "200", "--results", "conv.jsonl", "--output", "conv.html"},
             "a sample of the usual grid, as a page to look at");
  return exit_of_rows(sweep.rows, sweep.failed);
}

}  // namespace

void add_sweep_conv(CLI::App& parent, int& exit_code) {
  const auto options = std::make_shared<SweepConvOptions>();
  CLI::App* command = parent.add_subcommand(
      "conv", "Time convolutions over a grid of sizes and compare precisions and kernels with a base");
  tools::ConvSweepOptions& how = options->how;
  tools::ConvGrid& grid = how.grid;
  const auto extents = [](std::int64_t most) { return CLI::Range(std::int64_t{1}, most); };
  add_list(*command, "--n", grid.batch, extents(65536), "Images [1,4,8,16]");
  add_list(*command, "--in", grid.in, extents(65536), "Input channels [1,3,8,16,32]");
  add_list(*command, "--out", grid.out, extents(65536), "Output channels [3,8,16,32,64]");
  add_list(*command, "--size", grid.size, extents(65536), "Height and width [32,64,128,256,512]");
  add_list(*command, "--kernel", grid.kernel, extents(255), "Height and width of the window [1,3,5,7,9,11]");
  add_list(*command, "--stride", grid.stride, extents(255), "Strides [1,2]");
  command->add_flag("--all", grid.all,
                    "Also include what is left out by default: fewer outputs than inputs, and large windows "
                    "on large images (without this option, 3686 of 6000 remain)");
  command->add_option("--sample", how.sample, "Only N of the combinations, drawn at random; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--seed", how.seed, "Seed of --sample")->capture_default_str();
  std::vector<std::string> backends = tools::kernel_names();
  backends.insert(backends.begin(), "auto");
  add_list(*command, "--backend", how.backends, one_of(backends),
           "Kernels by name (pipit inspect MODEL --why lists some); auto: the fastest of all [auto]")
      ->type_name("auto|KERNEL,...");
  add_choices(*command, "--base", how.bases, {"fp32", "fp16", "bf16", "int8", "cudnn", "cudnn-best"},
              "What the rows are compared with: a precision, with the fastest of its kernels; on a GPU also "
              "cudnn, fp16 as frameworks call it (the first plan of its heuristics, then a kernel that adds "
              "the bias), or cudnn-best (the fastest of its first four plans that include the bias), each in "
              "NHWC or NCHW, whichever is faster [fp32, on a GPU fp16]");
  command->add_flag("--floor", how.floor,
                    "Also show the least possible time of each row at the machine's ceilings (as in profile "
                    "--floor, on a GPU with operands in memory) and its share of the measured time");
  command
      ->add_option(
          "--top", options->top,
          "Number of rows in the table: those with the largest speed-ups by the lower end of their intervals")
      ->check(count_value())
      ->capture_default_str();
  add_wide_to(*command, options->wide);
  options->shared.add_to(*command, "What is compared with --base [int8]",
                         "Time limit of a row: everything that runs for a layer takes turns until the time "
                         "of all its rows is used up",
                         "Also draw speed-ups over image size and input channels into this file");
  command->footer(
      "Square convolutions with a bias, padding half of the window and no activation, in NHWC, on normal\n"
      "numbers after a random convolution and a ReLU. Speed-ups are medians over turns of both, with\n"
      "95 % intervals; 'faster' and 'slower' count those whose whole interval is more than 1 % away from 1.\n"
      "Errors are against sums in double precision of the same data, at 256 pixels of all channels. What\n"
      "does not run gets a row with the reason.\n"
      "On a GPU a time is that of one of 3 to 20 launches in a captured graph, each with its own operands\n"
      "from memory: the L2 cache is overwritten first. A second time is that of launches that share\n"
      "their operands, in the cache.\n"
      "Examples:\n"
      "  pipit sweep conv --sample 200 --results conv.jsonl --output conv.csv --output conv.html\n"
      "  pipit sweep conv --n 1 --in 64,128 --out 64,128 --size 28,56 --kernel 3 --stride 1 --all "
      "--precision fp16,int8\n"
      "  pipit sweep conv --device cuda --precision int8,fp16 --base fp16,cudnn,cudnn-best --floor --output "
      "gpu.html");
  command->callback([options, &exit_code] { exit_code = sweep_conv(*options); });
}

}  // namespace pipit::internal::apps
