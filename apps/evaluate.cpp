// pipit evaluate MODEL FOLDER: accuracy on a folder of labelled images.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "apps/commands.h"
#include "apps/progress.h"
#include "apps/runner.h"
#include "models/image/folder.h"

namespace pipit::apps {

namespace {

struct EvaluateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string folder;
  std::int64_t limit = 0;
};

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval at 95 %: unlike the normal one it stays in [0, 1] and holds near the ends.
Interval wilson(std::int64_t hits, std::int64_t n) {
  constexpr double z = 1.959963984540054;
  const double count = static_cast<double>(n);
  const double p = static_cast<double>(hits) / count;
  const double centre = (p + z * z / (2 * count)) / (1 + z * z / count);
  const double half = z / (1 + z * z / count) * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

// `limit` images spread evenly over the list: the first ones would mostly be of one class.
void thin_out(std::vector<LabelledImage>& images, std::int64_t limit) {
  const auto total = static_cast<std::int64_t>(images.size());
  if (limit == 0 || limit >= total) return;
  std::vector<LabelledImage> kept;
  for (std::int64_t i = 0; i < limit; ++i)
    kept.push_back(images[static_cast<std::size_t>(i * total / limit)]);
  images = std::move(kept);
}

struct Score {
  std::int64_t images = 0;
  std::int64_t top1 = 0;
  std::int64_t top5 = 0;
  double run_seconds = 0;
  double wall_seconds = 0;
};

Score measure(Runner& runner, const Preprocess& preprocess, const std::vector<LabelledImage>& images,
              const ClassOutput& output, bool quiet) {
  using Clock = std::chrono::steady_clock;
  const Graph& graph = runner.plan->graph();
  Tensor input(graph.value(graph.inputs()[0]).desc);
  const std::int64_t batch = input.shape()[0];
  const auto image_elements = static_cast<std::size_t>(input.desc().elements() / batch);
  const auto classes = static_cast<std::size_t>(output.classes);
  const auto total = static_cast<std::int64_t>(images.size());
  std::fill(input.values<float>().begin(), input.values<float>().end(), 0.0F);  // slots past the last image

  Score score;
  Progress progress("evaluate", total, quiet);
  const auto begin = Clock::now();
  for (std::int64_t first = 0; first < total; first += batch) {
    const std::int64_t count = std::min(batch, total - first);
    runner.session->pool().parallel_for(count, [&](std::int64_t i, int) {
      load_image(images[static_cast<std::size_t>(first + i)].path, preprocess, input.shape(),
                 input.values<float>().subspan(static_cast<std::size_t>(i) * image_elements, image_elements));
    });
    const auto run_begin = Clock::now();
    const ConstTensorView view = input.view();
    const ConstTensorView scores = runner.run({&view, 1})[0];
    score.run_seconds += std::chrono::duration<double>(Clock::now() - run_begin).count();
    for (std::int64_t i = 0; i < count; ++i) {
      const LabelledImage& image = images[static_cast<std::size_t>(first + i)];
      const std::vector<Prediction> top = top_classes(
          {scores.as<float>() + static_cast<std::size_t>(i) * classes, classes}, 5, runner.model, image.path);
      score.top1 += top[0].index == image.label ? 1 : 0;
      score.top5 +=
          std::any_of(top.begin(), top.end(), [&](const Prediction& p) { return p.index == image.label; })
              ? 1
              : 0;
    }
    score.images += count;
    progress.update(score.images, fmt::format("top-1 {:.2f} %", 100.0 * static_cast<double>(score.top1) /
                                                                    static_cast<double>(score.images)));
  }
  score.wall_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return score;
}

// --batch, but no more than there are images: the slots beyond them would cost time and memory for nothing.
// The folder is read for it before the model, and again when the model's labels are known.
std::optional<std::int64_t> useful_batch(const EvaluateOptions& options) {
  if (options.model.batch.value_or(1) == 1) return options.model.batch;
  const auto images = static_cast<std::int64_t>(list_images(options.folder).size());
  return std::min({*options.model.batch, images, options.limit > 0 ? options.limit : images});
}

int evaluate(const EvaluateOptions& options) {
  Model model = options.model.load(useful_batch(options));
  const Preprocess preprocess = options.image.resolve(model);
  Runner runner(model.name, std::move(model.graph), options.common);
  const ClassOutput output(*runner.plan, model.name);
  const Labels labels = options.image.resolve_labels(model, output.classes);
  std::vector<LabelledImage> images =
      list_labelled_images(options.folder, labels, static_cast<int>(output.classes));
  thin_out(images, options.limit);

  const Score score = measure(runner, preprocess, images, output, options.common.quiet);
  const auto n = static_cast<double>(score.images);
  const Interval top1 = wilson(score.top1, score.images);
  const Interval top5 = wilson(score.top5, score.images);
  if (options.common.json) {
    nlohmann::ordered_json json = json_header("evaluate", model, *runner.plan);
    json["folder"] = options.folder;
    json["batch"] = output.batch;
    json["images"] = score.images;
    json["top1"] = static_cast<double>(score.top1) / n;
    json["top1_correct"] = score.top1;
    json["top1_interval95"] = {top1.low, top1.high};
    json["top5"] = static_cast<double>(score.top5) / n;
    json["top5_correct"] = score.top5;
    json["top5_interval95"] = {top5.low, top5.high};
    json["images_per_s"] = n / score.wall_seconds;
    json["model_images_per_s"] = n / score.run_seconds;
    print_json(json);
    return kExitOk;
  }
  fmt::print("images    {}\n", score.images);
  fmt::print("top-1     {:.2f} %  [{:.2f}, {:.2f}]\n", 100.0 * static_cast<double>(score.top1) / n,
             100 * top1.low, 100 * top1.high);
  fmt::print("top-5     {:.2f} %  [{:.2f}, {:.2f}]   (95 % Wilson intervals)\n",
             100.0 * static_cast<double>(score.top5) / n, 100 * top5.low, 100 * top5.high);
  fmt::print("speed     {:.1f} images/s with decoding, {:.1f} images/s in the model alone\n",
             n / score.wall_seconds, n / score.run_seconds);
  return kExitOk;
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure top-1 and top-5 accuracy on a folder of images");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  options->image.add_to(*command);
  command
      ->add_option(
          "FOLDER", options->folder,
          "Images in one sub-folder per class, named by its label or all by their class indices; or images "
          "named with the class index and '_' first")
      ->required();
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  pipit evaluate resnet20-cifar10 cifar10-test --batch 32\n"
      "  pipit evaluate squeezenet.onnx photos --labels imagenet-classes.txt --resize 256 --crop 227 --json");
  command->callback([options, &exit_code] { exit_code = evaluate(*options); });
}

}  // namespace pipit::apps
