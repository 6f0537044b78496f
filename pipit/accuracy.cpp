#include "pipit/accuracy.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "quant/drop_verdict.h"

namespace pipit::tools {

Share share_of(std::int64_t count, std::int64_t of) {
  if (of < 1) internal::fail("no images: a share of them has no value");
  if (count < 0 || count > of) internal::fail("a share of {} images cannot have {}", of, count);
  constexpr double z = 1.959963984540054;
  const double n = static_cast<double>(of);
  const double p = static_cast<double>(count) / n;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {count, of, p, std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

std::string_view verdict_name(Verdict verdict) {
  using internal::DropVerdict;
  return internal::verdict_name(verdict == Verdict::proven   ? DropVerdict::proven
                                : verdict == Verdict::broken ? DropVerdict::broken
                                                             : DropVerdict::unproven);
}

}  // namespace pipit::tools
