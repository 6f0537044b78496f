#include "engine/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace pipit {

namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// The code point at the start of `text`. Overlong forms and surrogates are no UTF-8, though
// some terminals decode them.
CodePoint first_code_point(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  char32_t value = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80) return {};
    value = value << 6U | (byte_at(text, i) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return overlong || surrogate || value > 0x10FFFF ? CodePoint{} : CodePoint{value, length};
}

bool is_harmful(char32_t c) {
  return (c >= 0x7F && c <= 0x9F) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(std::string_view text, bool keep_lines) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    if (c.bytes == 0) {
      out += fmt::format("\\x{:02x}", byte_at(text, i));
      ++i;
      continue;
    }
    if (keep_lines && text.substr(i).starts_with("\n  ")) {
      out += '\n';
    } else if (c.value < 0x20 || c.value == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c.value));
    } else if (is_harmful(c.value)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.value));
    } else {
      out += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, false);
}

std::string printable_key(std::string_view text) {
  std::string doubled;
  for (const char c : text) doubled.append(c == '\\' ? 2 : 1, c);
  return escaped(doubled, false);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, true);
}

std::string printable_json(std::string_view json) {
  std::string out;
  for (std::size_t i = 0; i < json.size();) {
    const CodePoint c = first_code_point(json.substr(i));
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    if (c.bytes > 0 && is_harmful(c.value)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.value));
    } else {
      out += json.substr(i, bytes);
    }
    i += bytes;
  }
  return out;
}

}  // namespace pipit
