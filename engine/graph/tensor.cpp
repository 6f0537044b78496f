#include "engine/graph/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <new>

#include <fmt/format.h>

namespace pipit::internal {

std::string_view layout_name(Layout layout) {
  return layout == Layout::row_major ? "row_major" : "channels_last";
}

std::size_t TensorDesc::bytes() const {
  const auto count = static_cast<std::size_t>(elements());
  if (dtype_bytes(dtype) == 0) fail("there is no element type {}", static_cast<int>(dtype));
  if (count > std::numeric_limits<std::size_t>::max() / 2 / dtype_bytes(dtype)) {
    fail("a tensor of shape {} and type {} is too large for memory", shape.str(), dtype_name(dtype));
  }
  return count * dtype_bytes(dtype);
}

Strides TensorDesc::strides() const {
  Strides strides{};
  const int rank = shape.rank();
  std::int64_t step = 1;
  const auto place = [&](int axis) {
    strides[static_cast<std::size_t>(axis)] = step;
    if (shape[axis] != 0) step *= shape[axis];
  };
  const bool last = layout == Layout::channels_last && rank >= 3;
  if (last) place(1);
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (!(last && axis == 1)) place(axis);
  }
  return strides;
}

bool TensorDesc::layouts_coincide() const {
  if (shape.rank() < 3 || elements() == 0 || shape[1] == 1) return true;
  for (int axis = 2; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) return false;
  }
  return true;
}

std::string TensorDesc::str() const {
  return fmt::format("{} {}", dtype_name(dtype), shape.str());
}

namespace {

constexpr std::size_t kMappedBytes = std::size_t{256} << 10;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Under AddressSanitizer everything comes from its own allocator, which watches the edges.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMayMap = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kMayMap = false;
#else
constexpr bool kMayMap = true;
#endif
#else
constexpr bool kMayMap = true;
#endif

// Pages of zeros, from a multiple of kHugePage where at least one huge page fits; null when there are none.
void* map_pages(std::size_t bytes) {
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* memory = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (slack == 0) return memory;
  auto* const begin = static_cast<std::byte*>(memory);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < slack) munmap(begin + before + bytes, slack - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // only a wish
  return begin + before;
}

}  // namespace

void HostBuffer::Free::operator()(std::byte* p) const {
  if (mapped != 0) {
    munmap(p, mapped);
  } else {
    ::operator delete (p, std::align_val_t{kAlignment});
  }
}

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  const bool map = kMayMap && bytes >= kMappedBytes;
  // Whole cache lines, so that vector kernels may read a full line at the tail; mappings are of whole pages.
  const std::size_t unit = map ? static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE)) : kAlignment;
  const std::size_t rounded = (bytes / unit + 1) * unit;
  void* memory =
      map ? map_pages(rounded) : ::operator new (rounded, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) fail("out of memory: {} bytes were not to be had", bytes);
  data_ = std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(memory), Free{map ? rounded : 0});
}

HostBuffer zeroed_host_buffer(std::size_t bytes) {
  HostBuffer buffer(bytes);
  std::memset(buffer.data(), 0, bytes);
  return buffer;
}

Tensor Tensor::clone() const {
  Tensor copy(desc_);
  std::memcpy(copy.buffer_.data(), buffer_.data(), desc_.bytes());
  return copy;
}

namespace {

template <std::size_t Bytes>
void copy_strided(const TensorDesc& from, const std::byte* source, const TensorDesc& to, std::byte* target) {
  const Strides si = from.strides();
  const Strides so = to.strides();
  std::array<std::int64_t, kMaxRank> index{};
  const int last = from.shape.rank() - 1;
  const std::int64_t length = from.shape[last];
  const auto in_step = static_cast<std::size_t>(si[static_cast<std::size_t>(last)]) * Bytes;
  const auto out_step = static_cast<std::size_t>(so[static_cast<std::size_t>(last)]) * Bytes;
  for (std::int64_t n = from.elements(); n > 0; n -= length) {
    std::int64_t i = 0;
    std::int64_t o = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(last); ++d) {
      i += index[d] * si[d];
      o += index[d] * so[d];
    }
    const std::byte* in = source + static_cast<std::size_t>(i) * Bytes;
    std::byte* out = target + static_cast<std::size_t>(o) * Bytes;
    for (std::int64_t l = 0; l < length; ++l) std::memcpy(out + l * out_step, in + l * in_step, Bytes);
    for (int d = last - 1; d >= 0; --d) {
      if (++index[static_cast<std::size_t>(d)] < from.shape[d]) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
}

}  // namespace

Tensor to_layout(const ConstTensorView& source, Layout layout) {
  TensorDesc desc = source.desc;
  desc.layout = layout;
  Tensor result(desc);
  std::byte* target = result.view().data;
  if (layout == source.desc.layout || desc.layouts_coincide()) {
    std::memcpy(target, source.data, desc.bytes());
    return result;
  }
  switch (dtype_bytes(desc.dtype)) {
    case 1:
      copy_strided<1>(source.desc, source.data, desc, target);
      break;
    case 2:
      copy_strided<2>(source.desc, source.data, desc, target);
      break;
    case 4:
      copy_strided<4>(source.desc, source.data, desc, target);
      break;
    default:
      copy_strided<8>(source.desc, source.data, desc, target);
  }
  return result;
}

}  // namespace pipit::internal
