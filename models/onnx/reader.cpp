#include "models/onnx/reader.h"

#include <fstream>
#include <limits>

#include "models/onnx/importer.h"
#include "models/onnx/tensor_proto.h"

namespace pipit {

namespace {

// protobuf counts the bytes of a message in an int.
constexpr std::uintmax_t kMaxMessageBytes = std::numeric_limits<int>::max();

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

template <typename Message>
Message parse_file(const std::filesystem::path& file, const char* what) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) fail("there is no such file");
  if (!std::filesystem::is_regular_file(file, error)) fail("is not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error) fail("{}", error.message());
  if (size > kMaxMessageBytes) {
    fail("{} bytes; a file of protocol buffers holds at most {} (export the weights as external data)", size,
         kMaxMessageBytes);
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("cannot be opened for reading");
  Message message;
  if (!message.ParseFromIstream(&stream)) fail("not {}, or cut short", what);
  return message;
}

}  // namespace

OnnxModel read_onnx(const std::filesystem::path& file, const OnnxOptions& options) {
  return with_name(file.string(), [&] {
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    return onnx::import_model(parse_file<onnx_pb::ModelProto>(file, "an ONNX model"), folder, options);
  });
}

OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::filesystem::path& folder,
                     const OnnxOptions& options) {
  return with_name("ONNX model", [&] {
    if (bytes.size() > kMaxMessageBytes)
      fail("{} bytes; at most {} can be read", bytes.size(), kMaxMessageBytes);
    onnx_pb::ModelProto model;
    if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      fail("not an ONNX model, or cut short");
    return onnx::import_model(std::move(model), folder, options);
  });
}

NamedTensor read_named_tensor(const std::filesystem::path& file) {
  return with_name(file.string(), [&] {
    const auto proto = parse_file<onnx_pb::TensorProto>(file, "a tensor");
    onnx::ExternalData none;
    return NamedTensor{proto.name(), onnx::tensor_from_onnx(proto, none)};
  });
}

}  // namespace pipit
