// Two classifiers on the same images: how much less one of them has right, and how sure that is.
#pragma once

#include <cstdint>

namespace pipit::internal {

/// How two classifiers answered the same images.
struct PairedAnswers {
  std::int64_t images = 0;
  std::int64_t only_first = 0;   ///< right in the first one only
  std::int64_t only_second = 0;  ///< right in the second one only

  /// One image more.
  void add(bool first_right, bool second_right) {
    ++images;
    only_first += first_right && !second_right ? 1 : 0;
    only_second += second_right && !first_right ? 1 : 0;
  }
};

/// The share of images that the first one has right more than the second.
double paired_drop(const PairedAnswers& answers);

struct DropInterval {
  double low = 0;
  double high = 0;
};

/// Two-sided interval of paired_drop() at `confidence` in (0, 1): the adjusted Wald interval for the difference of
/// paired proportions of Bonett and Price (2012), which also has a width where the answers never differ. Throws Error
/// without images.
DropInterval drop_interval(const PairedAnswers& answers, double confidence);

/// The x below which a standard normal number lies with probability p in (0, 1).
double normal_quantile(double p);

}  // namespace pipit::internal
