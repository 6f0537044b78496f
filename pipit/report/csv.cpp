#include "pipit/report/csv.h"

#include <algorithm>
#include <string_view>

#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

// U+0020, U+00A0, U+1680, U+2000 to U+200A, U+202F, U+205F, U+3000. printable() writes out what has no width.
constexpr std::string_view kBlanks[] = {" ",      "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
                                        "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
                                        "\u2009", "\u200a", "\u202f", "\u205f", "\u3000"};
// In ASCII, full width, small form; and the minus sign.
constexpr std::string_view kSigns[] = {"=",      "+",      "-",      "@",      "\uff1d", "\uff0b", "\uff0d",
                                       "\uff20", "\ufe66", "\ufe62", "\ufe63", "\ufe6b", "\u2212"};

template <std::size_t N>
std::size_t length_of_any(std::string_view text, const std::string_view (&all)[N]) {
  const auto* found = std::ranges::find_if(all, [&](std::string_view one) { return text.starts_with(one); });
  return found == std::end(all) ? 0 : found->size();
}

}  // namespace

std::string csv_name(const std::string& name) {
  const std::string text = printable(name);
  std::string out;
  bool at_start = true;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    const std::size_t blank = length_of_any(rest, kBlanks);
    const std::size_t sign = length_of_any(rest, kSigns);
    if (at_start && sign > 0) out += '\'';
    at_start = text[i] == ';' || (at_start && blank > 0);
    const std::size_t bytes = std::max<std::size_t>({blank, sign, 1});
    out += rest.substr(0, bytes);
    i += bytes;
  }
  return out;
}

}  // namespace pipit::internal::detail
