#include "pipit/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "pipit/error.h"
#include "pipit/report/svg_text.h"

namespace pipit::tools {

using namespace internal::detail;

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 30, kTop = 46, kBottom = 56;
constexpr double kLine = 16;  // of the list of fronts
// Colours of fronts, in turns: told apart by people who see few colours, too (Okabe and Ito), but for red, which marks.
constexpr std::array kColours = {"#36c", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000", "#888"};

// Values on an axis, with some room at both ends, and the distance of round ticks.
struct Axis {
  double low = 0;
  double high = 1;
  double tick = 1;

  Axis(double least, double most) {
    const double span = std::max(most - least, 1e-3 * std::max(1.0, std::abs(most)));
    low = least - 0.08 * span;
    high = most + 0.08 * span;
    tick = std::pow(10, std::floor(std::log10((high - low) / 4)));
    while ((high - low) / tick > 8) tick *= (high - low) / tick > 20 ? 5 : 2;
  }
  double share(double value) const { return (value - low) / (high - low); }
  // The label of a tick, without what adding them up leaves, nor a zero's sign.
  double label(double t) const { return std::round(t / tick) * tick + 0.0; }
};

struct Front {
  std::size_t number = 0;
  std::vector<ParetoPoint> points;  // the fastest first

  const char* colour() const { return kColours.at(number % kColours.size()); }
};

// By their names.
std::map<std::string, Front> fronts_of(const std::vector<ParetoPoint>& all) {
  std::map<std::string, Front> fronts;
  for (const ParetoPoint& point : all) {
    Front& front = fronts[point.front];
    if (point.pareto) front.points.push_back(point);
  }
  std::size_t number = 0;
  for (auto& [name, front] : fronts) {
    front.number = number++;
    std::ranges::sort(front.points, {}, &ParetoPoint::ms);
  }
  return fronts;
}

}  // namespace

std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                       std::optional<double> least, const std::string& what) {
  if (points.empty()) throw ArgumentError("there are no points to draw");
  if (least && !std::isfinite(*least)) throw ArgumentError(fmt::format("a line at {} percent", *least));
  for (const ParetoPoint& point : points) {
    if (!std::isfinite(point.ms) || !std::isfinite(point.accuracy))
      throw ArgumentError(fmt::format("the point '{}' is at {} ms and {} percent; expected finite numbers",
                                      point.label, point.ms, point.accuracy));
  }
  double fastest = points[0].ms, slowest = fastest;
  double worst = least.value_or(points[0].accuracy), best = worst;
  for (const ParetoPoint& point : points) {
    fastest = std::min(fastest, point.ms);
    slowest = std::max(slowest, point.ms);
    worst = std::min(worst, point.accuracy);
    best = std::max(best, point.accuracy);
  }
  const Axis time(fastest, slowest), accuracy(worst, best);
  const auto x = [&](double ms) { return kLeft + time.share(ms) * (kWidth - kLeft - kRight); };
  const auto y = [&](double percent) {
    return kHeight - kBottom - accuracy.share(percent) * (kHeight - kTop - kBottom);
  };
  const std::map<std::string, Front> fronts = fronts_of(points);
  const bool several = fronts.size() > 1;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:.0f}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      kWidth, several ? kHeight + kLine * static_cast<double>(fronts.size() + 1) : kHeight, kLeft,
      svg_text(title));
  for (double t = std::ceil(time.low / time.tick) * time.tick; t <= time.high; t += time.tick)
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:.6g}</text>\n",
        x(t), kTop, kHeight - kBottom, kHeight - kBottom + 18, time.label(t));
  for (double t = std::ceil(accuracy.low / accuracy.tick) * accuracy.tick; t <= accuracy.high;
       t += accuracy.tick)
    svg += fmt::format(
        "<line x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.6g}</text>\n",
        y(t), kLeft, kWidth - kRight, kLeft - 8, y(t) + 4, accuracy.label(t));
  svg += fmt::format(
      "<text x=\"{:.0f}\" y=\"{}\" text-anchor=\"middle\">measured time of a run, ms</text>\n"
      "<text transform=\"translate(18 {:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 14, (kTop + kHeight - kBottom) / 2, svg_text(what));
  if (least) {
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#b00\" stroke-dasharray=\"6 4\"/>\n",
        kLeft, kWidth - kRight, y(*least), y(*least));
  }
  for (const auto& [name, front] : fronts) {
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" points=\"", front.colour());
    for (const ParetoPoint& point : front.points)
      svg += fmt::format("{:.1f},{:.1f} ", x(point.ms), y(point.accuracy));
    svg += "\"/>\n";
    if (!several) continue;
    const std::size_t number = front.number + 1;
    if (!front.points.empty())
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
                         x(front.points[0].ms) - 7, y(front.points[0].accuracy) + 4, front.colour(), number);
    svg += fmt::format("<text x=\"{}\" y=\"{:.0f}\" fill=\"{}\">{}  {}</text>\n", kLeft,
                       kHeight + kLine * static_cast<double>(number), front.colour(), number, svg_text(name));
  }
  for (const ParetoPoint& point : points) {
    const char* colour = fronts.at(point.front).colour();
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"{}\"><title>{}: {:.4g} ms, "
        "{:.2f} "
        "%</title></circle>\n",
        x(point.ms), y(point.accuracy), point.chosen ? 6 : 4,
        point.chosen   ? "#b00"
        : point.pareto ? colour
                       : "white",
        colour, svg_text(point.label), point.ms, point.accuracy);
    if (point.chosen) {
      const bool right = time.share(point.ms) < 0.7;
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                         x(point.ms) + (right ? 10 : -10), y(point.accuracy) - 9, right ? "start" : "end",
                         svg_text(point.label));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace pipit::tools
