#include "pipit/detail/preparation_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "layers/scores.h"
#include "models/catalogue.h"

namespace pipit::internal::detail {

nlohmann::ordered_json preparation_json(const Preparation& p) {
  nlohmann::ordered_json json = {{"source", source_name(p.source)}};
  json["preset"] = p.preset.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(p.preset);
  json["given"] = p.given;
  if (p.source == Preparation::Source::arrays) return {{"source", source_name(p.source)}};
  json.update(nlohmann::ordered_json::parse(to_json(p.preprocess)));
  return json;
}

namespace {

// Whether the input of a softmax looks like probabilities: all in [0, 1], or percentages that add up to 100.
bool look_like_probabilities(std::span<const float> scores) {
  const auto [low, high] = std::ranges::minmax(scores);
  if (scores.size() < 3 || low < 0) return false;
  return high <= 1 || std::abs(std::accumulate(scores.begin(), scores.end(), 0.0) - 100) < 0.1;
}

// On scores that contradict what they are taken for.
void add_score_notes(std::vector<std::string>& notes, const ImageCounts& counts) {
  if (counts.shares > 0 && !counts.independent) {
    notes.push_back(fmt::format(
        "the scores of {} add up to 1 already, although the model does not end in a softmax: they are taken "
        "for probabilities as they are; --scores says what they are",
        counts.shares == counts.images ? "all images" : fmt::format("{} images", counts.shares)));
  }
  if (counts.shares == counts.images && counts.shares > 0 && counts.independent)
    notes.emplace_back(
        "the scores of all images add up to 1, as those of a softmax do: --scores softmax where one class is "
        "right");
  if (counts.bounded == counts.images && counts.bounded > 0)
    notes.emplace_back(
        "a softmax is applied to scores that look like probabilities or percents already: --scores says what "
        "they are");
}

}  // namespace

void ImageCounts::add(const LoadedImage& image, const ClassOutput& output, std::span<const float> scores) {
  ++images;
  grey += image.grey ? 1 : 0;
  turned += image.exif_orientation != 1 ? 1 : 0;
  independent = output.are_tags();
  const bool logits = output.kind == ScoreKind::logits;
  const bool are_shares =
      (logits || output.kind == ScoreKind::sigmoid) && output.values > 1 && are_probabilities(scores);
  shares += are_shares ? 1 : 0;
  bounded += logits && !are_shares && look_like_probabilities(scores) ? 1 : 0;
}

std::vector<std::string> metadata_notes(const Model& model) {
  std::vector<std::string> notes;
  for (const auto& [key, error] : model.metadata_errors) notes.push_back(error + "; it is not used");
  if (!model.labels_from.empty()) notes.push_back("labels are from " + model.labels_from);
  if (!model.unread.empty()) {
    notes.push_back(fmt::format("no output needs the input{} {}, which {} left out",
                                model.unread.size() > 1 ? "s" : "", fmt::join(model.unread, ", "),
                                model.unread.size() > 1 ? "are" : "is"));
  }
  return notes;
}

std::vector<std::string> notes_on(const Model& model, const Preparation& preparation, bool labelled,
                                  bool quantized, const ImageCounts& counts, std::int64_t channels) {
  std::vector<std::string> notes;
  if (const NamedModel* named = find_named_model(model.name);
      named != nullptr && named->origin == ModelOrigin::random)
    notes.push_back(model.name + " has random weights, for timing: its classes mean nothing");
  for (std::string& note : metadata_notes(model)) notes.push_back(std::move(note));
  if (preparation.source == Preparation::Source::guessed) {
    notes.push_back(
        fmt::format("preprocessing {} ({}); if the model was trained with other preprocessing, its answers "
                    "suffer: see --preset, "
                    "--mean, --std; pipit annotate stores it in the model",
                    source_text(preparation), describe(preparation.preprocess)));
  }
  if (!labelled) {
    notes.emplace_back(
        "the model holds no labels, so classes are numbers: --labels names them, pipit annotate stores the "
        "names");
  }
  if (quantized)
    notes.emplace_back("the model is quantized already: it runs in INT8, with the scales in its file");
  if (counts.images > 0 && counts.grey == counts.images && channels == 3) {
    notes.push_back(fmt::format("{}, but the model takes colour: red, green and blue get the same values",
                                counts.images == 1 ? "the image is grey" : "all images are grey"));
  }
  if (counts.turned > 0) {
    notes.push_back(
        fmt::format("{} turned upright as the EXIF orientation says; --no-exif-transpose leaves photographs "
                    "as they are stored",
                    counts.turned == 1 ? "1 image was" : fmt::format("{} images were", counts.turned)));
  }
  add_score_notes(notes, counts);
  return notes;
}

void add_image_notes(std::vector<std::string>& notes, const LeftOut& left_out,
                     const std::vector<UnreadableImage>& unreadable, std::int64_t total) {
  for (std::string& note : std::vector{left_out_note(left_out), unreadable_note(unreadable, total)})
    if (!note.empty()) notes.push_back(std::move(note));
}

nlohmann::ordered_json excluded_json(const LeftOut& left_out,
                                     const std::vector<UnreadableImage>& unreadable) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [format, count] : left_out.formats) json["left_out"][format] = count;
  for (const std::vector<UnreadableImage>& all : {left_out.folders, unreadable}) {
    for (const UnreadableImage& one : all)
      json["unreadable"].push_back({{"path", one.path.string()}, {"error", one.error}});
  }
  return json;
}

}  // namespace pipit::internal::detail
