// pipit diff MODEL IMAGES: what INT8 makes of every layer, and which ones cause the error.
#include "pipit/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/stage_progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/scores.h"

namespace pipit::internal::apps {

namespace {

struct DiffOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  std::int64_t limit = 0;
  std::int64_t share_limit = 32;
  std::string sort = "worst";
  bool fast = false;
  bool wide = false;
  bool strict = false;
};

std::string decibel(double db) {
  return std::isinf(db) ? (db > 0 ? "exact" : "-inf") : fmt::format("{:.1f}", db);
}

std::string with_unit(double db) {
  return decibel(db) + (std::isinf(db) && db > 0 ? "" : " dB");
}

// How bad a layer is: by the noise that goes where it stays in fp32; where that was not measured, by its own.
double badness(const tools::LayerError& layer) {
  return layer.share_removed.value_or(-std::numeric_limits<double>::infinity());
}

// As they run, or the worst first: those whose share was measured, then by their own SQNR.
std::vector<const tools::LayerError*> rows_of(const DiffOptions& options, const tools::Difference& result) {
  std::vector<const tools::LayerError*> rows;
  for (const tools::LayerError& layer : result.layers) rows.push_back(&layer);
  if (options.sort == "order") return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](const tools::LayerError* a, const tools::LayerError* b) {
    const double bad_a = badness(*a), bad_b = badness(*b);
    return bad_a != bad_b ? bad_a > bad_b : a->error.sqnr_db < b->error.sqnr_db;
  });
  return rows;
}

void print_as_table(const DiffOptions& options, const tools::Difference& result) {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {
      {"layer", Align::left, 0, true}, {"type", Align::left, 3},          {"in"},
      {"cosine", Align::right, 2},     {"SQNR dB", Align::right},         {"max error", Align::right, 4},
      {"clipped %", Align::right, 5},  {"worst channel", Align::right, 6}};
  if (!options.fast) {
    columns.push_back({"alone %", Align::right, 1});
    columns.push_back({"removed %", Align::right});
  }
  const auto percent = [](const std::optional<double>& share, int digits) {
    return share ? fmt::format("{:.{}f}", 100 * *share, digits) : "";
  };
  Table table(columns);
  for (const tools::LayerError* shown : rows_of(options, result)) {
    const tools::LayerError& layer = *shown;
    std::vector<std::string> row = {
        layer.name,
        layer.type,
        std::string(precision_name(layer.precision)),
        fmt::format("{:.5f}", layer.error.cosine),
        decibel(layer.error.sqnr_db),
        fmt::format("{:.3g}", layer.error.max_error),
        percent(layer.clipped, 3),
        layer.worst_channel_share > 0
            ? fmt::format("{} ({:.0f} %)", layer.worst_channel, 100 * layer.worst_channel_share)
            : ""};
    if (layer.share_removed) {
      row.push_back(percent(layer.share_alone, 1));
      row.push_back(percent(layer.share_removed, 1));
    }
    table.add(std::move(row));
  }
  const int width = table_width(options.wide);
  fmt::print("{}\noutput       SQNR {}, cosine {:.5f}, max error {:.3g}\n", table.str(0, width),
             with_unit(result.output.sqnr_db), result.output.cosine, result.output.max_error);
  const char* what = !result.scores ? "largest" : are_independent(*result.scores) ? "answer" : "top-1";
  fmt::print("{:<13}another one for {} of {}\n", what, result.other_answers, counted(result.images, "image"));
  if (options.fast) return;
  fmt::print("{}",
             wrapped(fmt::format("alone %      noise of the output with only this layer in INT8, of "
                                 "that with all ({})\n"
                                 "removed %    how much of it goes when only this layer stays in fp32\n",
                                 counted(result.share_images, "image")),
                     13, width));
}

