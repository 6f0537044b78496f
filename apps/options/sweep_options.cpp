#include "apps/options/sweep_options.h"

#include "apps/display/output_files.h"
#include "apps/options/list_option.h"
#include "apps/options/options.h"
#include "engine/platform/device.h"
#include "engine/platform/thread_pool.h"

namespace pipit::apps {

void SweepOptions::add_to(CLI::App& command, const std::string& precision_help,
                          const std::string& seconds_help, const std::string& svg_help) {
  add_list(command, "--precision", precisions, CLI::IsMember({"fp32", "fp16", "int8"}), precision_help);
  command.add_option("--seconds", seconds, seconds_help)
      ->check(nonnegative_number())
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--results", results, "Append every row to this file as soon as it is measured");
  command.add_flag("--resume", resume, "Go on with the rows that --results does not have yet");
  command.add_option("--csv", csv, "Also write all rows into this file");
  command.add_option("--save-svg", svg, svg_help);
  command
      .add_option_function<std::string>(
          "--device",
          [this](const std::string& name) { device = name == "cuda" ? DeviceKind::cuda : DeviceKind::cpu; },
          "Where to run [cpu]")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command.add_option("--threads", threads, "CPU threads; 0: all CPUs this process may use [0]")
      ->check(CLI::Range(0, 1024));
  command.add_flag("--json", json, "Write the result to stdout as one JSON document");
  command.add_flag("--quiet", quiet, "No progress and no notes on stderr; errors still appear");
}

void SweepOptions::check(std::vector<std::string> inputs) const {
  if (resume && results.empty()) throw CLI::ValidationError("--resume", "goes with --results");
  inputs.push_back(results);
  check_output("--csv", csv, inputs);
  inputs.push_back(csv);
  check_output("--save-svg", svg, inputs);
  require_device(device);
}

nlohmann::ordered_json SweepOptions::machine_json() const {
  return {{"device", device == DeviceKind::cuda ? gpu_description(0) : cpu_description()},
          {"threads", threads == 0 ? available_cpus() : threads}};
}

}  // namespace pipit::apps
