#include "apps/measuring/conv_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

namespace pipit::internal::apps {

namespace {

bool usual(const ConvPoint& p) {
  if (p.in > p.out) return false;
  if (p.size >= 256 && p.kernel >= 9) return false;
  return p.size < 512 || (p.kernel < 7 && p.batch < 16);
}

}  // namespace

std::string ConvPoint::name() const {
  return fmt::format("{}x{}x{}x{}:{}x{}x{}{}", batch, in, size, size, out, kernel, kernel,
                     stride == 1 ? "" : fmt::format(":s{}", stride));
}

double ConvPoint::macs() const {
  const std::int64_t side = (size + kernel / 2 * 2 - kernel) / stride + 1;
  return static_cast<double>(batch * in * out * kernel * kernel) * static_cast<double>(side * side);
}

std::vector<ConvPoint> ConvGrid::points() const {
  std::vector<ConvPoint> points;
  std::set<std::string> names;
  for (const std::int64_t n : batch) {
    for (const std::int64_t i : in) {
      for (const std::int64_t o : out) {
        for (const std::int64_t h : size) {
          for (const std::int64_t k : kernel) {
            for (const std::int64_t s : stride) {
              const ConvPoint point{n, i, o, h, k, s};
              if ((all || usual(point)) && names.insert(point.name()).second) points.push_back(point);
            }
          }
        }
      }
    }
  }
  return points;
}

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

}  // namespace pipit::internal::apps
