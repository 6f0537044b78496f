// pipit classify MODEL IMAGE...: the most probable classes of images.

#include "apps/commands/commands.h"
#include "apps/display/layer_table.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/device.h"
#include "layers/passes/passes.h"
#include "models/image/folder.h"
#include "models/score_kind.h"
#include "pipit/fetch.h"
#include "pipit/measuring/image_pipeline.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/layer_json.h"
#include "pipit/measuring/profiled_run.h"
#include "pipit/measuring/runner.h"

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

nlohmann::ordered_json image_json(const ImageResult& result, const std::string& path,
                                  const std::vector<ScoredClass>& top, const ClassOutput& output,
                                  const Labels& labels) {
  nlohmann::ordered_json json = {{"path", path}, {"decode_ms", result.decode_ms}, {"run_ms", result.run_ms}};
  if (result.loaded.exif_orientation != 1) json["exif_orientation"] = result.loaded.exif_orientation;
  for (const ScoredClass& p : top) {
    json["top"].push_back(
        {{"class", p.index}, {"label", label_of(labels, p.index)}, {"probability", p.probability}});
    if (output.are_tags()) json["top"].back()["yes"] = output.is_yes(p.probability);
  }
  return json;
}

Table image_table(const std::vector<ScoredClass>& top, const ClassOutput& output, const Labels& labels) {
  std::vector<Table::Column> columns = {{"", Table::Align::right}, {"", Table::Align::right}, {""}};
  if (output.are_tags()) columns.push_back({""});
  Table table(columns);
  for (std::size_t i = 0; i < top.size(); ++i) {
    std::vector<std::string> row = {fmt::format("{}", i + 1),
                                    fmt::format("{:.2f} %", 100 * top[i].probability)};
    if (output.are_tags()) row.emplace_back(output.is_yes(top[i].probability) ? "yes" : "no");
    row.push_back(label_of(labels, top[i].index));
    table.add(std::move(row));
  }
  return table;
}

