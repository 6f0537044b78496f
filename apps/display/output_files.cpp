#include "apps/display/output_files.h"

#include <CLI/CLI.hpp>

#include "pipit/output_file.h"

namespace pipit::internal::apps {

void check_output(const std::string& option, const std::string& output,
                  const std::vector<std::string>& inputs) {
  if (output.empty()) return;
  const std::string why = tools::replaced_input(output, inputs);
  if (!why.empty()) throw CLI::ValidationError(option, why + "; name another file");
  tools::check_writable(output);
}

void check_apart(const std::string& option, const std::string& path, const std::string& other_option,
                 const std::string& other) {
  if (tools::same_file(path, other))
    throw CLI::ValidationError(option, "'" + path + "' is the same file as " + other_option);
}

}  // namespace pipit::internal::apps
