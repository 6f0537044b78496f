// libFuzzer target: bytes of a model -> graph, and INT8 layers where it is quantized. Only pipit::Error may come out.
//   Seeds: small .onnx files. Run with -rss_limit_mb=2048 -max_len=65536.
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/error.h"
#include "layers/passes/passes.h"
#include "models/onnx/read/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipit;
  using namespace pipit::internal;
  // Small enough for hundreds of runs per second; the checks are the same as with the default limit.
  OnnxOptions options;
  options.max_folded_bytes = std::size_t{1} << 18;
  // What a test directory would bind: a shape for operators that ask for one.
  const std::int64_t dims[] = {1, -1};
  const Tensor shape = Tensor::from<std::int64_t>(Shape{2}, dims);
  options.bind_input = [&](const std::string& /*input*/) { return &shape; };
  try {
    const OnnxModel model = parse_onnx(std::as_bytes(std::span(data, size)), {}, options);
    if (is_quantized(model.graph)) fuse_quantized(fold_dequantized(model.graph).graph);
  } catch (const Error&) {
  }
  return 0;
}