// Whether what stands for MODEL is an image or a folder, so that no model is named.
bool is_for_images(const std::string& word) {
  if (tools::find_named_model(word) != nullptr) return false;
  return is_folder(word) || counts_as_image(word);
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

// Folders stand for the images below them.
ImageFiles image_files(const std::vector<std::string>& arguments) {
  ImageFiles all;
  for (const std::filesystem::path argument : arguments) {
    if (!is_folder(argument)) {
      all.paths.push_back(argument);  // whatever is wrong with it is said in its turn
      continue;
    }
    add_images(all, argument);
  }
  return all;
}

void print_next_of(const ClassifyOptions& options, const Preparation& preparation, bool labelled) {
  const std::string& model = options.model.model;
  const bool guessed = preparation.source == Preparation::Source::guessed;
  if ((guessed || !labelled) && tools::find_named_model(model) == nullptr) {
    print_next(options.common.quiet,
               {"annotate", model, labelled ? "" : "--labels", labelled ? "" : "classes.txt",
                guessed ? "--preset" : "", guessed ? std::string_view(preparation.preset) : "", "--output",
                "annotated.onnx"},
               "a copy that says what was assumed here");
  } else {
    print_next(options.common.quiet, {"profile", model}, "how long each layer takes");
  }
}

int classify(const ClassifyOptions& options) {
  const auto begin = Clock::now();
  Model model = options.model.load();
  const Preparation preparation = options.image.resolve(model);
  const Preprocess& preprocess = preparation.preprocess;
  const bool quantized = is_quantized(model.graph);
  ImageFiles files = image_files(options.images);
  const std::vector<std::filesystem::path>& paths = files.paths;
  CommonOptions common = options.common;
  common.preprocess = preprocess;
  if (common.device == DeviceKind::cuda) common.byte_images = preprocess;
  Runner runner = common.make_runner(model.name, std::move(model.graph));
  const ClassOutput output = options.image.resolve_output(runner.plan->graph(), model);
  const Labels labels = options.image.resolve_labels(model, output);

  nlohmann::ordered_json json = json_header("classify", model.name, *runner.plan);
  json["image_decoders"] = decoders_json();
  json["preprocessing"] = preparation_json(preparation);
  add_scores_to(json, output);
  json["input_type"] = dtype_name(first_input(*runner.plan).dtype);
  if (!common.plan.empty()) json["preprocess_differences"] = runner.preprocess_differences;
  json["images"] = nlohmann::ordered_json::array();
  bool failed = false;
  const auto add_failed = [&](const std::string& path, const std::string& error) {
    failed = true;
    print_error(error);
    json["images"].push_back({{"path", path}, {"error", error}});
  };
  for (const UnreadableImage& folder : files.left_out.folders) add_failed(folder.path.string(), folder.error);
  files.left_out.folders.clear();
  std::string last;  // the last image that could be classified
  ImageCounts counts;
  run_images({&runner, 1}, preprocess, output, paths, [&](const ImageResult& result) {
    const std::string path = paths[static_cast<std::size_t>(result.image)].string();
    std::vector<ScoredClass> top;
    try {
      if (result.error) std::rethrow_exception(result.error);
      top = top_classes(output, result.scores, options.topk, path, runner.model, options.common.precision);
    } catch (const Error& e) {
      add_failed(path, e.what());
      return;
    }
    if (last.empty()) json["first_answer_ms"] = milliseconds_since(begin);
    last = path;
    counts.add(result.loaded, output, result.scores);
    json["images"].push_back(image_json(result, path, top, output, labels));
    if (!options.common.json) fmt::print("{}\n{}", printable(path), image_table(top, output, labels).rows(2));
  });
  const int width = table_width(options.wide);
  if (!options.common.json && !last.empty())
    fmt::print("{}", wrapped(fmt::format("preprocessing {}: {}\n", source_text(preparation),
                                         detail::describe(preprocess)),
                             2, width));
  if (options.profile && !last.empty()) {
    Tensor input(first_input(*runner.plan));
    for (std::int64_t i = 0; i < output.batch; ++i)
      load_image(last, preprocess, input.view(), i, runner.normalizes);
    const ConstTensorView view = input.view();
    detail::ProfiledRun run;
    run.plan = runner.plan;
    run.profile = runner.profile({&view, 1}, 0, options.runs);
    run.look_around(false, {});
    json["profile"] = detail::layer_json(run.rows, *runner.plan, run.profile);
    if (!options.common.json) {
      const tools::ModelProfile profile = detail::model_profile(run);
      fmt::print("\n{}{}", layer_table(profile, {.width = width}),
                 wrapped(profile_summary(profile), kSummaryIndent, width));
    }
  }
  if (const PlanOptions& plan = runner.plan->options(); plan.device == DeviceKind::cuda) {
    const DeviceMemory memory = device_memory(plan.gpu);
    json["device_memory_bytes"] = memory.held;
    json["device_memory_peak_bytes"] = memory.peak;
  }
  std::vector<std::string> notes =
      notes_on(model, preparation, !labels.empty(), quantized, counts, image_channels(*runner.plan));
  add_image_notes(notes, files.left_out, {}, 0);
  for (const std::string& note :
       {detail::scores_note(output), heads_note(runner.plan->graph(), output.kind)}) {
    if (!note.empty()) notes.push_back(note);
  }
  if (!options.common.quiet && !failed) print_notes(notes);
  if (!options.common.quiet && failed && !files.left_out.empty())
    print_notes({left_out_note(files.left_out)});
  if (!options.model_note.empty())
    notes.insert(notes.begin(), options.model_note);  // said before it was loaded
  json["notes"] = notes;
  json.update(excluded_json(files.left_out, {}));
  if (options.common.json) print_json(json);
  if (!failed) print_next_of(options, preparation, !labels.empty());
  return failed ? kExitRuntime : kExitOk;
}

}  // namespace

void add_classify(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ClassifyOptions>();
  CLI::App* command =
      app.add_subcommand("classify", "Name what images show: the most probable classes of each");
  options->common.add_to(*command);
  options->model.add_to(*command, false);
  options->model.add_heads_to(*command);
  options->model.classifies = true;
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
    if (is_for_images(word)) images->required(false);
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
    if (const std::string& first = options->model.model; is_for_images(first)) {
      check_order(first, options->images);
      // Nothing is fetched for it.
      if (is_missing(first)) fail("{}: no such file or folder", first);
      options->images.insert(options->images.begin(), first);
      tools::DefaultModel chosen = tools::default_model(note_printer(options->common.quiet));
      options->model.model = std::move(chosen.name);
      options->model_note = std::move(chosen.note);
    }
    exit_code = classify(*options);
  });
}

}  // namespace pipit::internal::apps
