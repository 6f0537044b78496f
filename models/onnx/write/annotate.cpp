#include "models/onnx/write/annotate.h"

#include <google/protobuf/io/coded_stream.h>

#include <limits>
#include <set>

#include "engine/base/error.h"
#include "models/onnx/external_data.h"
#include "models/onnx/parsed_model.h"

namespace pipit::internal {

namespace {

using google::protobuf::io::CodedInputStream;

// The wire types of the protobuf encoding.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr std::uint32_t kMetadataTag = 14 << 3 | kBytes;  // ModelProto.metadata_props

// Passes the value of a field; false where it is cut short or of an unknown kind.
bool skip_value(CodedInputStream& in, std::uint32_t tag) {
  std::uint64_t number = 0;
  std::uint32_t length = 0;
  switch (tag & 7) {
    case kVarint:
      return in.ReadVarint64(&number);
    case kFixed64:
      return in.Skip(8);
    case kFixed32:
      return in.Skip(4);
    case kBytes:
      return in.ReadVarint32(&length) && length <= std::uint32_t{INT32_MAX} && in.Skip(int(length));
    default:
      return false;
  }
}

std::string_view key_of(std::string_view field, std::string& storage) {
  // The entry follows the tag and the length.
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(field.data()), int(field.size()));
  std::uint32_t length = 0;
  onnx_pb::StringStringEntryProto entry;
  in.ReadTag();
  if (!in.ReadVarint32(&length) || !entry.ParseFromCodedStream(&in)) return {};
  storage = entry.key();
  return storage;
}

void add_locations(const onnx_pb::TensorProto& tensor, const std::vector<std::filesystem::path>& folders,
                   std::set<std::filesystem::path>& files) {
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() != "location") continue;
    onnx::resolve_external(tensor, folders);  // throws where it leads out of them
    files.insert(std::filesystem::path(entry.value()).lexically_normal());
  }
}

}  // namespace

std::string with_metadata(std::string_view model, const std::map<std::string, std::string>& metadata) {
  if (model.size() > std::size_t{INT32_MAX})
    fail("{} bytes are more than an ONNX file may have", model.size());
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(model.data()), int(model.size()));
  std::string out;
  out.reserve(model.size());
  std::string key;
  while (in.CurrentPosition() < int(model.size())) {
    const auto begin = std::size_t(in.CurrentPosition());
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0 || !skip_value(in, tag)) fail("not an ONNX model: the field at byte {} is damaged", begin);
    const std::string_view field = model.substr(begin, std::size_t(in.CurrentPosition()) - begin);
    if (tag == kMetadataTag && metadata.contains(std::string(key_of(field, key)))) continue;
    out += field;
  }
  onnx_pb::ModelProto added;
  for (const auto& [name, value] : metadata) {
    auto* entry = added.add_metadata_props();
    entry->set_key(name);
    entry->set_value(value);
  }
  return out + added.SerializeAsString();  // repeated fields of consecutive messages add up
}

std::vector<std::filesystem::path> external_files(const std::filesystem::path& model) {
  const onnx::ParsedModel parsed = onnx::parse_model(model);
  const std::vector<std::filesystem::path> folders = onnx::external_folders(model);
  std::set<std::filesystem::path> files;
  for (const auto& tensor : parsed.proto.graph().initializer()) add_locations(tensor, folders, files);
  for (const auto& node : parsed.proto.graph().node()) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) add_locations(attribute.t(), folders, files);
    }
  }
  return {files.begin(), files.end()};
}

}  // namespace pipit::internal
