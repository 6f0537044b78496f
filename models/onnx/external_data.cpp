#include "models/onnx/external_data.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <vector>

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

bool is_inside(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

fs::path locate(const std::string& location, std::span<const fs::path> folders) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::ranges::any_of(location, is_control)) fail("external data: the location has control characters");
  if (folders.empty()) fail("external data '{}': this model may not refer to files", location);
  const fs::path relative(location);
  if (location.empty() || relative.has_root_path() ||
      std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    fail("external data '{}': expected a path inside the model's folder, relative and without '..'",
         location);
  }
  std::error_code error;
  std::vector<fs::path> bases, files;
  for (const fs::path& folder : folders) {
    bases.push_back(fs::weakly_canonical(folder, error));
    if (!error) files.push_back(fs::weakly_canonical(bases.back() / relative, error));
    if (error) fail("external data '{}': {}", location, error.message());
  }
  const auto exists = [](const fs::path& file) {
    std::error_code ignored;
    return fs::exists(file, ignored);
  };
  const auto found = std::ranges::find_if(files, exists);
  fs::path file = found == files.end() ? files[0] : *found;
  if (std::ranges::none_of(bases, [&](const fs::path& base) { return is_inside(file, base); }))
    fail("external data '{}': leads out of the model's folder to {}", location, file.string());
  if (!fs::is_regular_file(file, error)) {
    fail("external data '{}': {} is not a file; it holds weights of the model and belongs beside it",
         location, file.string());
  }
  return file;
}

}  // namespace

std::vector<fs::path> external_folders(const fs::path& model) {
  const auto folder_of = [](const fs::path& file) {
    return file.has_parent_path() ? file.parent_path() : fs::path(".");
  };
  std::vector<fs::path> folders{folder_of(model)};
  std::error_code error;
  if (const fs::path file = fs::canonical(model, error); !error && file != fs::absolute(model, error))
    folders.push_back(file.parent_path());
  return folders;
}

ExternalRange resolve_external(const onnx_pb::TensorProto& proto, std::span<const fs::path> folders) {
  std::string location;
  ExternalRange range;
  range.to_end = true;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") range.offset = parse_count(entry);
    if (entry.key() == "length") {
      range.length = parse_count(entry);
      range.to_end = false;
    }
  }
  range.file = locate(location, folders);
  std::error_code error;
  const std::uint64_t size = fs::file_size(range.file, error);
  if (error) fail("external data '{}': {}", location, error.message());
  if (range.offset > size) fail("external data '{}': offset {} of {} bytes", location, range.offset, size);
  if (range.to_end) range.length = size - range.offset;
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
