#include "apps/display/output_files.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/image/folder.h"
#include "models/onnx/write/annotate.h"

namespace pipit::apps {

namespace {

// The files that hold weights of `file`, if that is a model that has some.
std::vector<std::filesystem::path> weights_beside(const std::filesystem::path& file) {
  std::vector<std::filesystem::path> files;
  try {
    for (const std::filesystem::path& name : external_files(file)) files.push_back(file.parent_path() / name);
  } catch (const Error&) {
    files.clear();  // no model, or one that reading will refuse
  }
  return files;
}

// Whether `output`, which is there, is the file `input`, one that it keeps its weights in, or one of the images below
// that folder.
bool is_among(const std::filesystem::path& output, const std::filesystem::path& input) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto same = [&](const fs::path& file) { return fs::equivalent(output, file, ignored); };
  if (same(input)) return true;
  if (fs::is_regular_file(input, ignored)) {
    const std::vector<fs::path> weights = weights_beside(input);
    return std::any_of(weights.begin(), weights.end(), same);
  }
  if (!fs::is_directory(input, ignored)) return false;
  if (!counts_as_image(output)) return false;
  const std::vector<fs::path> images = list_images(input).paths;
  return std::any_of(images.begin(), images.end(), same);
}

}  // namespace

void check_output(const std::string& option, const std::string& output,
                  const std::vector<std::string>& inputs) {
  if (output.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(output, ignored)) {
    for (const std::string& input : inputs) {
      if (is_among(output, input))
        throw CLI::ValidationError(option, "'" + output + "' would replace what is read; name another file");
    }
  }
  check_writable(output);
}

void check_apart(const std::string& option, const std::string& path, const std::string& other_option,
                 const std::string& other) {
  namespace fs = std::filesystem;
  if (path.empty() || other.empty()) return;
  // weakly_canonical() alone leaves a relative path as it is where nothing of it is there. What it cannot look into
  // cannot be written either, as check_writable() says.
  std::error_code ignored;
  const fs::path place = fs::weakly_canonical(fs::absolute(path), ignored);
  if (!place.empty() && place == fs::weakly_canonical(fs::absolute(other), ignored))
    throw CLI::ValidationError(option, "'" + path + "' is the same file as " + other_option);
}

}  // namespace pipit::apps
