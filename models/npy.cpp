#include "models/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

constexpr std::pair<std::string_view, DType> kElements[] = {
    {"'<f4'", DType::f32}, {"'<f8'", DType::f64}, {"'|i1'", DType::i8},     {"'<i4'", DType::i32},
    {"'<i8'", DType::i64}, {"'|u1'", DType::u8},  {"'|b1'", DType::boolean}};

// The value of 'key': in the header, a Python dictionary in one line; empty where the key is not there.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == header.npos) return {};
  header.remove_prefix(at + key.size());
  const std::size_t begin = header.find_first_not_of(": ");
  return begin == header.npos ? std::string_view{} : header.substr(begin);
}

// "(1, 3, 224, 224)", "(5,)", "()".
Shape shape_of(std::string_view text, const std::string& path) {
  std::vector<std::int64_t> extents;
  const std::size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == text.npos) fail("{}: its header has no shape", path);
  std::string_view list = text.substr(1, end - 1);
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    if (entry.empty() && list.empty()) break;  // the comma after the last one
    std::int64_t extent = -1;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), extent);
    if (error != std::errc{} || stop != entry.data() + entry.size() || extent < 0)
      fail("{}: '{}' is not an extent of an array", path, printable(entry));
    if (extents.size() == std::size_t{kMaxRank})
      fail("{}: an array of more than {} dimensions", path, kMaxRank);
    extents.push_back(extent);
  }
  return naming(path, [&] { return Shape(extents); });
}

}  // namespace

bool is_npy(std::string_view content) {
  return content.starts_with(kNpyMagic);
}

Tensor parse_npy(std::string_view content, const std::filesystem::path& file) {
  const std::string path = file.string();
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(content[i]));
  };
  // The magic, two bytes of version, then the header's length: two bytes in version 1, four later.
  if (!is_npy(content) || content.size() < 12) fail("{}: no array as numpy.save() writes it", path);
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) fail("{}: version {} of NumPy's format; 1 to 3 are known", path, version);
  std::size_t begin = 10;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) {
    begin = 12;
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (length > content.size() - begin) fail("{}: the file ends within its header", path);
  const std::string_view header = content.substr(begin, length);
  const std::string_view type = value_of(header, "'descr'");
  const auto* element =
      std::ranges::find_if(kElements, [&](const auto& e) { return type.starts_with(e.first); });
  if (element == std::end(kElements)) {
    fail("{}: elements of type {}; expected {} of little endian: save array.astype(numpy.float32), say", path,
         printable(type.substr(0, type.find(','))), "f4, f8, i1, i4, i8, u1 or b1");
  }
  if (!value_of(header, "'fortran_order'").starts_with("False"))
    fail("{}: in Fortran's order; save numpy.ascontiguousarray(array)", path);
  const TensorDesc desc{shape_of(value_of(header, "'shape'"), path), element->second};
  const std::string_view data = content.substr(begin + length);
  const std::size_t bytes = naming(path, [&] { return desc.bytes(); });
  if (data.size() != bytes)
    fail("{}: {} bytes after the header; an array of {} has {}", path, data.size(), desc.str(), bytes);
  Tensor tensor(desc);
  if (!data.empty()) std::memcpy(tensor.view().data, data.data(), data.size());
  if (desc.dtype == DType::boolean) {
    const std::span held(tensor.view().data, data.size());
    for (std::byte& b : held) b = std::byte{b != std::byte{0}};
  }
  return tensor;
}

}  // namespace pipit::internal
