// A strict reader of ZIP archives over zlib, which protobuf and libpng need anyway. Libraries for ZIP archives do not
// limit how much they unpack, and would be one more dependency.
#include "models/npz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/base/error.h"
#include "models/npy.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

// Signatures of an archive's parts (APPNOTE 4.3), and the bytes of their fixed fields.
constexpr std::uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22;
constexpr std::size_t kMaxComment = 65535;
// The same of the ZIP64 form, whose numbers have 64 bits (APPNOTE 4.3.14, 4.3.15 and 4.5.3).
constexpr std::uint32_t kLongEnd = 0x06064b50, kLongEndLocator = 0x07064b50;
constexpr std::size_t kLongEndBytes = 56, kLocatorBytes = 20;
constexpr std::uint32_t kLongField = 0x0001;
// In 32 bits: the number is in the entry's field of the ZIP64 form.
constexpr std::uint32_t kElsewhere = 0xffffffff;
// What numpy writes before the elements is 128 bytes, more for many fields.
constexpr std::size_t kMaxHeader = std::size_t{1} << 16;

struct ZipMember {
  std::string name;
  std::uint32_t flags = 0, method = 0, crc = 0;
  std::uint64_t packed = 0, bytes = 0, offset = 0;
};

// Where the directory is, and how many members it has.
struct Directory {
  std::uint64_t count = 0, bytes = 0, begin = 0;
};

class ZipArchive {
 public:
  ZipArchive(std::string_view content, std::string file) : content_(content), file_(std::move(file)) {}

  std::vector<ZipMember> members() const {
    const Directory directory = find_directory();
    std::vector<ZipMember> members;
    std::size_t at = directory.begin;
    const std::size_t stop = directory.begin + directory.bytes;
    for (std::uint64_t i = 0; i < directory.count; ++i) {
      if (stop - at < kEntryBytes || number(at, 4) != kDirectoryEntry) broken();
      const std::size_t name = small(at + 28), extra = small(at + 30);
      const std::size_t whole = kEntryBytes + name + extra + small(at + 32);
      if (stop - at < whole) broken();
      ZipMember member{std::string(content_.substr(at + kEntryBytes, name)),
                       small(at + 8),
                       small(at + 10),
                       word(at + 16),
                       word(at + 20),
                       word(at + 24),
                       word(at + 42)};
      read_long_numbers(member, at + kEntryBytes + name, extra);
      members.push_back(std::move(member));
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
    const std::size_t at = member.offset;
    if (!has(at, kLocalBytes) || word(at) != kLocalHeader)
      problem("is not where the archive's directory says");
    const std::size_t begin = at + kLocalBytes + small(at + 26) + small(at + 28);
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
    if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != member.crc)
      problem("does not have the checksum that the archive says");
    return bytes;
  }

 private:
  bool has(std::uint64_t at, std::size_t bytes) const {
    return at <= content_.size() && content_.size() - at >= bytes;
  }

  // Little endian; inside of the content.
  std::uint64_t number(std::size_t at, int bytes) const {
    std::uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i)
      value = value << 8 | static_cast<unsigned char>(content_[at + static_cast<std::size_t>(i)]);
    return value;
  }
  std::uint32_t small(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 2)); }
  std::uint32_t word(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }

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

  // Inside of the content, before the archive's end.
  Directory find_directory() const {
    const std::size_t end = directory_end();
    std::uint64_t part = small(end + 4), count_here = small(end + 8), stop = end;
    Directory found{small(end + 10), word(end + 12), word(end + 16)};
    if (end >= kLocatorBytes && word(end - kLocatorBytes) == kLongEndLocator) {
      stop = number(end - kLocatorBytes + 8, 8);
      if (!has(stop, kLongEndBytes) || word(stop) != kLongEnd)
        fail("{}: the archive's end in ZIP64 form is not where its locator says", file_);
      part = number(stop + 16, 4);
      count_here = number(stop + 24, 8);
      found = {number(stop + 32, 8), number(stop + 40, 8), number(stop + 48, 8)};
    }
    if (part != 0 || count_here != found.count) fail("{}: an archive in several parts", file_);
    if (found.begin > stop || found.bytes > stop - found.begin)
      fail("{}: the archive's directory is not inside of it", file_);
    return found;
  }

  // Those of an entry's numbers that are in its field of the ZIP64 form, in this order. The extra fields begin at `at`.
  void read_long_numbers(ZipMember& member, std::size_t at, std::size_t bytes) const {
    const std::array numbers{&member.bytes, &member.packed, &member.offset};
    const auto elsewhere = [](const std::uint64_t* value) { return *value == kElsewhere; };
    if (std::ranges::none_of(numbers, elsewhere)) return;
    const std::size_t stop = at + bytes;
    while (stop - at >= 4 && small(at) != kLongField) {
      const std::size_t whole = 4 + std::size_t{small(at + 2)};
      if (stop - at < whole) broken();
      at += whole;
    }
    std::size_t left = stop - at < 4 ? 0 : small(at + 2);
    if (left > 0 && stop - at - 4 < left) broken();
    at += 4;
    for (std::uint64_t* value : numbers) {
      if (!elsewhere(value)) continue;
      if (left < 8) broken();
      *value = number(at, 8);
      at += 8;
      left -= 8;
    }
  }

  // Whether `packed` ends where `bytes` is full. In parts, since zlib counts in 32 bits.
  static bool inflate_all(std::string_view packed, std::string& bytes) {
    constexpr std::size_t kPart = std::size_t{1} << 30;
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    std::size_t in = 0, out = 0;
    int result = Z_OK;
    while (result == Z_OK) {  // without progress it is Z_BUF_ERROR
      const std::size_t in_part = std::min(packed.size() - in, kPart);
      const std::size_t out_part = std::min(bytes.size() - out, kPart);
      // zlib does not write to its input.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + in));
      stream.avail_in = static_cast<uInt>(in_part);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + out);
      stream.avail_out = static_cast<uInt>(out_part);
      result = inflate(&stream, Z_NO_FLUSH);
      in += in_part - stream.avail_in;
      out += out_part - stream.avail_out;
    }
    inflateEnd(&stream);
    return result == Z_STREAM_END && out == bytes.size() && in == packed.size();
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
    if (member.bytes > *most + kMaxHeader) {
      fail("{}: array '{}' has {} bytes, expected {} at most, and a header", file.string(), printable(name),
           member.bytes, *most);
    }
    arrays.emplace(name, parse_npy(archive.read(member), file.string() + ": " + printable(name)));
  }
  return arrays;
}

}  // namespace pipit::internal
