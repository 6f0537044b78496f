#include "models/onnx/external_data.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>

#include "engine/base/error.h"

namespace pipit::internal::onnx {

namespace {

namespace fs = std::filesystem;

std::uint64_t parse_count(const onnx_pb::StringStringEntryProto& entry) {
  std::uint64_t value = 0;
  const char* const end = entry.value().data() + entry.value().size();
  const auto [stop, error] = std::from_chars(entry.value().data(), end, value);
  if (error != std::errc{} || stop != end) {
    fail("external data: {} is '{}', expected a number of bytes", entry.key(), entry.value());
  }
  return value;
}

fs::path locate(const std::string& location, const fs::path& folder) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::ranges::any_of(location, is_control)) fail("external data: the location has control characters");
  if (folder.empty()) fail("external data '{}': this model may not refer to files", location);
  const fs::path relative(location);
  if (location.empty() || relative.has_root_path() ||
      std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    fail("external data '{}': expected a path inside the model's folder, relative and without '..'",
         location);
  }
  std::error_code error;
  const fs::path base = fs::weakly_canonical(folder, error);
  if (error) fail("external data '{}': {}", location, error.message());
  fs::path file = fs::weakly_canonical(base / relative, error);
  if (error) fail("external data '{}': {}", location, error.message());
  if (std::mismatch(base.begin(), base.end(), file.begin(), file.end()).first != base.end()) {
    fail("external data '{}': leads out of the model's folder to {}", location, file.string());
  }
  if (!fs::is_regular_file(file, error))
    fail("external data '{}': {} is not a file", location, file.string());
  return file;
}

}  // namespace

ExternalRange resolve_external(const onnx_pb::TensorProto& proto, const fs::path& folder) {
  std::string location;
  ExternalRange range;
  bool has_length = false;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") range.offset = parse_count(entry);
    if (entry.key() == "length") {
      range.length = parse_count(entry);
      has_length = true;
    }
  }
  range.file = locate(location, folder);
  std::error_code error;
  const std::uint64_t size = fs::file_size(range.file, error);
  if (error) fail("external data '{}': {}", location, error.message());
  if (range.offset > size) fail("external data '{}': offset {} of {} bytes", location, range.offset, size);
  if (!has_length) range.length = size - range.offset;
  if (range.length > size - range.offset) {
    fail("external data '{}': {} bytes at offset {} of {} bytes", location, range.length, range.offset, size);
  }
  return range;
}

void read_external(const ExternalRange& range, std::span<std::byte> target) {
  std::ifstream stream(range.file, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(range.offset));
  stream.read(reinterpret_cast<char*>(target.data()), static_cast<std::streamsize>(target.size()));
  if (!stream) fail("external data: {} could not be read", range.file.string());
}

}  // namespace pipit::internal::onnx
