#include "models/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "layers/kernel_tuning.h"
#include "models/catalogue.h"
#include "models/image/folder.h"
#include "models/onnx/write/annotate.h"

namespace pipit::internal {

namespace {

namespace fs = std::filesystem;

// The files that hold weights of `file`, if that is a model that has some.
std::vector<fs::path> weights_beside(const fs::path& file) {
  std::vector<fs::path> files;
  try {
    for (const fs::path& name : external_files(file)) files.push_back(file.parent_path() / name);
  } catch (const Error&) {
    files.clear();  // no model, or one that reading will refuse
  }
  return files;
}

std::vector<fs::path> images_below(const fs::path& folder) {
  try {
    return list_images(folder).paths;
  } catch (const Error&) {
    return {};  // reading says what is wrong with it
  }
}

std::string replaces_input(const fs::path& output, const std::string& input) {
  const auto is_output = [&](const fs::path& file) { return same_file(output, file); };
  if (is_output(input)) return fmt::format("'{}' would replace '{}', which is read", output.string(), input);
  std::error_code ignored;
  // Only what is there already can be among many.
  if (!fs::exists(output, ignored)) return {};
  const bool folder = fs::is_directory(input, ignored);
  const std::vector<fs::path> parts = folder                                ? images_below(input)
                                      : fs::is_regular_file(input, ignored) ? weights_beside(input)
                                                                            : std::vector<fs::path>{};
  const auto part = std::ranges::find_if(parts, is_output);
  if (part == parts.end()) return {};
  return fmt::format("'{}' would replace '{}', {} '{}', which is read", output.string(), part->string(),
                     folder ? "an image of" : "which holds weights of", input);
}

// The name of a fetched model, or what else pipit keeps there; empty for other files.
std::string kept_as(const fs::path& output) {
  for (const NamedModel& model : named_models()) {
    if (model.origin == ModelOrigin::fetched && same_file(output, fetched_model_path(model.name)))
      return std::string(model.name);
  }
  if (same_file(output, default_tuning_cache())) return "the times of kernels";
  const fs::path folder = cache_folder();
  return !folder.empty() && same_file(output, folder / "ceilings.json") ? "the machine's ceilings" : "";
}

}  // namespace

bool same_file(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  // weakly_canonical() alone leaves a relative path as it is where nothing of it is there. What it cannot look into
  // cannot be written either, as check_writable() says.
  const fs::path place = fs::weakly_canonical(fs::absolute(a, error), error);
  return !place.empty() && place == fs::weakly_canonical(fs::absolute(b, error), error);
}

std::string replaced_by(const fs::path& output, std::span<const std::string> inputs) {
  std::error_code ignored;
  // A device keeps nothing: /dev/null may be written and read.
  if (fs::exists(output, ignored) && !fs::is_regular_file(output, ignored)) return {};
  for (const std::string& input : inputs) {
    if (std::string why = input.empty() ? "" : replaces_input(output, input); !why.empty()) return why;
  }
  if (const std::string kept = kept_as(output); !kept.empty())
    return fmt::format("'{}' would replace what pipit keeps there: {}", output.string(), kept);
  return {};
}

void check_output_file(const fs::path& output, std::span<const std::string> inputs) {
  if (output.empty()) throw ArgumentError("no file is named for the result");
  if (const std::string why = replaced_by(output, inputs); !why.empty()) fail("{}; name another file", why);
  check_writable(output);
}

}  // namespace pipit::internal
