// pipit verify DIR...: runs test directories in ONNX's layout and compares the outputs.
#include "pipit/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

namespace {

struct VerifyOptions {
  CommonOptions common;
  std::vector<std::string> directories;
  tools::VerifyOptions how;
  bool wide = false;
};

void print_text(const tools::Verification& result, int width) {
  Table table({{"test", Table::Align::left, 0, true},
               {"max error", Table::Align::right, 1},
               {"relative", Table::Align::right, 2},
               {"verdict"},
               {"note", Table::Align::left, 0, true}});
  for (const tools::VerifiedTest& test : result.tests) {
    const bool ran = test.verdict != tools::TestVerdict::unsupported;
    std::string note = test.note;  // a table cell holds one line
    std::ranges::replace(note, '\n', ' ');
    table.add({test.folder.string(), ran ? fmt::format("{:.3g}", test.max_error) : "",
               ran ? fmt::format("{:.3g}", test.relative_error) : "",
               test.verdict == tools::TestVerdict::passed   ? "passed"
               : test.verdict == tools::TestVerdict::failed ? "FAILED"
                                                            : "unsupported",
               note});
  }
  fmt::print("{}\npassed {} failed {} unsupported {}\n", table.str(0, width), result.passed, result.failed,
             result.unsupported);
}

int verify(const VerifyOptions& options) {
  const CommonOptions& common = options.common;
  common.check_precision();
  common.need_plan();
  tools::VerifyOptions how = options.how;
  how.load = common.load_options();
  std::optional<Progress> progress;
  how.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("verify", total, common.quiet);
    progress->update(done);
  };
  how.note = note_printer(common.quiet);
  const tools::Verification result =
      tools::verify({options.directories.begin(), options.directories.end()}, how);
  progress.reset();
  if (common.json) {
    fmt::print("{}", result.json);
  } else {
    print_text(result, table_width(options.wide));
  }
  if (result.failed > 0 && common.prefer_kernels.empty()) {
    print_next(common.quiet, {"verify", options.directories[0], "--kernel", "reference"},
               "whether plain loops agree: then a fast kernel is wrong, else the reading of the model");
  } else if (result.failed == 0 && result.passed > 0) {
    print_next(common.quiet, {"inspect", (result.tests[0].folder / "model.onnx").string(), "--why"},
               "which kernels ran, and why");
  }
  if (result.failed > 0) return kExitCheckFailed;
  return result.passed == 0 ? kExitUnsupported : kExitOk;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "Run test directories in ONNX's layout and compare the outputs");
  options->common.add_to(*command);
  command
      ->add_option("DIR", options->directories,
                   "Folders with model.onnx, test_data_set_*/input_*.pb and output_*.pb, or folders that "
                   "contain such folders")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--rtol", options->how.rtol,
                   "Tolerance relative to the expected value; for values stored in 16 bits, by default two "
                   "units in their last place")
      ->check(nonnegative_number())
      ->default_str("0.001");
  command->add_option("--atol", options->how.atol, "Absolute tolerance, added to that of --rtol")
      ->check(nonnegative_number())
      ->capture_default_str();
  command
      ->add_option("--norm", options->how.norm,
                   "Compare by norms instead of elements: the largest ||got - expected|| / ||expected|| that "
                   "an output may have. For whole models, whose rounding depends on the order of sums")
      ->check(positive_number());
  add_wide_to(*command, options->wide);
  command->footer(
      "Inputs that an operator needs as constants (the shape of a Reshape) are taken from the test's data.\n"
      "So are weights, biases and the like if the kernels of the device need them as constants; a note names "
      "them.\n"
      "Exit code 4 if a test fails, 3 if every test is unsupported.\n"
      "Example: pipit verify /usr/share/libonnx-testdata/data/node/test_relu");
  command->callback([options, &exit_code] { exit_code = verify(*options); });
}

}  // namespace pipit::internal::apps
