// pipit classify MODEL IMAGE...: the most probable classes of images.

#include "pipit/classify.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/display/layer_table.h"
#include "apps/display/next_command.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "pipit/fetch.h"

namespace pipit::internal::apps {

namespace {

struct ClassifyOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::vector<std::string> images;
  int topk = 5;
  bool profile = false;
  int runs = 20;
  bool wide = false;
  std::string model_note;  // why it is this model, where none was named
};

std::string image_text(const tools::ClassifiedImage& image) {
  const bool tags = !image.top.empty() && image.top[0].yes;
  std::vector<Table::Column> columns = {{"", Table::Align::right}, {"", Table::Align::right}, {""}};
  if (tags) columns.push_back({""});
  Table table(columns);
  for (std::size_t i = 0; i < image.top.size(); ++i) {
    const Prediction& answer = image.top[i].prediction;
    std::vector<std::string> row = {fmt::format("{}", i + 1),
                                    fmt::format("{:.2f} %", 100 * answer.probability)};
    if (tags) row.emplace_back(*image.top[i].yes ? "yes" : "no");
    row.push_back(answer.label);
    table.add(std::move(row));
  }
  return printable(image.path.string()) + "\n" + table.rows(2);
}

// A model after an image is a mistake: the model is named first.
void check_order(const std::string& first, const std::vector<std::string>& others) {
  for (const std::string& word : others) {
    if (tools::find_named_model(word) != nullptr || std::filesystem::path(word).extension() == ".onnx")
      throw CLI::ValidationError(
          "IMAGE", fmt::format("'{}' is a model, but '{}' comes first: pipit classify {} {}", word, first,
                               word, first));
  }
}

void print_next_of(const ClassifyOptions& options, const tools::Classification& result) {
  const std::string& model = options.model.model;
  const bool guessed = result.preprocessing_guessed;
  if ((guessed || !result.labelled) && tools::find_named_model(model) == nullptr) {
    print_next(options.common.quiet,
               {"annotate", model, result.labelled ? "" : "--labels", result.labelled ? "" : "classes.txt",
                guessed ? "--preset" : "", guessed ? std::string_view(result.preset) : "", "--output",
                "annotated.onnx"},
               "a copy that says what was assumed here");
  } else {
    print_next(options.common.quiet, {"profile", model}, "how long each layer takes");
  }
}

void print_end(const ClassifyOptions& options, const tools::Classification& result) {
  const int width = table_width(options.wide);
  const bool answered =
      std::ranges::any_of(result.images, [](const auto& image) { return image.error.empty(); });
  if (answered)
    fmt::print("{}", wrapped(fmt::format("preprocessing {}: {}\n", result.preprocessing_source,
                                         result.preprocessing),
                             2, width));
  if (result.profile)
    fmt::print("\n{}{}", layer_table(*result.profile, {.width = width}),
               wrapped(profile_summary(*result.profile), kSummaryIndent, width));
}

int classify(const ClassifyOptions& options) {
  const CommonOptions& common = options.common;
  common.check_precision();
  tools::ClassifyOptions how;
  ClassifierOptions& classifier = how.classifier;
  classifier.load = common.load_options();
  options.model.add_to(classifier.load);
  classifier.preprocess = options.image.preprocess_options();
  classifier.labels = options.image.labels;
  classifier.scores = options.image.score_kind();
  classifier.threshold = options.image.threshold;
  how.top = options.topk;
  if (options.profile) how.profile_runs = options.runs;
  how.model_note = options.model_note;
  how.note = note_printer(common.quiet);
  how.image = [&](const tools::ClassifiedImage& image) {
    if (!image.error.empty()) {
      print_error(image.error);
    } else if (!common.json) {
      fmt::print("{}", image_text(image));
    }
  };
  const tools::Classification result =
      tools::classify(options.model.model, {options.images.begin(), options.images.end()}, how);
  if (!common.json) print_end(options, result);
  if (!common.quiet && !result.failed) print_notes(result.notes);
  if (!common.quiet && result.failed && !result.left_out.empty()) print_notes({result.left_out});
  if (common.json) fmt::print("{}", result.json);
  if (!result.failed) print_next_of(options, result);
  return result.failed ? kExitRuntime : kExitOk;
}

}  // namespace

void add_classify(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ClassifyOptions>();
  CLI::App* command =
      app.add_subcommand("classify", "Name what images show: the most probable classes of each");
  options->common.add_to(*command);
  options->model.add_to(*command, false);
  options->model.add_heads_to(*command);
  options->image.add_to(*command);
  options->image.add_threshold_to(*command);
  CLI::Option* images =
      command->add_option("IMAGE", options->images, "JPEG, PNG, BMP or WebP files, or folders of them");
  images->required()->type_name("IMAGE");
  CLI::Option* model = command->get_option("MODEL");
  model->required(false)->description(model_help() +
                                      " [efficientnet-lite0, fetched once; resnet20-cifar10 if that fails]");
  // It is parsed before what is required is looked for.
  model->each([images](const std::string& word) {
    if (tools::is_for_images(word)) images->required(false);
  });
  command->add_option("--topk", options->topk, "Classes to print per image")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_flag("--profile", options->profile, "Also print the time of every layer (on the last image)");
  command->add_option("--runs", options->runs, "With --profile: runs, of which the medians are shown")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add_wide_to(*command, options->wide);
  command->footer(
      "Examples:\n"
      "  pipit classify photo.jpg\n"
      "  pipit classify resnet20-cifar10 cat.jpg\n"
      "  pipit classify resnet20-cifar10 photographs/\n"
      "  pipit classify squeezenet.onnx *.jpg --labels imagenet-classes.txt --topk 3 --json\n"
      "  pipit classify model.onnx cat.jpg --preset caffe --crop 227 --profile");
  command->callback([options, &exit_code] {
    if (const std::string& first = options->model.model; tools::is_for_images(first)) {
      check_order(first, options->images);
      // Nothing is fetched for it.
      if (std::error_code ignored;
          std::filesystem::status(first, ignored).type() == std::filesystem::file_type::not_found)
        throw Error(fmt::format("{}: no such file or folder", first));
      options->images.insert(options->images.begin(), first);
      tools::DefaultModel chosen = tools::default_model(note_printer(options->common.quiet));
      options->model.model = std::move(chosen.name);
      options->model_note = std::move(chosen.note);
    }
    exit_code = classify(*options);
  });
}

}  // namespace pipit::internal::apps
