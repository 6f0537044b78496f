#include "models/letters.h"

#include <algorithm>
#include <vector>

#include "models/letters_table.h"

namespace pipit::internal {

namespace {

constexpr char32_t kHangul = 0xAC00, kHangulEnd = 0xD7A4, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kVowelCount = 21, kTrailCount = 28;

// The code point at text[at], which moves on; a byte that begins none is given as 0x110000 + byte.
char32_t next_letter(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  bool whole = length > 0 && at + length <= text.size();
  char32_t code = length < 2 ? first : first & (0x7FU >> length);
  for (std::size_t i = 1; whole && i < length; ++i) {
    whole = (byte(at + i) & 0xC0) == 0x80;
    code = code << 6 | (byte(at + i) & 0x3FU);
  }
  if (!whole) {
    ++at;
    return 0x110000 + first;
  }
  at += length;
  return code;
}

void append_letter(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code >= 0x110000) return put(code - 0x110000);
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

void take_apart(char32_t code, std::vector<char32_t>& out) {
  if (code >= kHangul && code < kHangulEnd) {
    const char32_t syllable = code - kHangul;
    out.push_back(kLeads + syllable / (kVowelCount * kTrailCount));
    out.push_back(kVowels + syllable % (kVowelCount * kTrailCount) / kTrailCount);
    if (syllable % kTrailCount != 0) out.push_back(kTrails + syllable % kTrailCount);
    return;
  }
  const auto* found = std::ranges::lower_bound(kComposedLetters, code, {}, &ComposedLetter::letter);
  if (found == std::end(kComposedLetters) || found->letter != code) {
    out.push_back(code);
    return;
  }
  take_apart(found->base, out);
  if (found->mark != 0) take_apart(found->mark, out);
}

bool is_mark(char32_t code) {
  return (code >= 0x300 && code < 0x370) || (code >= 0x591 && code < 0x5C8) ||
         (code >= 0x64B && code < 0x660) || (code >= 0x1AB0 && code < 0x1B00) ||
         (code >= 0x1DC0 && code < 0x1E00) || (code >= 0x20D0 && code < 0x2100) || code == 0x3099 ||
         code == 0x309A || (code >= 0xFE20 && code < 0xFE30);
}

}  // namespace

std::string taken_apart(std::string_view text) {
  std::vector<char32_t> codes;
  for (std::size_t at = 0; at < text.size();) take_apart(next_letter(text, at), codes);
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::sort(begin, end);
    begin = end;
  }
  std::string out;
  for (const char32_t code : codes) append_letter(out, code);
  return out;
}

}  // namespace pipit::internal
