#include "tests/cuda/sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace pipit::sweep {

Window Configuration::window() const {
  Window w;
  w.kernel = {kernel, kernel, 1};
  w.stride = {stride, stride, 1};
  w.pad_begin = w.pad_end = {kernel / 2, kernel / 2, 0};
  return w;
}

double Configuration::flops() const {
  return 2.0 * static_cast<double>(y().elements() * in_c * kernel * kernel);
}

double Configuration::elements() const {
  return static_cast<double>(x().elements() + y().elements());
}

std::string Configuration::name() const {
  std::string text = fmt::format("n{} {}->{} k{} s{} @{}", batch, in_c, out_c, kernel, stride, size);
  if (keep < 1) text += fmt::format(" keep {}", keep);
  if (keep < 1 && panel > 0) text += fmt::format(" per {}", panel);
  return text;
}

std::vector<Configuration> grid() {
  std::vector<Configuration> all;
  for (const std::int64_t batch : {1, 4, 8, 16}) {
    for (const std::int64_t in_c : {1, 3, 8, 16, 32}) {
      for (const std::int64_t out_c : {3, 8, 16, 32, 64}) {
        for (const std::int64_t size : {32, 64, 128, 256, 512}) {
          for (const std::int64_t kernel : {1, 3, 5, 7, 9, 11}) {
            const bool too_large =
                (size >= 256 && kernel >= 9) || (size == 512 && (kernel >= 7 || batch >= 16));
            if (in_c > out_c || too_large) continue;
            for (const std::int64_t stride : {1, 2})
              all.push_back({batch, in_c, out_c, size, kernel, stride});
          }
        }
      }
    }
  }
  return all;
}

std::vector<Configuration> sample(std::vector<Configuration> all, std::size_t count, unsigned seed) {
  // Fisher and Yates by hand: std::shuffle gives other orders with other standard libraries.
  std::mt19937 random(seed);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace pipit::sweep
