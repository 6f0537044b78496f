#include "apps/commands/accuracy_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/table.h"
#include "apps/display/terminal.h"

namespace pipit::internal::apps {

namespace {

using tools::ClassAccuracy;
using tools::Evaluation;
using tools::Share;

constexpr std::size_t kMaxShown = 10;  // classes

std::string share_line(const std::string& name, const Share& share, int width) {
  return fmt::format("{:<{}}{:.2f} %  [{:.2f}, {:.2f}]", name, width, 100 * share.value, 100 * share.low,
                     100 * share.high);
}

std::string yes_or_no_text(const Evaluation& result, int width) {
  const ClassAccuracy& yes = result.classes.at(0);
  const std::int64_t no = result.right.of - yes.images;
  std::string text =
      fmt::format("{:<{}}{}: {} of {} right, {}: {} of {}\n", "answers", width, printable(result.label(1)),
                  yes.yes, yes.images, printable(result.label(0)), no - yes.false_yes, no);
  if (yes.images > 0)
    text += fmt::format("{:<{}}{:.2f} %   (average precision of {}, whatever the threshold)\n", "AP", width,
                        100 * yes.average_precision, printable(result.label(1)));
  return text;
}

std::string tags_text(const Evaluation& result, int width) {
  if (!result.mean_average_precision) return fmt::format("{:<{}}no image has a class\n", "mAP", width);
  std::vector<ClassAccuracy> classes = result.classes;
  std::string text =
      fmt::format("{:<{}}{:.2f} %   (mean of the average precisions of {})\n", "mAP", width,
                  100 * *result.mean_average_precision, counted(std::ssize(classes), "class", "classes"));
  std::ranges::stable_sort(classes, {}, &ClassAccuracy::average_precision);
  for (std::size_t i = 0; i < std::min(classes.size(), kMaxShown); ++i) {
    text += fmt::format("{:<{}}{:>6.2f} %  {}, {}\n", i == 0 ? "worst" : "", width,
                        100 * classes[i].average_precision, printable(classes[i].label),
                        counted(classes[i].images, "image"));
  }
  return text;
}

}  // namespace

std::string accuracy_text(const Evaluation& result, int width) {
  const bool yes_or_no = result.measure == "accuracy";
  std::string text = share_line(result.measure, result.right, width);
  if (yes_or_no) {
    text += fmt::format("   (yes from {:g} % on; 95 % Wilson interval)\n", 100 * result.threshold);
    return text + yes_or_no_text(result, width);
  }
  if (result.top5) {
    text += "\n" + share_line("top-5", *result.top5, width) + "   (95 % Wilson intervals)\n";
  } else {
    text +=
        fmt::format("   of the images have the classes from {:g} % on and no other (95 % Wilson interval)\n",
                    100 * result.threshold);
  }
  return result.tags ? text + tags_text(result, width) : text;
}

}  // namespace pipit::internal::apps
