#include "quant/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fstream>
#include <memory>
#include <vector>

namespace pipit::internal {

namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    if (!state_ || XXH3_128bits_reset(state_.get()) != XXH_OK) fail("no memory for a hash");
  }
  void add(const void* data, std::size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
  }
  // With its length, so that "ab" "c" differs from "a" "bc".
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    add(text.data(), text.size());
  }
  void add(std::int64_t value) { add(&value, sizeof value); }
  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace

std::string hash_bytes(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.add(bytes.data(), bytes.size());
  return hasher.hex();
}

std::string hash_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be opened", path.string());
  Hasher hasher;
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hasher.add(buffer.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) fail("{}: cannot be read", path.string());
  return hasher.hex();
}

std::string hash_model(const Graph& graph) {
  Hasher hasher;
  for (const Node& node : graph.nodes()) {
    const LayerPtr for_one = node.layer->for_samples(1);
    hasher.add((for_one ? *for_one : *node.layer).identity());
    for (const ValueId id : node.inputs) {
      hasher.add(std::int64_t{id});
      if (id == kNoValue || !graph.value(id).is_constant()) continue;
      const Value& value = graph.value(id);
      if (!value.constant) fail("constant '{}' was released before the model was hashed", value.name);
      // Integers are shapes and axes: the batch would show in them.
      if (value.desc.dtype != DType::f32) continue;
      hasher.add(value.desc.shape.str());
      hasher.add(value.constant->view().data, value.desc.bytes());
    }
  }
  return hasher.hex();
}

}  // namespace pipit::internal
