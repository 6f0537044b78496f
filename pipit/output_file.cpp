#include "pipit/output_file.h"

#include "engine/base/file.h"
#include "models/run_files.h"

namespace pipit::tools {

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  return internal::same_file(a, b);
}

std::string replaced_input(const std::filesystem::path& output, std::span<const std::string> inputs) {
  return internal::replaced_by(output, inputs);
}

void check_writable(const std::filesystem::path& path) {
  internal::check_writable(path);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  internal::write_file(path, content);
}

}  // namespace pipit::tools
