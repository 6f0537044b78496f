#include "apps/display/pareto_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/display/svg_text.h"

namespace pipit::apps {

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 30, kTop = 46, kBottom = 56;

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
  // Of a tick, without what adding them up leaves, nor a zero's sign.
  double label(double t) const { return std::round(t / tick) * tick + 0.0; }
};

}  // namespace

std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                       std::optional<double> least, const std::string& what) {
  double fastest = points.at(0).ms, slowest = fastest;
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
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:.0f}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      kWidth, kHeight, kLeft, svg_text(title));
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
  std::map<std::string, std::vector<ParetoPoint>> fronts;
  for (const ParetoPoint& point : points) {
    std::vector<ParetoPoint>& front = fronts[point.front];
    if (point.pareto) front.push_back(point);
  }
  for (auto& [name, front] : fronts) {
    std::ranges::sort(front, {}, &ParetoPoint::ms);
    svg += "<polyline fill=\"none\" stroke=\"#36c\" points=\"";
    for (const ParetoPoint& point : front)
      svg += fmt::format("{:.1f},{:.1f} ", x(point.ms), y(point.accuracy));
    svg += "\"/>\n";
    if (fronts.size() > 1 && !front.empty()) {
      const bool right = time.share(front[0].ms) < 0.7;
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\" text-anchor=\"{}\">{}</text>\n",
                         x(front[0].ms) + (right ? 8 : -8), y(front[0].accuracy) + 4, right ? "start" : "end",
                         svg_text(name));
    }
  }
  for (const ParetoPoint& point : points) {
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"#36c\"><title>{}: {:.4g} ms, "
        "{:.2f} "
        "%</title></circle>\n",
        x(point.ms), y(point.accuracy), point.chosen ? 6 : 4,
        point.chosen   ? "#b00"
        : point.pareto ? "#36c"
                       : "white",
        svg_text(point.label), point.ms, point.accuracy);
    if (point.chosen) {
      const bool right = time.share(point.ms) < 0.7;
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                         x(point.ms) + (right ? 10 : -10), y(point.accuracy) - 9, right ? "start" : "end",
                         svg_text(point.label));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace pipit::apps
