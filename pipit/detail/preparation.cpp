#include "pipit/detail/preparation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/error.h"
#include "models/image/folder.h"
#include "models/score_kind.h"
#include "pipit/detail/checked.h"

namespace pipit::internal::detail {

std::string_view source_name(Preparation::Source source) {
  using enum Preparation::Source;
  return source == stored ? "stored" : source == given ? "given" : source == guessed ? "guessed" : "arrays";
}

std::string source_text(const Preparation& p) {
  using enum Preparation::Source;
  std::string text(source_name(p.source));
  if (p.source == stored) text += " in " + (p.from.empty() ? "the model" : p.from);
  if (p.source == guessed) text += ": " + p.preset + " at the input's size";
  if (p.source == given && !p.preset.empty()) text += ": " + p.preset;
  if (!p.given.empty()) text += fmt::format(", with {} given", fmt::join(p.given, ", "));
  return text;
}

std::string describe(const Preprocess& p) {
  std::string text;
  if (p.resize == 0) {
    text = "not resized";
  } else {
    const Extent to = p.stretch_extent();
    text = p.resize_mode == ResizeRule::stretch ? fmt::format("stretched to {}x{}", to.height, to.width)
                                                : fmt::format("short side {}", p.resize);
    text += fmt::format(", {}", interpolation_name(p.interpolation));
  }
  if (p.crop != 0) text += fmt::format(", crop {}x{}", p.crop_extent().height, p.crop_extent().width);
  text += fmt::format(", pixels * {:.6g}, mean {:.6g}, std {:.6g}", p.scale, fmt::join(p.mean, " "),
                      fmt::join(p.std, " "));
  if (p.bgr) text += ", BGR";
  if (!p.exif_transpose) text += ", EXIF orientation ignored";
  return text;
}

Preparation prepare_for(const Model& model, const PreprocessOptions& options) {
  const Graph& graph = model.graph;
  if (graph.inputs().size() != 1) {
    std::vector<std::string> names;
    for (const ValueId id : graph.inputs())
      names.push_back(fmt::format("'{}' {}", graph.value(id).name, graph.value(id).desc.str()));
    fail(
        "{}: {} inputs, expected one image: {}; --value NAME=NUMBER or --input NAME=FILE.npy fixes what "
        "another "
        "one is",
        model.name, graph.inputs().size(), fmt::join(names, ", "));
  }
  const Value& input = graph.value(graph.inputs()[0]);
  const Shape& shape = input.desc.shape;
  const std::optional<ImageInput> image = image_input(shape);
  const bool bytes = input.desc.dtype == DType::u8;
  if (!image || (input.desc.dtype != DType::f32 && !bytes)) {
    fail("{}: input '{}' is {}, expected images in f32 or u8: Nx3xHxW, Nx1xHxW, NxHxWx3 or NxHxWx1",
         model.name, input.name, input.desc.str());
  }
  if (image->height > kMaxPreprocessSide || image->width > kMaxPreprocessSide) {
    fail("{}: input '{}' is {}: images of more than {} pixels a side are not prepared", model.name,
         input.name, input.desc.str(), kMaxPreprocessSide);
  }
  const int height = static_cast<int>(image->height);
  const int width = static_cast<int>(image->width);
  Preparation result;
  // Without bgr the order of colours is the usual one; the rest differs from model to model.
  const bool complete = options.resize && !options.interpolation.empty() && options.mean && options.std;
  if (options.preset.empty() && !complete) need_metadata(model, kPreprocessKey);
  const bool stored = options.preset.empty() && model.preprocess;
  result.preset = stored ? "" : options.preset.empty() ? "torchvision" : options.preset;
  Preprocess p = stored ? *model.preprocess : fit_to_input(preprocess_preset(result.preset), height, width);
  // What lies beside a model was not written for this size of its input.
  if (stored && !model.preprocess_from.empty()) {
    p = fit_to_input(p, height, width);
    result.from = model.preprocess_from;
  }
  // What takes bytes normalizes them itself, unless it is said to be otherwise.
  if (bytes && !stored && options.preset.empty()) {
    p.scale = 1;
    p.mean = {0, 0, 0};
    p.std = {1, 1, 1};
  }
  if (options.resize) {
    p.resize = *options.resize;
    p.resize_width = 0;
    p.resize_mode = ResizeRule::short_side;
  }
  if (options.crop) {
    p.crop = *options.crop;
    p.crop_width = 0;
  }
  if (!options.interpolation.empty()) p.interpolation = parse_interpolation(options.interpolation);
  if (options.mean) p.mean = *options.mean;
  if (options.std) p.std = *options.std;
  if (options.bgr) p.bgr = true;
  if (options.ignore_exif_orientation) p.exif_transpose = false;
  check_preprocess(p);
  const Extent out = p.crop_extent();
  if (p.crop != 0 && out != Extent{height, width}) {
    fail("preprocessing gives {}x{} pixels, {} takes {}x{}; set crop to {}", out.height, out.width,
         model.name, height, width, std::min(height, width));
  }
  result.preprocess = p;
  const std::pair<const char*, bool> set[] = {{"resize", options.resize.has_value()},
                                              {"crop", options.crop.has_value()},
                                              {"interpolation", !options.interpolation.empty()},
                                              {"mean", options.mean.has_value()},
                                              {"std", options.std.has_value()},
                                              {"bgr", options.bgr},
                                              {"exif_transpose", options.ignore_exif_orientation}};
  for (const auto& [name, given] : set) {
    if (given) result.given.emplace_back(name);
  }
  using Source = Preparation::Source;
  result.source = stored                                ? Source::stored
                  : !options.preset.empty() || complete ? Source::given
                                                        : Source::guessed;
  return result;
}

Preparation prepare_files(const Model& model, const PreprocessOptions& options,
                          const std::vector<std::filesystem::path>& files) {
  if (!are_arrays(files)) return prepare_for(model, options);
  if (options != PreprocessOptions{}) {
    throw ArgumentError(fmt::format(
        "preprocessing (a preset, --resize, --mean and the like) applies to images only; the arrays of "
        "{} are taken as they are",
        files[0].string()));
  }
  Preparation preparation;
  preparation.source = Preparation::Source::arrays;
  return preparation;
}

ClassOutput class_output(const Graph& graph, const Model& model, std::optional<ScoreKind> scores,
                         double threshold) {
  if (!(threshold >= 0 && threshold <= 1))
    throw ArgumentError(fmt::format("threshold is {}; expected 0 to 1", threshold));
  check_enumerator("scores", scores, ScoreKind::sigmoid_logits);
  if (!scores) need_metadata(model, kScoresKey);
  ClassOutput output(graph, model.name, scores.value_or(model.scores));
  output.threshold = threshold;
  return output;
}

std::string scores_note(const ClassOutput& output) {
  if (!are_independent(output.kind)) return {};
  const std::string from = fmt::format("from {:g} % on", 100 * output.threshold);
  if (output.yes_or_no()) {
    return fmt::format(
        "the model gives one score ({}): a yes-or-no answer, yes {}",
        output.kind == ScoreKind::sigmoid ? "a probability" : "a logit, to which a sigmoid is applied", from);
  }
  return fmt::format("scores are independent of each other ({}): each is shown by itself, yes {}",
                     output.kind == ScoreKind::sigmoid ? "each a probability"
                                                       : "logits, to each of which a sigmoid is applied",
                     from);
}

Labels labels_for(const Model& model, const std::filesystem::path& file, const ClassOutput& output) {
  if (file.empty()) need_metadata(model, kLabelsKey);
  Labels found = file.empty() ? model.labels : read_labels(file);
  const std::int64_t classes = output.classes;
  if (output.yes_or_no() && found.size() == 1) found.insert(found.begin(), "not " + found[0]);
  if (output.yes_or_no() && found.empty()) found = {"no", "yes"};
  // Those beside a model may be another's.
  if (file.empty() && !model.labels_from.empty() && static_cast<std::int64_t>(found.size()) != classes)
    return {};
  // One label too many is most often a background class as the first label: every name would be off by one.
  if (!found.empty() && static_cast<std::int64_t>(found.size()) != classes) {
    if (file.empty())
      fail("{}: its metadata holds {} labels for {} classes", model.name, found.size(), classes);
    fail("{}: {} label{}, but {} has {} classes", file.string(), found.size(), found.size() == 1 ? "" : "s",
         model.name, classes);
  }
  return found;
}

}  // namespace pipit::internal::detail
