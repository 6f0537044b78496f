#include "models/onnx/read/reader.h"

#include <fstream>

#include "models/onnx/external_data.h"
#include "models/onnx/parsed_model.h"
#include "models/onnx/read/importer.h"
#include "models/onnx/tensor_proto.h"

namespace pipit::internal {

namespace {

// Runs `body` with the file's name before the message of what it throws.
template <typename Body>
auto with_name(const std::string& name, Body&& body) {
  try {
    return body();
  } catch (const UnsupportedError& e) {
    fail_unsupported("{}: {}", name, e.what());
  } catch (const Error& e) {
    fail("{}: {}", name, e.what());
  }
}

}  // namespace

OnnxModel read_onnx(const std::filesystem::path& file, const OnnxOptions& options) {
  return with_name(file.string(), [&] {
    return onnx::import_model(onnx::parse_model(file), onnx::external_folders(file), options);
  });
}

OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::filesystem::path& folder,
                     const OnnxOptions& options) {
  std::vector<std::filesystem::path> folders;
  if (!folder.empty()) folders.push_back(folder);
  return onnx::import_model(onnx::parse_model(bytes), folders, options);
}

NamedTensor read_named_tensor(const std::filesystem::path& file) {
  return with_name(file.string(), [&] {
    std::error_code error;
    if (!std::filesystem::exists(file, error)) fail("there is no such file");
    if (!std::filesystem::is_regular_file(file, error)) fail("is not a regular file");
    std::ifstream stream(file, std::ios::binary);
    if (!stream) fail("cannot be opened for reading");
    onnx_pb::TensorProto proto;
    if (!proto.ParseFromIstream(&stream)) fail("not a tensor, or cut short");
    onnx::ExternalData none;
    return NamedTensor{proto.name(), onnx::tensor_from_onnx(proto, none),
                       onnx::step_of_widened(proto.data_type())};
  });
}

}  // namespace pipit::internal
