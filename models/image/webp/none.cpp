// Builds without libwebp.
#include "engine/base/error.h"
#include "models/image/formats.h"

namespace pipit::internal::detail {

Image decode_webp(const Source& source, const DecodeLimits& /*limits*/) {
  fail_unsupported(
      "{}: WebP is not read by this build, which is without libwebp; convert it to JPEG, PNG or BMP",
      source.name);
}

std::string webp_library() {
  return {};
}

}  // namespace pipit::internal::detail
