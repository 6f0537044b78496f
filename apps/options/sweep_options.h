// Options that both sweeps have.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/display/progress.h"
#include "apps/options/options.h"
#include "apps/options/output_option.h"
#include "pipit/sweep.h"

namespace pipit::internal::apps {

/// --precision, --seconds, --results, --resume, --output, --save-svg, --device, --threads, --json, --quiet.
struct SweepOptions {
  std::vector<std::string> precisions;  ///< of fp32, fp16, bf16, int8
  CommonOptions common;                 ///< --device, --threads, --json, --quiet
  double seconds = 0;                   ///< time box of a row
  std::string results, svg;
  OutputOption output;
  bool resume = false;

  /// What is in the struct are the defaults. `precision`, `seconds`, `svg`: the help of these.
  void add_to(CLI::App& command, const std::string& precision, const std::string& seconds,
              const std::string& svg);
  /// Throws CLI::ValidationError for options that do not go together and files that cannot be written, are named twice,
  /// or are one of `inputs`.
  void check(std::vector<std::string> inputs) const;

  std::vector<Precision> all_precisions() const;
  /// The options in the library's form. Creates `bar` when the first row is measured; the caller resets it.
  tools::SweepRun run(std::optional<Progress>& bar) const;
  /// Writes the picture and the files of --output, and prints the JSON document or the table.
  void write(const std::string& json, const std::function<std::string()>& svg_content,
             const std::function<std::string()>& table) const;
};

}  // namespace pipit::internal::apps
