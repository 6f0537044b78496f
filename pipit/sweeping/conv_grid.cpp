#include "pipit/sweeping/conv_grid.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>

namespace pipit::internal::detail {

using tools::ConvPoint;

std::vector<ConvPoint> sample(std::vector<ConvPoint> points, std::size_t count, unsigned seed) {
  if (count == 0 || count >= points.size()) return points;
  std::mt19937 random(seed);
  // Fisher and Yates by hand: std::shuffle draws otherwise in other libraries.
  for (std::size_t i = 0; i < count; ++i) std::swap(points[i], points[i + random() % (points.size() - i)]);
  points.resize(count);
  return points;
}

std::vector<ConvPoint> by_input(const std::vector<ConvPoint>& points) {
  std::map<std::array<std::int64_t, 3>, std::size_t> place;
  std::vector<std::vector<ConvPoint>> groups;
  for (const ConvPoint& point : points) {
    const auto found = place.try_emplace({point.batch, point.in, point.size}, groups.size()).first;
    if (found->second == groups.size()) groups.emplace_back();
    groups[found->second].push_back(point);
  }
  std::vector<ConvPoint> ordered;
  for (const std::vector<ConvPoint>& group : groups)
    ordered.insert(ordered.end(), group.begin(), group.end());
  return ordered;
}

}  // namespace pipit::internal::detail
