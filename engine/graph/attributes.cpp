#include "engine/graph/attributes.h"

#include <fmt/format.h>

#include <cmath>

namespace pipit::internal {

namespace {

// The shortest text that is read back as the same number.
template <typename Real>
std::string text_of(Real value, Reals reals) {
  const bool told = reals == Reals::exact || value == 0 || value == 1 || !std::isfinite(value);
  return told ? fmt::format("{} ", value) : "r ";
}

}  // namespace

void AttributeText::add_integer(std::int64_t value) {
  text_ += fmt::format("{} ", value);
}

void AttributeText::add_real(float value) {
  text_ += text_of(value, reals_);
}

void AttributeText::add_real(double value) {
  text_ += text_of(value, reals_);
}

}  // namespace pipit::internal
