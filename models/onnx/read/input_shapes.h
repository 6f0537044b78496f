// Shapes of graph inputs: what the file fixes, and what its reader is told of the rest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/onnx/read/reader.h"
#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// An extent is open where the file gives it none, a name, or -1. A name stands for one extent throughout the file,
/// except "?", which exporters write for any.
class InputShapes {
 public:
  /// `inputs` are the graph's, without initializers; both must outlive this. Throws Error where options.shapes or
  /// options.dims name what is not there, and where they contradict each other or the file.
  /// `image_size`: "[height, width]", which Ultralytics writes into metadata; for the message of refuse_open().
  InputShapes(std::vector<const onnx_pb::ValueInfoProto*> inputs, const OnnxOptions& options,
              std::string image_size = {});

  /// nullopt where the extents are open and nothing gives them: refuse_open() tells of it. Throws Error on extents that
  /// are not valid, UnsupportedError on an input that is not a tensor.
  std::optional<Shape> resolve(const onnx_pb::ValueInfoProto& input);

  /// True when the file leaves dimension 0 of some input that was resolved open.
  bool symbolic_batch() const { return symbolic_batch_; }
  /// Throws Error listing every extent that resolve() missed, with the options that give it.
  void refuse_open() const;

 private:
  void bind(const onnx_pb::ValueInfoProto& input, const Shape& given);
  std::optional<Shape> given(const onnx_pb::ValueInfoProto& input) const;
  void check_symbols() const;
  std::string shape_to_give(const onnx_pb::ValueInfoProto& input, std::size_t missing) const;

  std::vector<const onnx_pb::ValueInfoProto*> inputs_;
  const OnnxOptions& options_;
  std::string image_size_;
  std::map<std::string, std::int64_t> extents_;  // by name
  std::vector<std::string> open_;                // one message per input
  bool symbolic_batch_ = false;
};

}  // namespace pipit::internal::onnx
