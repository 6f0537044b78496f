// --output FILE of commands that can write what they found in several forms.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "pipit/report.h"

namespace pipit::internal::apps {

using OutputForm = tools::ReportForm;

class OutputOption {
 public:
  /// Declares the option, which may be repeated. The end of a file's name says its form: .json, .csv, .html,
  /// .trace.json, .trtexec.json, of which the command has `forms`. Any other end, and a file that is named twice, are
  /// wrong usage.
  void add_to(CLI::App& command, const std::vector<OutputForm>& forms);
  bool has(OutputForm form) const;
  std::vector<std::string> paths() const;
  /// Before the work begins: check_output() of every file. `inputs` are what the command reads.
  void check(const std::vector<std::string>& inputs) const;
  /// Writes every file, whole or not at all: tools::report() of a result's JSON.
  void write(const std::string& json, const std::string& sweep = {}) const;
  /// The same of what `content` makes of it.
  void write(const std::function<std::string(OutputForm)>& content) const;

 private:
  struct File {
    std::string path;
    OutputForm form = OutputForm::json;
  };
  std::vector<File> files_;
};

}  // namespace pipit::internal::apps
