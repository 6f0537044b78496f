#include "pipit/detail/calibration_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/image/preprocess.h"
#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

// Classes that are no more probable than 1/2 are those of all of 8 images with a probability below 1 %.
constexpr std::int64_t kMinAnswers = 8;
// Images that tell as little as this many.
constexpr double kFewDifferent = 2;
// Images that are scaled to [0, 1] and to [-1, 1] differ by 4 in variance; those of one kind by less than 2. A mean
// that is off by this has a square of half the variance.
constexpr double kOtherVariance = 3;
constexpr double kFarMean = 0.7;
// One image alone may have half the contrast of others.
constexpr std::int64_t kMinImagesOfStatistics = 8;

// The values that images become, over all channels.
std::pair<double, double> prepared_range(const Preprocess& preprocess) {
  double low = INFINITY, high = -INFINITY;
  for (std::size_t c = 0; c < 3; ++c) {
    for (const double pixel : {0.0, 255.0}) {
      const double value = (pixel * preprocess.scale - preprocess.mean[c]) / preprocess.std[c];
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {low, high};
}

class Checks {
 public:
  CalibrationChecks take() { return std::move(checks_); }

  void alike(const InputLikeness& likeness) {
    const std::int64_t images = likeness.images();
    if (images < 2) return;
    checks_.json["common_share"] = likeness.common_share();
    checks_.json["effective_images"] = likeness.effective_images();
    if (likeness.effective_images() >= kFewDifferent) return;
    note(
        "the images are alike: {:.0f} % of the variance of their values is the same in all of them, so that "
        "the {} "
        "tell as much as {:.1f} unrelated ones; calibrate on images of all kinds that the model will see",
        100 * likeness.common_share(), images, likeness.effective_images());
  }

  void answers(const std::vector<std::int64_t>& best, const std::optional<ClassOutput>& output) {
    if (!output || output->values < 2 || output->are_tags() || best.empty()) return;
    std::vector<std::int64_t> different = best;
    std::ranges::sort(different);
    different.erase(std::unique(different.begin(), different.end()), different.end());
    checks_.json["answers"] = different.size();
    if (different.size() > 1 || std::ssize(best) < kMinAnswers) return;
    note(
        "the model answers class {} for all {} images: they are of one kind, or prepared in another way than "
        "it "
        "expects",
        best[0], best.size());
  }

  void statistics(const std::optional<StatisticsDifference>& found) {
    if (!found) return;
    checks_.json["stored_statistics"] = {{"layer", found->layer},
                                         {"channels", found->channels},
                                         {"mean_deviation", found->mean_deviation},
                                         {"variance_ratio", found->variance_ratio}};
    const bool fits = found->mean_deviation < kFarMean && found->variance_ratio > 1 / kOtherVariance &&
                      found->variance_ratio < kOtherVariance;
    if (fits || found->images < kMinImagesOfStatistics) return;
    note(
        "the images differ from the training images: the input of '{}' has {:.3g} times the stored variance "
        "(median of {}), and its means differ by {:.2g} stored standard deviations; check mean, std and "
        "scale of the preprocessing, or calibrate on images like the training images",
        found->layer, found->variance_ratio, counted(found->channels, "channel"), found->mean_deviation);
  }

  // `earlier` and `later` name the images in the note.
  void outgrown(const char* key, std::span<const TensorPeaks> peaks, std::int64_t earlier,
                const std::string& of_earlier, const std::string& of_later) {
    const std::vector<OutgrownTensor> found = outgrown_tensors(peaks, static_cast<std::size_t>(earlier));
    Json list = Json::array();
    for (const OutgrownTensor& tensor : found)
      list.push_back({{"tensor", tensor.name}, {"earlier", tensor.earlier}, {"later", tensor.later}});
    checks_.json[key] = std::move(list);
    if (found.empty()) return;
    const OutgrownTensor& worst = *std::ranges::max_element(
        found, {}, [](const OutgrownTensor& t) { return t.earlier > 0 ? t.later / t.earlier : INFINITY; });
    note("{} in {} exceed the range of {}, most of all '{}': {:.4g} after {:.4g}", of_later,
         counted(std::ssize(found), "tensor"), of_earlier, worst.name, worst.later, worst.earlier);
  }

  void preparation(const Model& model, const Preparation& preparation, const TensorScale* input) {
    if (!model.preprocess) return;
    if (preparation.source != Preparation::Source::arrays) {
      const std::vector<std::string> differences =
          preprocess_differences(preparation.preprocess, *model.preprocess);
      checks_.json["preprocess_differences"] = differences;
      if (!differences.empty())
        note("images are prepared differently from what the model stores, and their ranges may not fit: {}",
             fmt::join(differences, ", "));
      return;
    }
    if (input == nullptr) return;
    const auto [low, high] = prepared_range(*model.preprocess);
    const double slack = 1e-3 * (high - low);  // of resizing and rounding
    if (input->min >= low - slack && input->max <= high + slack) return;
    note(
        "the arrays hold values from {:.4g} to {:.4g}, but images that are prepared as the model stores hold "
        "{:.4g} "
        "to {:.4g}: prepare the arrays in the same way",
        input->min, input->max, low, high);
  }

  void images(std::int64_t count) { checks_.json["exceeding_probability"] = exceeding_probability(count); }

 private:
  template <typename... Values>
  void note(fmt::format_string<Values...> text, Values&&... values) {
    checks_.notes.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  CalibrationChecks checks_;
};

}  // namespace

CalibrationChecks calibration_checks(const Calibrated& done, std::int64_t images,
                                     const std::optional<ClassOutput>& output, const Model& model,
                                     const Preparation& preparation, const TensorScale* input) {
  Checks checks;
  checks.images(images);
  checks.alike(done.likeness);
  checks.answers(done.best, output);
  std::vector<TensorPeaks> own = done.peaks;
  for (TensorPeaks& tensor : own) tensor.peaks.resize(static_cast<std::size_t>(images));
  checks.outgrown("outgrown", own, images / 2, fmt::format("the first {}", images / 2), "later images");
  const std::int64_t all = done.peaks.empty() ? images : std::ssize(done.peaks[0].peaks);
  if (all > images)
    checks.outgrown("outgrown_in_check", done.peaks, images, "those calibrated on", "images of the check");
  checks.preparation(model, preparation, input);
  checks.statistics(done.statistics);
  return checks.take();
}

}  // namespace pipit::internal::detail
