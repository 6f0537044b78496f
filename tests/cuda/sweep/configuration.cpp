#include "tests/cuda/sweep/configuration.h"

#include <fmt/format.h>

namespace pipit::sweep {

Window Configuration::window() const {
  Window w;
  w.kernel = {kernel, kernel, 1};
  w.stride = {stride, stride, 1};
  w.pad_begin = w.pad_end = {kernel / 2, kernel / 2, 0};
  return w;
}

std::string Configuration::name() const {
  std::string text = fmt::format("n{} {}->{} k{} s{} @{}", batch, in_c, out_c, kernel, stride, size);
  if (keep < 1) text += fmt::format(" keep {}", keep);
  if (keep < 1 && panel > 0) text += fmt::format(" per {}", panel);
  return text;
}

}  // namespace pipit::sweep
