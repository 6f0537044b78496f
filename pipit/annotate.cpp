#include "pipit/annotate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "models/catalogue.h"
#include "models/onnx/write/annotate.h"
#include "models/run_files.h"
#include "models/score_kind.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/stages.h"
#include "pipit/measuring/json.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Copies of the files that lie beside a model. Until keep() what was made goes again with this, so that a run that
// fails leaves nothing.
class WeightCopies {
 public:
  WeightCopies(const fs::path& model, const fs::path& output)
      : model_(model), output_(output), folder_(folder_of(output)) {
    const std::vector<fs::path> files = external_files(model);
    std::error_code error;
    if (files.empty() || fs::equivalent(folder_of(model), folder_, error)) return;
    if (error) fail("{}: {}", folder_.string(), error.message());
    std::erase_if(copied_ = files, [&](const fs::path& file) { return is_there(file); });
  }
  ~WeightCopies() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) fs::remove(*path, ignored);
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;

  void make() {
    for (const fs::path& file : copied_) {
      make_folders(file.parent_path());
      copy_as_new(folder_of(model_) / file, folder_ / file);
      made_.push_back(folder_ / file);
    }
  }
  void keep() { made_.clear(); }

 private:
  // Whether the folder has these bytes under this name already. Anything else there belongs to the user.
  bool is_there(const fs::path& file) const {
    const fs::path target = folder_ / file;
    if (target.lexically_normal() == (folder_ / output_.filename()).lexically_normal()) {
      fail("{}: weights of {} go into a file of this name; choose another for the output", output_.string(),
           model_.string());
    }
    std::error_code error;
    const fs::path inside = fs::weakly_canonical(fs::absolute(folder_of(target), error), error);
    if (error) fail("{}: {}", target.string(), error.message());
    const fs::path folder = fs::canonical(folder_, error);
    if (std::mismatch(folder.begin(), folder.end(), inside.begin(), inside.end()).first != folder.end()) {
      fail("{}: weights of {} would go there, which leads out of the folder to {}", target.string(),
           model_.string(), inside.string());
    }
    if (!fs::exists(fs::symlink_status(target, error))) return false;
    if (same_content(folder_of(model_) / file, target)) return true;
    fail(
        "{}: there is another file already, and the weights of {} would go there; choose another folder for "
        "the output",
        target.string(), model_.string());
  }
  void make_folders(const fs::path& inside) {
    fs::path folder = folder_;
    for (const fs::path& part : inside) {
      folder /= part;
      std::error_code error;
      if (fs::create_directory(folder, error)) made_.push_back(folder);
      if (error) fail("{}: cannot be made: {}", folder.string(), error.message());
    }
  }

  fs::path model_;
  fs::path output_;
  fs::path folder_;
  std::vector<fs::path> copied_;  // below the folders of both
  std::vector<fs::path> made_;
};

constexpr char kWriting[] = "writing";

}  // namespace

AnnotatedFile annotate(const std::string& name, const fs::path& output, const AnnotateOptions& options) {
  const ScopedFloatMode mode;
  const ClassifierOptions& given = options.classifier;
  const bool prepares = given.preprocess != PreprocessOptions{};
  if (given.labels.empty() && !prepares && !given.scores)
    throw ArgumentError("nothing to store: labels, a kind of scores or preprocessing have to be given");
  check_output_file(output, std::array{name, given.labels.string()});
  if (find_named_model(name) != nullptr)
    throw ArgumentError(
        fmt::format("{} is a model that pipit knows by name; annotate takes an ONNX file", name));
  plan_stages(options.progress, {{kReading}, {kWriting}});
  report_stage(options.progress, kReading, 0, 1);
  const Model model = read_model(name, given.load, {.run_batch = {}, .classifies = true});

  AnnotatedFile result;
  result.notes = metadata_notes(model);
  std::map<std::string, std::string> metadata;
  nlohmann::ordered_json json = {
      {"pipit", version()}, {"command", "annotate"}, {"model", model.name}, {"output", output.string()}};
  if (!given.labels.empty() || given.scores) {
    const ClassOutput scores = class_output(model.graph, model, given.scores, given.threshold);
    if (!given.labels.empty()) {
      const Labels labels = labels_for(model, given.labels, scores);
      metadata.emplace(kLabelsKey, labels_to_text(labels));
      result.labels = std::ssize(labels);
      json["labels"] = result.labels;
    }
  }
  if (prepares) {
    const Preparation preparation = prepare_for(model, given.preprocess);
    metadata.emplace(kPreprocessKey, to_json(preparation.preprocess));
    json["preprocessing"] = preparation_json(preparation);
    result.preprocessing = describe(preparation.preprocess);
  }
  if (given.scores) {
    result.scores = score_kind_name(*given.scores);
    metadata.emplace(kScoresKey, result.scores);
    json["scores"] = result.scores;
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 31;  // of a protobuf message
  const std::string bytes = with_metadata(read_file(name, kMaxBytes), metadata);
  report_stage(options.progress, kWriting, 0, 1);
  WeightCopies weights(name, output);
  weights.make();
  write_file(output, bytes);
  weights.keep();
  result.bytes = static_cast<std::int64_t>(bytes.size());
  json["bytes"] = result.bytes;
  result.json = json_text(json);
  return result;
}

}  // namespace pipit::tools
