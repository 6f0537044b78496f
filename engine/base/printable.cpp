#include "engine/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace pipit::internal {

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

struct CodeRange {
  char32_t first, last;
};

// Controls, direction marks, line separators, and what is not seen: soft hyphens, joiners, fillers, tags.
constexpr CodeRange kHarmful[] = {{0x7F, 0x9F},     {0xAD, 0xAD},     {0x34F, 0x34F},    {0x61C, 0x61C},
                                  {0x115F, 0x1160}, {0x17B4, 0x17B5}, {0x180B, 0x180F},  {0x200B, 0x200F},
                                  {0x2028, 0x202E}, {0x2060, 0x206F}, {0x3164, 0x3164},  {0xFEFF, 0xFEFF},
                                  {0xFFA0, 0xFFA0}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};

bool is_harmful(char32_t c) {
  return std::ranges::any_of(kHarmful, [c](const CodeRange& r) { return c >= r.first && c <= r.last; });
}

std::string written_out(char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  return value > 0xFFFF ? fmt::format("\\U{:08x}", value) : fmt::format("\\u{:04x}", value);
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
      out += written_out(c.value);
    } else {
      out += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  return out;
}

}  // namespace

std::string printable_key(std::string_view text) {
  std::string doubled;
  for (const char c : text) doubled.append(c == '\\' ? 2 : 1, c);
  return escaped(doubled, false);
}

namespace {

// Above U+FFFF JSON has two halves.
std::string json_escape(char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  if (value <= 0xFFFF) return fmt::format("\\u{:04x}", value);
  const std::uint32_t rest = value - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U), 0xDC00 + (rest & 0x3FFU));
}

}  // namespace

std::string printable_json(std::string_view json) {
  std::string out;
  for (std::size_t i = 0; i < json.size();) {
    const CodePoint c = first_code_point(json.substr(i));
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    if (c.bytes > 0 && is_harmful(c.value)) {
      out += json_escape(c.value);
    } else {
      out += json.substr(i, bytes);
    }
    i += bytes;
  }
  return out;
}

}  // namespace pipit::internal

namespace pipit {

std::string printable(std::string_view text) {
  return internal::escaped(text, false);
}

std::string printable_lines(std::string_view text) {
  return internal::escaped(text, true);
}

}  // namespace pipit
