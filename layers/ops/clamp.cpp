#include "layers/ops/clamp.h"

#include <fmt/format.h>

namespace pipit::internal {

std::string clamp_summary(const Clamp& clamp) {
  if (clamp.is_identity()) return "";
  if (clamp == Clamp::relu()) return " +relu";
  if (clamp == Clamp{0.0F, 6.0F}) return " +relu6";
  return fmt::format(" +clip[{:.6g},{:.6g}]", clamp.low, clamp.high);
}

}  // namespace pipit::internal
