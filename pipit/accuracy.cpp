#include "pipit/accuracy.h"

#include "quant/drop_verdict.h"

namespace pipit::tools {

std::string_view verdict_name(Verdict verdict) {
  using internal::DropVerdict;
  return internal::verdict_name(verdict == Verdict::proven   ? DropVerdict::proven
                                : verdict == Verdict::broken ? DropVerdict::broken
                                                             : DropVerdict::unproven);
}

}  // namespace pipit::tools
