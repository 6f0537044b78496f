// libFuzzer target: bytes of an array or of an archive of arrays -> tensors. Only pipit::Error may come out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/error.h"
#include "models/npy.h"
#include "models/npz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipit;
  using namespace pipit::internal;
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const auto limit = [](const std::string& name) -> std::optional<std::size_t> {
    if (name == "unwanted") return std::nullopt;
    return std::size_t{1} << 16;
  };
  try {
    if (is_npz(content)) {
      parse_npz(content, "fuzz.npz", limit);
    } else {
      parse_npy(content, "fuzz.npy");
    }
  } catch (const Error&) {
  }
  return 0;
}