int diff(const DiffOptions& options) {
  const CommonOptions& common = options.common;
  if (common.plan.empty()) throw CLI::RequiredError("--plan");
  tools::DiffOptions how;
  how.load = common.load_options();
  how.keep = common.keep;
  options.model.add_to(how.load);
  how.preprocess = options.image.preprocess_options();
  how.limit = options.limit;
  how.shares = !options.fast;
  how.share_limit = options.share_limit;
  how.strict = options.strict;
  StageProgress progress("diff", common.quiet);
  how.progress = progress.callbacks();
  how.note = note_printer(common.quiet);
  const tools::Difference result =
      tools::diff(options.model.model, std::array{std::filesystem::path(options.images)}, common.plan, how);
  progress.end();
  if (!common.quiet) print_notes(result.notes);
  if (common.json) {
    fmt::print("{}", result.json);
  } else {
    print_as_table(options, result);
  }
  print_next(common.quiet,
             {"tune", options.model.model, options.images, "--plan", common.plan, "--max-drop", "1",
              "--output", "mixed.json", common.device == DeviceKind::cuda ? "--device" : "",
              common.device == DeviceKind::cuda ? "cuda" : ""},
             "which layers to keep in floating point for at most one point of accuracy");
  return kExitOk;
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand("diff", "Show what INT8 costs each layer, against fp32");
  options->model.add_to(*command, true);
  options->image.add_preprocessing_to(*command);
  CommonOptions& common = options->common;
  common.add_plan_to(*command);
  common.add_keep_to(*command);
  common.add_device_to(*command);
  common.add_fallback_to(*command);
  common.add_kernels_to(*command);
  common.add_threads_to(*command);
  common.add_output_to(*command);
  command
      ->add_option("IMAGES", options->images,
                   "A folder of images or arrays (or one file); classes do not matter")
      ->required()
      ->type_name("IMAGES");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command
      ->add_option("--share-limit", options->share_limit,
                   "Use at most N of the images for the columns 'alone' and 'removed', which run the model "
                   "twice for each layer; 0: all")
      ->check(count_value())
      ->capture_default_str();
  one_of(command->add_option("--sort", options->sort,
                             "Order of the rows: the worst first, by the noise that keeping a layer in fp32 "
                             "removes (with --fast, by SQNR), or as layers run"),
         {"worst", "order"})
      ->capture_default_str();
  command->add_flag("--fast", options->fast, "Omit the columns 'alone' and 'removed'");
  add_strict_to(*command, options->strict);
  add_wide_to(*command, options->wide);
  command->footer(
      "Each row compares a layer's output in INT8, with all layers before it in INT8 too, to its output in "
      "fp32:\n"
      "  cosine         of the angle between the two\n"
      "  SQNR           signal to quantization noise, 10 log10(sum of squares / sum of squared differences)\n"
      "  clipped %      fp32 values beyond the INT8 range\n"
      "  worst channel  the output channel with the largest share of the layer's noise, and that share\n"
      "  alone %        the noise of the model's output with only this layer in INT8, relative to all layers "
      "in INT8\n"
      "  removed %      the share of that noise that vanishes if this layer stays in fp32: --keep NAME=fp32\n"
      "The last two are for layers with weights ('removed' also for additions and average pools); they add "
      "up to 100 only\n"
      "if the errors of layers are independent. A negative share means that the layer's errors cancel those "
      "of others.\n"
      "With --device cuda both models run on the GPU, layer by layer; layers that stay in floating point are "
      "in fp16\n"
      "there, and on both devices in bf16 if the plan says so, as the column \"in\" shows.\n"
      "Examples:\n"
      "  pipit diff squeezenet.onnx photos --plan plan.json --resize 256 --crop 227 --limit 50\n"
      "  pipit diff resnet20-cifar10 cifar10-test --plan plan.json --fast --json\n"
      "  pipit diff resnet20-cifar10 cifar10-test --plan plan.json --batch 32 --device cuda");
  command->callback([options, &exit_code] { exit_code = diff(*options); });
}

}  // namespace pipit::internal::apps
