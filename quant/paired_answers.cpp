#include "quant/paired_answers.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace pipit::internal {

double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double paired_drop(const PairedAnswers& answers) {
  if (answers.images < 1) fail("a drop needs at least 1 image");
  return static_cast<double>(answers.only_first - answers.only_second) / static_cast<double>(answers.images);
}

DropInterval drop_interval(const PairedAnswers& answers, double confidence) {
  if (answers.images < 1) fail("an interval needs at least 1 image");
  if (!(confidence > 0 && confidence < 1))
    fail("a confidence of {}: expected above 0 and below 1", confidence);
  const double n = static_cast<double>(answers.images) + 2;
  const double first = (static_cast<double>(answers.only_first) + 1) / n;
  const double second = (static_cast<double>(answers.only_second) + 1) / n;
  const double difference = first - second;
  const double half =
      normal_quantile((1 + confidence) / 2) * std::sqrt((first + second - difference * difference) / n);
  return {std::max(-1.0, difference - half), std::min(1.0, difference + half)};
}

}  // namespace pipit::internal
