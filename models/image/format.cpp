#include "models/image/format.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <system_error>

#include "models/image/formats.h"

namespace pipit::internal {
namespace {

using namespace std::string_view_literals;
using Head = std::span<const std::uint8_t>;

struct Signature {
  std::string_view format;
  std::string_view magic;
};

constexpr Signature kSignatures[] = {
    {"JPEG", "\xFF\xD8\xFF"sv},
    {"PNG", "\x89PNG\r\n\x1A\n"sv},
    {"GIF", "GIF87a"sv},
    {"GIF", "GIF89a"sv},
    {"camera raw",
     "II*\0"sv
     "\x10\0\0\0"sv
     "CR"sv},  // Canon's CR2, a TIFF otherwise
    {"TIFF", "II*\0"sv},
    {"TIFF", "MM\0*"sv},
    {"TIFF", "II+\0"sv},
    {"TIFF", "MM\0+"sv},
    {"camera raw", "FUJIFILMCCD-RAW"sv},
    {"camera raw", "IIU\0"sv},
    {"camera raw", "IIRO"sv},
    {"camera raw", "IIRS"sv},
    {"camera raw", "MMOR"sv},
    {"JPEG XL", "\0\0\0\x0CJXL \r\n\x87\n"sv},
    {"JPEG XL", "\xFF\x0A"sv},
    {"JPEG 2000", "\0\0\0\x0CjP  \r\n\x87\n"sv},
    {"JPEG 2000", "\xFF\x4F\xFF\x51"sv},
    {"PSD", "8BPS\0"sv},
    {"OpenEXR", "\x76\x2F\x31\x01"sv},
    {"Radiance HDR", "#?RADIANCE\n"sv},
    {"Radiance HDR", "#?RGBE\n"sv},
    {"QOI", "qoif"sv},
    {"DDS", "DDS \x7C\0\0\0"sv},
    {"FLIF", "FLIF"sv},
    {"BPG", "BPG\xFB"sv},
    {"XCF", "gimp xcf "sv},
    {"farbfeld", "farbfeld"sv},
    {"PAM", "P7\n"sv},
    {"PFM", "PF\n"sv},
    {"PFM", "Pf\n"sv},
};

bool has(Head head, std::string_view magic, std::size_t at = 0) {
  return head.size() >= at + magic.size() && std::memcmp(head.data() + at, magic.data(), magic.size()) == 0;
}

std::uint32_t little(Head head, std::size_t at, int bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= std::uint32_t{head[at + static_cast<std::size_t>(i)]} << (8 * i);
  return value;
}

// A text may begin with "BM", but not have such a size of the second header after it.
bool is_bmp(Head head) {
  if (!has(head, "BM") || head.size() < 18) return false;
  const std::uint32_t header = little(head, 14, 4);
  return header == 12 || (header >= 40 && header <= 1024);
}

// One entry and more, of planes and depths that there are.
bool is_icon(Head head) {
  if (!has(head, "\0\0\1\0"sv) || head.size() < 22) return false;
  const std::uint32_t count = little(head, 4, 2), planes = little(head, 10, 2), bits = little(head, 12, 2);
  return count >= 1 && count < 256 && head[9] == 0 && planes <= 1 && bits <= 32 &&
         (bits % 4 == 0 || bits == 1);
}

// "P6", a space, and a comment or two numbers: the first is the width.
std::string_view netpbm(Head head) {
  if (head.size() < 6 || head[0] != 'P' || head[1] < '1' || head[1] > '6') return {};
  const auto space = [&](std::size_t i) {
    return i < head.size() && std::strchr(" \t\r\n", head[i]) != nullptr;
  };
  const auto digit = [&](std::size_t i) { return i < head.size() && head[i] >= '0' && head[i] <= '9'; };
  std::size_t i = 2;
  if (!space(i)) return {};
  while (space(i)) ++i;
  if (i < head.size() && head[i] != '#') {
    if (!digit(i)) return {};
    while (digit(i)) ++i;
    if (!space(i)) return {};
    while (space(i)) ++i;
    if (!digit(i)) return {};
  }
  constexpr std::array<std::string_view, 3> kNames = {"PBM", "PGM", "PPM"};
  return kNames[static_cast<std::size_t>(head[1] - '1') % 3];
}

// The container of ISO 14496-12, which holds films as well: its brands tell.
std::string_view brand(Head head) {
  if (!has(head, "ftyp", 4)) return {};
  // The major brand, a version, and compatible brands as far as the box reaches.
  const std::size_t box = head[2] == 0 ? head[3] : head.size();
  bool heic = false;
  for (std::size_t at = 8; at + 4 <= std::min(head.size(), box); at += at == 8 ? 8 : 4) {
    for (const std::string_view name : {"avif", "avis"})
      if (has(head, name, at)) return "AVIF";
    if (has(head, "crx ", at)) return "camera raw";
    for (const std::string_view name :
         {"heic", "heix", "hevc", "hevx", "heim", "heis", "mif1", "msf1", "mif2"})
      heic = heic || has(head, name, at);
  }
  return heic ? "HEIC" : std::string_view();
}

std::string_view webp(Head head) {
  if (!has(head, "RIFF") || !has(head, "WEBP", 8)) return {};
  constexpr std::uint8_t kAnimated = 2;
  const bool animated = has(head, "VP8X", 12) && head.size() > 20 && (head[20] & kAnimated) != 0;
  return animated ? "animated WebP" : "WebP";
}

}  // namespace

std::string_view image_format(std::span<const std::uint8_t> head) {
  for (const Signature& s : kSignatures)
    if (has(head, s.magic)) return s.format;
  if (is_bmp(head)) return "BMP";
  if (is_icon(head)) return "ICO";
  for (const std::string_view found : {webp(head), brand(head), netpbm(head)})
    if (!found.empty()) return found;
  return {};
}

std::optional<std::string_view> image_format_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::array<std::uint8_t, kFormatBytes> head{};
  const ssize_t count = pread(file, head.data(), head.size(), 0);
  close(file);
  if (count < 0) return std::nullopt;
  return image_format(std::span(head).first(static_cast<std::size_t>(count)));
}

bool reads_format(std::string_view format) {
  return format == "JPEG" || format == "PNG" || format == "BMP" ||
         (format == "WebP" && !detail::webp_library().empty());
}

std::string_view formats_read() {
  return reads_format("WebP") ? "JPEG, PNG, BMP or WebP" : "JPEG, PNG or BMP";
}

}  // namespace pipit::internal
