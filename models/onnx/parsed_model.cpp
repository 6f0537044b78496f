#include "models/onnx/parsed_model.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "engine/base/error.h"
#include "models/onnx/other_formats.h"

namespace pipit::internal::onnx {

namespace {

namespace io = google::protobuf::io;

// protobuf counts the bytes of a message in an int.
constexpr std::uint64_t kMaxMessageBytes = std::numeric_limits<int>::max();

// Tags (field number * 8 + wire type 2) of the fields that are taken apart.
constexpr std::uint32_t kModelGraph = onnx_pb::ModelProto::kGraphFieldNumber << 3 | 2;
constexpr std::uint32_t kGraphInitializer = onnx_pb::GraphProto::kInitializerFieldNumber << 3 | 2;
constexpr std::uint32_t kTensorRawData = onnx_pb::TensorProto::kRawDataFieldNumber << 3 | 2;

struct Range {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// Where bytes that memory has no room for are an error of the stream: a coded stream that an exception has gone through
// writes what it still holds to nowhere when it ends.
class GrowingBytes final : public io::ZeroCopyOutputStream {
 public:
  explicit GrowingBytes(std::string& bytes) : stream_(&bytes) {}
  bool Next(void** data, int* size) override {
    try {
      return stream_.Next(data, size);
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  void BackUp(int count) override { stream_.BackUp(count); }
  std::int64_t ByteCount() const override { return stream_.ByteCount(); }

 private:
  io::StringOutputStream stream_;
};

// The part of a message that the generated parser reads. All fields are written to one stream: opening a string for
// writing fills all the room that it has.
class Rest {
 public:
  // Copies the field whose tag was just read. False when it is cut short, or of a kind that ONNX does not use
  // (groups).
  bool copy(std::uint32_t tag, io::CodedInputStream& in) {
    out_.WriteTag(tag);
    std::uint64_t wide = 0;
    std::uint32_t narrow = 0;
    switch (tag & 7U) {
      case 0:
        if (!in.ReadVarint64(&wide)) return false;
        out_.WriteVarint64(wide);
        return true;
      case 1:
        if (!in.ReadLittleEndian64(&wide)) return false;
        out_.WriteLittleEndian64(wide);
        return true;
      case 2:
        if (!in.ReadVarint32(&narrow) || narrow > kMaxMessageBytes) return false;
        if (!in.ReadString(&field_, static_cast<int>(narrow))) return false;
        out_.WriteVarint32(narrow);
        out_.WriteString(field_);
        return true;
      case 5:
        if (!in.ReadLittleEndian32(&narrow)) return false;
        out_.WriteLittleEndian32(narrow);
        return true;
      default:
        return false;
    }
  }
  template <typename Message>
  bool merge_into(Message& message) {
    out_.Trim();
    if (out_.HadError()) throw std::bad_alloc();
    return message.MergeFromString(bytes_);
  }

 private:
  std::string bytes_;
  GrowingBytes stream_{bytes_};
  io::CodedOutputStream out_{&stream_};
  std::string field_;
};

// Calls field(tag) for every field of the message of which the length comes next. False when the message is broken.
template <typename Field>
bool for_each_field(io::CodedInputStream& in, Field field) {
  std::uint32_t length = 0;
  if (!in.ReadVarint32(&length) || length > kMaxMessageBytes) return false;
  const auto size = static_cast<int>(length);
  if (const int left = in.BytesUntilLimit(); size > left) return false;
  const io::CodedInputStream::Limit outer = in.PushLimit(size);
  for (std::uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    if (!field(tag)) return false;
  }
  if (!in.ConsumedEntireMessage()) return false;
  in.PopLimit(outer);
  return true;
}

bool split_tensor(io::CodedInputStream& in, onnx_pb::TensorProto& tensor, std::optional<Range>& raw) {
  Rest rest;
  const bool whole = for_each_field(in, [&](std::uint32_t tag) {
    if (tag != kTensorRawData) return rest.copy(tag, in);
    std::uint32_t size = 0;
    if (!in.ReadVarint32(&size) || size > kMaxMessageBytes) return false;
    raw =
        Range{static_cast<std::uint64_t>(in.CurrentPosition()), size};  // as in protobuf, the last one counts
    return in.Skip(static_cast<int>(size));
  });
  return whole && rest.merge_into(tensor);
}

bool split_graph(io::CodedInputStream& in, onnx_pb::GraphProto& graph,
                 std::vector<std::optional<Range>>& raw) {
  Rest rest;
  const bool whole = for_each_field(in, [&](std::uint32_t tag) {
    if (tag != kGraphInitializer) return rest.copy(tag, in);
    return split_tensor(in, *graph.add_initializer(), raw.emplace_back());
  });
  return whole && rest.merge_into(graph);
}

// The position of `in` counts from the start of the model. A second graph is merged into the first.
bool split_model(io::CodedInputStream& in, onnx_pb::ModelProto& model,
                 std::vector<std::optional<Range>>& raw) {
  Rest rest;
  for (std::uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    if (!(tag == kModelGraph ? split_graph(in, *model.mutable_graph(), raw) : rest.copy(tag, in)))
      return false;
  }
  return in.ConsumedEntireMessage() && rest.merge_into(model);
}

// `read` copies bytes of the model from an offset.
template <typename Read>
ParsedModel parse(io::ZeroCopyInputStream& stream, std::uint64_t size, Read read) {
  io::CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(size));
  ParsedModel model;
  std::vector<std::optional<Range>> ranges;
  const bool whole = split_model(in, model.proto, ranges);
  if (!whole || !model.proto.has_graph()) {
    // No model is refused for how it begins: only what could not be read is asked what else it is.
    std::vector<std::byte> head(std::min<std::uint64_t>(size, kFormatBytes));
    read(0, head);
    const std::string other = other_format(head, size);
    if (!other.empty()) fail("not an ONNX model, but {}", other);
    if (!whole) fail("not an ONNX model, or cut short");
  }
  for (const std::optional<Range>& range : ranges) {
    model.raw.emplace_back();
    if (!range) continue;
    model.raw.back() = RawData{
        range->size, [read, offset = range->offset](std::span<std::byte> target) { read(offset, target); }};
  }
  return model;
}

class File {
 public:
  explicit File(const std::filesystem::path& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail("cannot be opened for reading: {}", std::strerror(errno));
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }

  void read(std::uint64_t offset, std::span<std::byte> target) const {
    while (!target.empty()) {
      const ssize_t got = pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        fail("{} bytes at offset {} cannot be read: {}", target.size(), offset, std::strerror(errno));
      if (got == 0)
        fail("the file has become shorter than {} bytes while it was read", offset + target.size());
      offset += static_cast<std::uint64_t>(got);
      target = target.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  int descriptor_;
};

}  // namespace

ParsedModel parse_model(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail("{}", error ? error.message() : "there is no such file");
  if (std::filesystem::is_directory(path, error)) fail("is a folder; give the .onnx file in it");
  if (!std::filesystem::is_regular_file(path, error)) fail("is not a regular file");
  const auto file = std::make_shared<const File>(path);
  struct stat status {};
  if (fstat(file->descriptor(), &status) != 0) fail("{}", std::strerror(errno));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > kMaxMessageBytes) {
    fail("{} bytes; a file of protocol buffers holds at most {} (export the weights as external data)", size,
         kMaxMessageBytes);
  }
  io::FileInputStream stream(file->descriptor());
  return parse(stream, size,
               [file](std::uint64_t offset, std::span<std::byte> target) { file->read(offset, target); });
}

ParsedModel parse_model(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessageBytes)
    fail("{} bytes; at most {} can be read", bytes.size(), kMaxMessageBytes);
  io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return parse(stream, bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> target) {
    if (!target.empty()) std::memcpy(target.data(), bytes.data() + offset, target.size());
  });
}

}  // namespace pipit::internal::onnx
