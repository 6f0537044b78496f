#include "models/onnx/read/window_attributes.h"

#include <fmt/format.h>

#include <algorithm>

namespace pipit::internal::onnx {

namespace {

std::vector<std::int64_t> read_kernel(NodeContext& node, std::span<const std::int64_t> weights,
                                      std::size_t count) {
  const auto attribute = node.attributes().integers("kernel_shape");
  if (!attribute && weights.empty()) fail("attribute 'kernel_shape' is missing");
  const std::span<const std::int64_t> kernel = attribute ? std::span(*attribute) : weights;
  if (kernel.size() != count) {
    fail("a kernel of {} dimensions for input {}", kernel.size(), node.input_shape(0).str());
  }
  if (!weights.empty() && !std::equal(kernel.begin(), kernel.end(), weights.begin(), weights.end())) {
    fail("attribute 'kernel_shape' is {}, but the weights' kernel is {}", fmt::join(kernel, "x"),
         fmt::join(weights, "x"));
  }
  return {kernel.begin(), kernel.end()};
}

AutoPad read_auto_pad(NodeContext& node) {
  const std::string text = node.attributes().text("auto_pad", "NOTSET");
  if (text == "NOTSET") return AutoPad::notset;
  if (text == "SAME_UPPER") return AutoPad::same_upper;
  if (text == "SAME_LOWER") return AutoPad::same_lower;
  if (text == "VALID") return AutoPad::valid;
  fail("attribute 'auto_pad' is '{}', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", text);
}

}  // namespace

std::vector<std::int64_t> read_list(NodeContext& node, const char* name, std::size_t count,
                                    std::int64_t fallback) {
  auto values = node.attributes().integers(name);
  if (!values) return std::vector<std::int64_t>(count, fallback);
  if (values->size() != count) {
    fail("attribute '{}' has {} numbers, expected {} for input {}", name, values->size(), count,
         node.input_shape(0).str());
  }
  return *std::move(values);
}

UnresolvedWindow read_unresolved_window(NodeContext& node, std::span<const std::int64_t> weights_kernel,
                                        const char* layer) {
  const Shape& input = node.input_shape(0);
  const int rank = input.rank() - 2;
  if (rank < 1 || rank > kMaxSpatial) {
    fail_unsupported("input {}: batch, channels and 1 to {} spatial dimensions are supported", input.str(),
                     kMaxSpatial);
  }
  const auto count = static_cast<std::size_t>(rank);
  Window window;
  window.rank = rank;
  std::ranges::copy(read_kernel(node, weights_kernel, count), window.kernel.begin());
  std::ranges::copy(read_list(node, "strides", count, 1), window.stride.begin());
  std::ranges::copy(read_list(node, "dilations", count, 1), window.dilation.begin());
  const std::vector<std::int64_t> pads = read_list(node, "pads", 2 * count, 0);
  std::copy_n(pads.begin(), count, window.pad_begin.begin());
  std::copy_n(pads.begin() + rank, count, window.pad_end.begin());
  window.ceil_mode = node.attributes().flag("ceil_mode", false);
  check_window(window, layer);

  const AutoPad auto_pad = read_auto_pad(node);
  if (auto_pad != AutoPad::notset && std::ranges::any_of(pads, [](std::int64_t pad) { return pad != 0; })) {
    fail("attributes 'auto_pad' and 'pads' ({}) contradict each other", fmt::join(pads, ","));
  }
  return {window, auto_pad};
}

Window read_window(NodeContext& node, std::span<const std::int64_t> weights_kernel, const char* layer) {
  const auto [window, auto_pad] = read_unresolved_window(node, weights_kernel, layer);
  return resolve_auto_pad(window, auto_pad, node.input_shape(0).dims().subspan(2));
}

}  // namespace pipit::internal::onnx
