#include "models/onnx/other_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace pipit::internal::onnx {

namespace {

constexpr std::string_view kExportTorch =
    "load it in PyTorch and export it with torch.onnx.export(), or take the ONNX file that its publisher "
    "offers";
constexpr std::string_view kExportTensorFlow = "convert it with tf2onnx";
constexpr std::string_view kUnpack = "unpack it and give the .onnx file in it";

struct Format {
  std::size_t offset;
  std::string_view magic;
  std::string_view name;
  std::string_view advice;
};

using namespace std::string_view_literals;

constexpr Format kFormats[] = {
    {0, "version https://git-lfs"sv, "a pointer of Git LFS, not the file itself",
     "fetch the file with git lfs pull, or download it"},
    {0, "version https://hawser"sv, "a pointer of Git LFS, not the file itself",
     "fetch the file with git lfs pull"},
    {4, "TFL3"sv, "a TensorFlow Lite model", "convert it with python -m tf2onnx.convert --tflite"},
    {4, "ORTM"sv, "a model in ONNX Runtime's own format (.ort)", "give the .onnx file that it was made of"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file (Keras)", kExportTensorFlow},
    {0, "ftrt"sv, "a TensorRT engine", "give the ONNX file that it was built from"},
    {0, "\x93NUMPY"sv, "a NumPy array", "give the .onnx file of the model"},
    {0, "\x1f\x8b"sv, "compressed by gzip", kUnpack},
    {0, "BZh"sv, "compressed by bzip2", kUnpack},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "compressed by xz", kUnpack},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed by zstd", kUnpack},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", kUnpack},
    {0, "Rar!"sv, "a RAR archive", kUnpack},
    {257, "ustar"sv, "a tar archive", kUnpack},
    {0, "\x89PNG"sv, "a PNG image", "the model comes before the images"},
    {0, "\xff\xd8\xff"sv, "a JPEG image", "the model comes before the images"},
    {0, "%PDF"sv, "a PDF document", "give the .onnx file of the model"},
    {0, "7767517\n"sv, "a network of ncnn", "give the ONNX file that it was converted from"},
};

// Text compares without regard to case and to spaces before it.
bool begins_like(std::string_view text, std::string_view wanted) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\xEF\xBB\xBF"), text.size()));
  return text.size() >= wanted.size() &&
         std::equal(wanted.begin(), wanted.end(), text.begin(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
         });
}

bool is_html(std::string_view text) {
  return begins_like(text, "<!doctype html") || begins_like(text, "<html") || begins_like(text, "<head");
}

// By the names of the entries that come first.
std::string zip(std::string_view head) {
  const auto holds = [&](std::string_view name) { return head.find(name) != std::string_view::npos; };
  if (holds("data.pkl") || holds("constants.pkl") || holds("/code/") || holds("/version"))
    return fmt::format("a PyTorch file (a ZIP archive of torch.save() or torch.jit.save()); {}",
                       kExportTorch);
  if (holds("metadata.json") && holds("config.json"))
    return fmt::format("a Keras model (a ZIP archive); {}", kExportTensorFlow);
  if (holds(".npy")) return "an archive of NumPy arrays (.npz); give the .onnx file of the model";
  return fmt::format("a ZIP archive; {}", kUnpack);
}

// The length of a JSON header in 8 bytes, then the header.
bool is_safetensors(std::string_view head, std::uint64_t size) {
  if (head.size() < 10 || head[8] != '{' || (head[9] != '"' && head[9] != '}')) return false;
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(head[i]);
  return length <= size - 8;
}

// Protocol 2 and later, and the magic number of torch.save() before ZIP archives.
bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

bool is_text(std::string_view head) {
  return std::ranges::all_of(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
}

}  // namespace

std::string other_format(std::span<const std::byte> bytes, std::uint64_t size) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kFormatBytes));
  if (size == 0) return "an empty file; download or export it again";
  for (const Format& format : kFormats) {
    if (head.size() >= format.offset && head.substr(format.offset).starts_with(format.magic))
      return fmt::format("{}; {}", format.name, format.advice);
  }
  if (head.starts_with("PK\x03\x04")) return zip(head);
  if (is_safetensors(head, size))
    return fmt::format("a safetensors file, which holds weights and no network; {}", kExportTorch);
  if (is_pickle(head)) return fmt::format("a pickle (PyTorch's older .pt and .pth files); {}", kExportTorch);
  if (is_html(head))
    return "a web page (HTML), not the model that the page shows; download the file itself (its \"raw\" or "
           "\"download\" link)";
  if (begins_like(head, "<?xml")) return "an XML file (perhaps OpenVINO's); give the ONNX file of the model";
  if (std::ranges::all_of(head, [](char c) { return c == 0; }))
    return "nothing but zeros, as a download that was broken off leaves; download it again";
  if (is_text(head)) return "a text file; give the .onnx file of the model";
  return {};
}

}  // namespace pipit::internal::onnx
