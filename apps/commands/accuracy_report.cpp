#include "apps/commands/accuracy_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/display/table.h"
#include "apps/display/terminal.h"

namespace pipit::internal::apps {

namespace {

constexpr std::size_t kMaxShown = 10;  // classes

double share(std::int64_t hits, std::int64_t n) {
  return static_cast<double>(hits) / static_cast<double>(n);
}

// Nothing where no image has a class.
std::optional<double> mean_average_precision(const std::vector<ClassAccuracy>& classes) {
  if (classes.empty()) return std::nullopt;
  double sum = 0;
  for (const ClassAccuracy& of : classes) sum += of.average_precision;
  return sum / static_cast<double>(classes.size());
}

void add_share(nlohmann::ordered_json& json, const std::string& name, std::int64_t hits, std::int64_t n) {
  const ShareInterval interval = wilson(hits, n);
  json[name] = share(hits, n);
  json[name + "_correct"] = hits;
  json[name + "_interval95"] = {interval.low, interval.high};
}

std::string share_line(const std::string& name, std::int64_t hits, std::int64_t n, int width) {
  const ShareInterval interval = wilson(hits, n);
  return fmt::format("{:<{}}{:.2f} %  [{:.2f}, {:.2f}]", name, width, 100 * share(hits, n),
                     100 * interval.low, 100 * interval.high);
}

std::string yes_or_no_text(const Accuracy& accuracy, const Labels& labels, int width) {
  const ClassAccuracy yes = accuracy.classes().at(0);
  const std::int64_t no = accuracy.images() - yes.images;
  std::string text = fmt::format("{:<{}}{}: {} of {} right, {}: {} of {}\n", "answers", width,
                                 printable(label_of(labels, 1)), yes.yes, yes.images,
                                 printable(label_of(labels, 0)), no - yes.false_yes, no);
  if (yes.images > 0)
    text += fmt::format("{:<{}}{:.2f} %   (average precision of {}, whatever the threshold)\n", "AP", width,
                        100 * yes.average_precision, printable(label_of(labels, 1)));
  return text;
}

std::string tags_text(const Accuracy& accuracy, const Labels& labels, int width) {
  std::vector<ClassAccuracy> classes = accuracy.classes();
  const std::optional<double> mean = mean_average_precision(classes);
  if (!mean) return fmt::format("{:<{}}no image has a class\n", "mAP", width);
  std::string text = fmt::format("{:<{}}{:.2f} %   (mean of the average precisions of {})\n", "mAP", width,
                                 100 * *mean, counted(std::ssize(classes), "class", "classes"));
  std::ranges::stable_sort(classes, {}, &ClassAccuracy::average_precision);
  for (std::size_t i = 0; i < std::min(classes.size(), kMaxShown); ++i) {
    text += fmt::format("{:<{}}{:>6.2f} %  {}, {}\n", i == 0 ? "worst" : "", width,
                        100 * classes[i].average_precision, printable(label_of(labels, classes[i].index)),
                        counted(classes[i].images, "image"));
  }
  return text;
}

}  // namespace

std::string name_of_right(const Accuracy& accuracy) {
  return accuracy.of_sets() ? "exact" : accuracy.output().yes_or_no() ? "accuracy" : "top-1";
}

nlohmann::ordered_json accuracy_json(const Accuracy& accuracy, const Labels& labels) {
  nlohmann::ordered_json json;
  const std::int64_t n = accuracy.images();
  add_share(json, accuracy.of_sets() ? "exact" : "top1", accuracy.right(), n);
  const std::vector<ClassAccuracy> classes = accuracy.classes();
  if (accuracy.output().yes_or_no()) {
    const ClassAccuracy& yes = classes.at(0);
    json["accuracy"] = json["top1"];
    json["confusion"] = {{"true_yes", yes.yes},
                         {"false_yes", yes.false_yes},
                         {"true_no", n - yes.images - yes.false_yes},
                         {"false_no", yes.images - yes.yes}};
    json["average_precision"] =
        yes.images > 0 ? nlohmann::ordered_json(yes.average_precision) : nlohmann::ordered_json();
    return json;
  }
  if (!accuracy.of_sets()) add_share(json, "top5", accuracy.top5(), n);
  if (!accuracy.output().are_tags()) return json;
  const std::optional<double> mean = mean_average_precision(classes);
  json["mean_average_precision"] = mean ? nlohmann::ordered_json(*mean) : nlohmann::ordered_json();
  json["classes"] = nlohmann::ordered_json::array();
  for (const ClassAccuracy& of : classes) {
    json["classes"].push_back({{"class", of.index},
                               {"label", label_of(labels, of.index)},
                               {"images", of.images},
                               {"average_precision", of.average_precision},
                               {"true_yes", of.yes},
                               {"false_yes", of.false_yes}});
  }
  return json;
}

std::string accuracy_text(const Accuracy& accuracy, const Labels& labels, int width) {
  const std::int64_t n = accuracy.images();
  std::string text = share_line(name_of_right(accuracy), accuracy.right(), n, width);
  if (accuracy.of_sets()) {
    text +=
        fmt::format("   of the images have the classes from {:g} % on and no other (95 % Wilson interval)\n",
                    100 * accuracy.output().threshold);
  } else if (accuracy.output().yes_or_no()) {
    text += fmt::format("   (yes from {:g} % on; 95 % Wilson interval)\n", 100 * accuracy.output().threshold);
    text += yes_or_no_text(accuracy, labels, width);
  } else {
    text += "\n" + share_line("top-5", accuracy.top5(), n, width) + "   (95 % Wilson intervals)\n";
  }
  if (accuracy.output().are_tags()) text += tags_text(accuracy, labels, width);
  return text;
}

}  // namespace pipit::internal::apps
