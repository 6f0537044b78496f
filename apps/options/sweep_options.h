// Options that both sweeps have.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/options/options.h"
#include "apps/options/output_option.h"

namespace pipit::internal::apps {

/// --precision, --seconds, --results, --resume, --output, --save-svg, --device, --threads, --json, --quiet.
struct SweepOptions {
  std::vector<std::string> precisions;  ///< of fp32, fp16, bf16, int8
  CommonOptions common;                 ///< --device, --threads, --json, --quiet
  double seconds = 0;                   ///< time box of a row
  std::string results, svg;
  OutputOption output;
  bool resume = false;

  /// What is in the struct are the defaults. `precision`, `seconds`, `svg`: the help of these. `forms`: of --output.
  void add_to(CLI::App& command, const std::string& precision, const std::string& seconds,
              const std::string& svg, const std::vector<OutputForm>& forms);
  /// Throws CLI::ValidationError for options that do not go together and files that cannot be written, are named twice,
  /// or are one of `inputs`; Error where there is no such device.
  void check(std::vector<std::string> inputs) const;
  /// Throws CLI::ValidationError, naming `option`, where one of these precisions is bf16 and the device a GPU.
  void refuse_bf16_on_gpu(const char* option, const std::vector<std::string>& names) const;
  /// "device", "threads", "machine" (machine_identity()) and "pipit" (the version), for the first line of --results:
  /// rows of another machine, instruction set or version do not go on.
  nlohmann::ordered_json machine_json() const;
};

}  // namespace pipit::internal::apps
