#include "engine/graph/shared_buffer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pipit::internal {

namespace {

// Smaller buffers are not shared: the search would cost more than the memory that it saves.
constexpr std::size_t kMinSharedBytes = std::size_t{1} << 14;

// A digest of the size and some of the bytes. Buffers with equal digests are compared.
std::size_t digest_of(const HostBuffer& buffer) {
  constexpr std::size_t kSamples = 64, kSampleBytes = 32;
  std::size_t digest = buffer.bytes();
  const std::size_t step = (buffer.bytes() - kSampleBytes) / kSamples;
  for (std::size_t i = 0; i <= kSamples; ++i) {
    const std::string_view sample(reinterpret_cast<const char*>(buffer.data() + i * step), kSampleBytes);
    digest = digest * 1099511628211U ^ std::hash<std::string_view>()(sample);
  }
  return digest;
}

class Buffers {
 public:
  std::shared_ptr<const HostBuffer> held_or_taken(std::shared_ptr<const HostBuffer> buffer) {
    const std::size_t digest = digest_of(*buffer);
    const std::lock_guard lock(mutex_);
    std::vector<std::weak_ptr<const HostBuffer>>& alike = buffers_[digest];
    std::erase_if(alike, [](const auto& other) { return other.expired(); });
    for (const auto& other : alike) {
      std::shared_ptr<const HostBuffer> held = other.lock();
      const bool equal = held != nullptr && held->bytes() == buffer->bytes() &&
                         std::memcmp(held->data(), buffer->data(), buffer->bytes()) == 0;
      if (equal) return held;
    }
    alike.push_back(buffer);
    if (++added_ % kSweep == 0) sweep();
    return buffer;
  }

 private:
  static constexpr std::size_t kSweep = 1024;  // additions after which what is gone is forgotten

  void sweep() {
    std::erase_if(buffers_, [](const auto& entry) {
      return std::all_of(entry.second.begin(), entry.second.end(), [](const auto& b) { return b.expired(); });
    });
  }

  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<std::weak_ptr<const HostBuffer>>> buffers_;
  std::size_t added_ = 0;
};

Buffers& buffers() {
  static Buffers* all = new Buffers;  // lives as long as anything that may be destroyed after it
  return *all;
}

thread_local SharedBuffer::CountedOnce* counted = nullptr;

}  // namespace

SharedBuffer::CountedOnce::CountedOnce() {
  counted = this;
}

SharedBuffer::CountedOnce::~CountedOnce() {
  counted = nullptr;
}

std::size_t SharedBuffer::bytes() const {
  if (buffer_ == nullptr) return 0;
  const bool again = counted != nullptr && !counted->seen_.insert(buffer_.get()).second;
  return again ? 0 : buffer_->bytes();
}

SharedBuffer::SharedBuffer(HostBuffer buffer) {
  auto taken = std::make_shared<const HostBuffer>(std::move(buffer));
  buffer_ = taken->bytes() < kMinSharedBytes ? std::move(taken) : buffers().held_or_taken(std::move(taken));
}

}  // namespace pipit::internal
