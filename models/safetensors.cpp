#include "models/safetensors.h"

#include <cstring>
#include <span>
#include <vector>

#include "engine/base/json_problem.h"
#include "engine/base/parse_json.h"

namespace pipit::internal {

namespace {

using Json = JsonDocument;

constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{16} << 20;
constexpr int kMaxLevels = 3;  // header, tensor, shape

// `numbers` are the bytes after the header.
Tensor read_tensor(const Json& entry, std::string_view numbers) {
  if (entry.at("dtype") != "F32") fail("is of type {}, not F32", shown(entry.at("dtype")));
  const auto extents = entry.at("shape").get<std::vector<std::int64_t>>();
  const Shape shape{std::span(extents)};
  const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
  const TensorDesc desc{shape};
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > numbers.size() ||
      offsets[1] - offsets[0] != desc.bytes()) {
    fail("of shape {} does not fit its data_offsets {} in {} bytes", shape.str(),
         shown(entry.at("data_offsets")), numbers.size());
  }
  Tensor tensor(desc);
  if (desc.bytes() > 0) std::memcpy(tensor.view().data, numbers.data() + offsets[0], desc.bytes());
  return tensor;
}

}  // namespace

std::map<std::string, Tensor> parse_safetensors(std::string_view bytes, const std::string& name) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) fail("{}: {} bytes are no safetensors file", name, bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes.remove_prefix(sizeof length);
  if (length > bytes.size() || length > kMaxHeaderBytes) {
    fail("{}: a header of {} bytes does not fit into {}, or is above the limit of {}", name, length,
         bytes.size(), kMaxHeaderBytes);
  }
  std::map<std::string, Tensor> tensors;
  std::string key;
  try {
    const Json header = parse_json(bytes.substr(0, length), kMaxLevels);
    if (!header.is_object()) fail("its header is no JSON object");
    for (const auto& [tensor, entry] : header.items()) {
      if (tensor == "__metadata__") continue;
      key = fmt::format("tensor '{}' ", tensor);
      tensors.emplace(tensor, read_tensor(entry, bytes.substr(length)));
    }
  } catch (const Json::exception& e) {
    fail("{}: {}{}", name, key, json_problem(e.what()));
  } catch (const Error& e) {
    fail("{}: {}{}", name, key, e.what());
  }
  return tensors;
}

}  // namespace pipit::internal
