#include "models/embedded.h"

#include "engine/base/embed.h"
#include "engine/base/error.h"

// The paths are set by models/CMakeLists.txt.
#if !defined(PIPIT_MINIMAL)
PIPIT_EMBED(pipit_resnet20, PIPIT_RESNET20_PATH)
#endif
PIPIT_EMBED(pipit_imagenet_labels, PIPIT_IMAGENET_LABELS_PATH)
PIPIT_EMBED(pipit_wheel_tensors, PIPIT_WHEEL_TENSORS_PATH)

namespace pipit::internal {

namespace {

std::string_view text(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::span<const std::byte> resnet20_cifar10_onnx() {
#if defined(PIPIT_MINIMAL)
  fail_unsupported(
      "this build of pipit has no built-in model (PIPIT_MINIMAL): give the file resnet20-cifar10.onnx");
#else
  return std::as_bytes(std::span(pipit_resnet20_begin, pipit_resnet20_end));
#endif
}

std::string_view imagenet_labels() {
  return text(pipit_imagenet_labels_begin, pipit_imagenet_labels_end);
}

std::string_view wheel_tensors_script() {
  return text(pipit_wheel_tensors_begin, pipit_wheel_tensors_end);
}

}  // namespace pipit::internal
