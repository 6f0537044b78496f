// What is no ONNX file is called by its name.
#include <gmock/gmock.h>

#include <fstream>

#include "engine/base/error.h"
#include "models/onnx/other_formats.h"
#include "models/onnx/read/reader.h"

namespace pipit::internal {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

std::string failure(const std::string& content) {
  try {
    parse_onnx(std::as_bytes(std::span(content)), {});
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

TEST(OtherFormats, AreCalledByTheirNames) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "an empty file"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 102442450\n", "Git LFS"},
      {"\n <!DOCTYPE html>\n<html></html>", "a web page (HTML)"},
      {"PK\x03\x04\x00\x00\x08\x08"s + std::string(22, '\0') + "archive/data.pkl", "a PyTorch file"},
      {"PK\x03\x04\x14\x00"s + std::string(24, '\0') + "metadata.json{} PK config.json", "a Keras model"},
      {"PK\x03\x04\x14\x00"s + std::string(24, '\0') + "model.onnx", "a ZIP archive; unpack"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46"s, "a pickle"},
      {"\x1f\x8b\x08\x00"s, "gzip"},
      {"\x1c\x00\x00\x00TFL3"s + std::string(40, '\0'), "TensorFlow Lite"},
      {"\x0f\x00\x00\x00\x00\x00\x00\x00{\"w\": {}      }"s, "safetensors"},
      {"\x89HDF\r\n\x1a\n"s, "HDF5"},
      {"\x18\x00\x00\x00ORTM"s + std::string(40, '\0'), ".ort"},
      {"\x89PNG\r\n\x1a\n"s, "a PNG image"},
      {std::string(64, '\0'), "nothing but zeros"},
      {"layers:\n  - conv\n", "a text file"},
  };
  for (const auto& [content, name] : cases) {
    EXPECT_THAT(failure(content), HasSubstr("not an ONNX model, but ")) << name;
    EXPECT_THAT(failure(content), HasSubstr(name));
  }
  EXPECT_THAT(failure("\x07\xff\xfe"s), HasSubstr("not an ONNX model, or cut short"));
}

TEST(OtherFormats, HeadersThatAreCutShortAreNoProblem) {
  for (const std::string& content :
       {"PK\x03\x04"s, "\x80\x02"s, "\x89HD"s, "v"s, "\x01\x00\x00\x00\x00\x00\x00\x00{"s})
    EXPECT_NE(failure(content), "");
}

}  // namespace
}  // namespace pipit::internal
