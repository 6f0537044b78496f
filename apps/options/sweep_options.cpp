#include "apps/options/sweep_options.h"

#include <algorithm>

#include "apps/display/output_files.h"
#include "apps/options/list_option.h"
#include "apps/options/values.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/platform/machine_identity.h"
#include "engine/platform/thread_pool.h"

namespace pipit::internal::apps {

void SweepOptions::add_to(CLI::App& command, const std::string& precision_help,
                          const std::string& seconds_help, const std::string& svg_help,
                          const std::vector<OutputForm>& forms) {
  add_choices(command, "--precision", precisions, {"fp32", "fp16", "bf16", "int8"}, precision_help);
  command.add_option("--seconds", seconds, seconds_help)
      ->check(nonnegative_number())
      ->check(finite_number() & CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--results", results, "Append every row to this file as soon as it is measured")
      ->type_name("FILE");
  command.add_flag("--resume", resume, "Continue with the rows that --results does not have yet");
  output.add_to(command, forms);
  command.add_option("--save-svg", svg, svg_help)->type_name("FILE");
  common.add_device_to(command);
  common.add_threads_to(command);
  common.add_output_to(command);
}

void SweepOptions::check(std::vector<std::string> inputs) const {
  if (resume && results.empty()) throw CLI::ValidationError("--resume", "goes with --results");
  for (const std::string& path : output.paths()) {
    check_apart("--output", path, "--results", results);
    check_apart("--save-svg", svg, "--output", path);
  }
  check_apart("--save-svg", svg, "--results", results);
  inputs.push_back(results);
  output.check(inputs);
  check_output("--save-svg", svg, inputs);
  refuse_bf16_on_gpu("--precision", precisions);
  require_device(common.device);
}

void SweepOptions::refuse_bf16_on_gpu(const char* option, const std::vector<std::string>& names) const {
  if (common.device == DeviceKind::cuda && std::ranges::find(names, "bf16") != names.end())
    throw CLI::ValidationError(option,
                               "bf16 runs on the CPU only; use device cpu, or fp32, fp16 or int8 on a GPU");
}

nlohmann::ordered_json SweepOptions::machine_json() const {
  const int threads = common.threads == 0 ? default_threads() : common.threads;
  return {{"device", common.device == DeviceKind::cuda ? gpu_description(0) : cpu_description()},
          {"threads", threads},
          {"machine", machine_identity(common.device, 0, threads)},
          {"pipit", version()}};
}

}  // namespace pipit::internal::apps
