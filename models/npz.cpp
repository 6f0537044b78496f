// A strict reader of ZIP archives over zlib, which protobuf and libpng need anyway. Libraries for ZIP archives do not
// limit how much they unpack, and would be one more dependency.
#include "models/npz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/printable.h"
#include "models/npy.h"

namespace pipit::internal {

namespace {

// Signatures of an archive's parts (APPNOTE 4.3), and the bytes of their fixed fields.
constexpr std::uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22;
constexpr std::size_t kMaxComment = 65535;
// In 32 bits: the number is in an extra field of 64 bits.
constexpr std::uint32_t kElsewhere = 0xffffffff;
// What numpy writes before the elements is 128 bytes, more for many fields.
constexpr std::size_t kMaxHeader = std::size_t{1} << 16;

struct ZipMember {
  std::string name;
  std::uint32_t flags = 0, method = 0, crc = 0, packed = 0, bytes = 0, offset = 0;
};

class ZipArchive {
 public:
  ZipArchive(std::string_view content, std::string file) : content_(content), file_(std::move(file)) {}

  std::vector<ZipMember> members() const {
    const std::size_t end = directory_end();
    const std::uint32_t count = number(end + 10, 2), bytes = number(end + 12, 4), begin = number(end + 16, 4);
    if (begin == kElsewhere || bytes == kElsewhere || count == 0xffff)
      fail("{}: archives in ZIP64 form, of more than 65534 arrays or 4 GiB, are not read", file_);
    if (number(end + 4, 2) != 0 || number(end + 8, 2) != count)
      fail("{}: an archive in several parts", file_);
    if (begin > end || bytes > end - begin) fail("{}: the archive's directory is not inside of it", file_);
    std::vector<ZipMember> members;
    std::size_t at = begin;
    const std::size_t stop = std::size_t{begin} + bytes;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (stop - at < kEntryBytes || number(at, 4) != kDirectoryEntry) broken();
      const std::size_t name = number(at + 28, 2);
      const std::size_t whole = kEntryBytes + name + number(at + 30, 2) + number(at + 32, 2);
      if (stop - at < whole) broken();
      members.push_back({std::string(content_.substr(at + kEntryBytes, name)), number(at + 8, 2),
                         number(at + 10, 2), number(at + 16, 4), number(at + 20, 4), number(at + 24, 4),
                         number(at + 42, 4)});
      at += whole;
    }
    return members;
  }

  // The bytes of a member whose size has been checked.
  std::string read(const ZipMember& member) const {
    const auto problem = [&](const char* what) {
      fail("{}: array '{}' {}", file_, printable(member.name), what);
    };
    if ((member.flags & 1) != 0) problem("is encrypted");
    if (member.packed == kElsewhere || member.offset == kElsewhere) problem("is in ZIP64 form");
    const std::size_t at = member.offset;
    if (at > content_.size() || content_.size() - at < kLocalBytes || number(at, 4) != kLocalHeader)
      problem("is not where the archive's directory says");
    const std::size_t begin = at + kLocalBytes + number(at + 26, 2) + number(at + 28, 2);
    if (begin > content_.size() || content_.size() - begin < member.packed)
      problem("ends after the end of the file");
    const std::string_view packed = content_.substr(begin, member.packed);
    std::string bytes;
    if (member.method == 0) {
      if (member.packed != member.bytes) problem("has two different sizes");
      bytes = packed;
    } else if (member.method == 8) {
      bytes.resize(member.bytes);
      if (!inflate_all(packed, bytes))
        problem("cannot be unpacked, or not to the size that it is said to have");
    } else {
      problem("is neither stored nor deflated; numpy.savez() and savez_compressed() write these forms");
    }
    const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
    if (crc32(0, data, static_cast<uInt>(bytes.size())) != member.crc)
      problem("does not have the checksum that the archive says");
    return bytes;
  }

 private:
  // Little endian; inside of the content.
  std::uint32_t number(std::size_t at, int bytes) const {
    std::uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; --i)
      value = value << 8 | static_cast<unsigned char>(content_[at + static_cast<std::size_t>(i)]);
    return value;
  }

  [[noreturn]] void broken() const { fail("{}: the archive's directory is damaged", file_); }

  // Searched from the end: a comment of any bytes may follow.
  std::size_t directory_end() const {
    for (std::size_t comment = 0; comment <= kMaxComment && comment + kEndBytes <= content_.size();
         ++comment) {
      const std::size_t at = content_.size() - kEndBytes - comment;
      if (number(at, 4) == kDirectoryEnd && number(at + 20, 2) == comment) return at;
    }
    fail("{}: not a ZIP archive, or its end is missing", file_);
  }

  // Whether `packed` ends where `bytes` is full.
  static bool inflate_all(std::string_view packed, std::string& bytes) {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    std::string source(packed);  // zlib wants it writable
    stream.next_in = reinterpret_cast<Bytef*>(source.data());
    stream.avail_in = static_cast<uInt>(source.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    const int result = inflate(&stream, Z_FINISH);
    const bool whole = result == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
    inflateEnd(&stream);
    return whole;
  }

  std::string_view content_;
  std::string file_;
};

}  // namespace

bool is_npz(std::string_view content) {
  return content.starts_with("PK\x03\x04") || content.starts_with("PK\x05\x06");
}

std::map<std::string, Tensor> parse_npz(std::string_view content, const std::filesystem::path& file,
                                        const ArrayLimit& limit, std::vector<std::string>* names) {
  constexpr std::string_view kEnding = ".npy";
  const ZipArchive archive(content, file.string());
  std::map<std::string, Tensor> arrays;
  for (const ZipMember& member : archive.members()) {
    if (!member.name.ends_with(kEnding)) continue;
    const std::string name = member.name.substr(0, member.name.size() - kEnding.size());
    if (names != nullptr) names->push_back(name);
    const std::optional<std::size_t> most = limit(name);
    if (!most) continue;
    if (arrays.contains(name)) fail("{}: array '{}' is there twice", file.string(), printable(name));
    if (member.bytes == kElsewhere || member.bytes > *most + kMaxHeader) {
      fail("{}: array '{}' has {} bytes, expected {} at most, and a header", file.string(), printable(name),
           member.bytes, *most);
    }
    arrays.emplace(name, parse_npy(archive.read(member), file.string() + ": " + printable(name)));
  }
  return arrays;
}

}  // namespace pipit::internal
