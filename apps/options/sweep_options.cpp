#include "apps/options/sweep_options.h"

#include <fmt/format.h>

#include "apps/display/notes.h"
#include "apps/display/output_files.h"
#include "apps/options/list_option.h"
#include "apps/options/values.h"
#include "pipit/output_file.h"

namespace pipit::internal::apps {

void SweepOptions::add_to(CLI::App& command, const std::string& precision_help,
                          const std::string& seconds_help, const std::string& svg_help) {
  add_choices(command, "--precision", precisions, {"fp32", "fp16", "bf16", "int8"}, precision_help);
  command.add_option("--seconds", seconds, seconds_help)
      ->check(nonnegative_number())
      ->check(finite_number() & CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--results", results, "Append every row to this file as soon as it is measured")
      ->type_name("FILE");
  command.add_flag("--resume", resume, "Continue with the rows that --results does not have yet");
  output.add_to(command, {OutputForm::json, OutputForm::csv, OutputForm::html});
  command.add_option("--save-svg", svg, svg_help)->type_name("FILE");
  common.add_device_to(command);
  common.add_threads_to(command);
  common.add_output_to(command);
}

void SweepOptions::check(std::vector<std::string> inputs) const {
  if (resume && results.empty()) throw CLI::ValidationError("--resume", "needs --results");
  for (const std::string& path : output.paths()) {
    check_apart("--output", path, "--results", results);
    check_apart("--save-svg", svg, "--output", path);
  }
  check_apart("--save-svg", svg, "--results", results);
  inputs.push_back(results);
  output.check(inputs);
  check_output("--save-svg", svg, inputs);
}

std::vector<Precision> SweepOptions::all_precisions() const {
  std::vector<Precision> all;
  for (const std::string& name : precisions) all.push_back(apps::precisions().at(name));
  return all;
}

tools::SweepRun SweepOptions::run(std::optional<Progress>& bar) const {
  tools::SweepRun how;
  how.device.kind = common.device;
  how.device.threads = common.threads;
  how.seconds = seconds;
  how.results = results;
  how.resume = resume;
  how.progress = [&bar, quiet = common.quiet](std::int64_t done, std::int64_t total,
                                              const std::string& next) {
    if (!bar) bar.emplace("sweep", total, quiet);
    bar->update(done, next);
  };
  how.note = note_printer(common.quiet);
  return how;
}

void SweepOptions::write(const std::string& json, const std::function<std::string()>& svg_content,
                         const std::function<std::string()>& table) const {
  if (!svg.empty()) tools::write_file(svg, svg_content());
  output.write(json);
  fmt::print("{}", common.json ? json : table());
}

}  // namespace pipit::internal::apps
