#include "layers/cpu/movement/picked_row.h"

#include <algorithm>
#include <cstring>

#include "engine/platform/simd.h"
#include "layers/common/dispatch.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

namespace pipit::internal {

namespace {

template <typename T>
PIPIT_INLINE inline void pick_each(T* to, const T* from, const std::int32_t* places, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[places[i]];
}

using Row = PickedRow::Row;
using Pick = void (*)(std::byte* target, const std::byte* source, const Row& row);

#if PIPIT_ISA_X86
#define PIPIT_WORDS target("avx512f,avx512bw"), always_inline
#define PIPIT_BYTES target("avx512f,avx512bw,avx512vbmi"), always_inline

// Per size of elements: reading a window, picking from two of them and between two pairs, writing. Where one intrinsic
// would do, what zeroes masked elements is used: g++ 12 warns of the header of the others.
template <std::size_t Bytes>
struct Elements;

template <>
struct Elements<1> {
  __attribute__((PIPIT_BYTES)) static __m512i picks(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  __attribute__((PIPIT_BYTES)) static __m512i load(std::uint64_t mask, const std::byte* p) {
    return _mm512_maskz_loadu_epi8(mask, p);
  }
  __attribute__((PIPIT_BYTES)) static void store(std::byte* p, std::uint64_t mask, __m512i v) {
    _mm512_mask_storeu_epi8(p, mask, v);
  }
  __attribute__((PIPIT_BYTES)) static __m512i two(__m512i picks, __m512i a, __m512i b) {
    return _mm512_permutex2var_epi8(a, picks, b);
  }
  __attribute__((PIPIT_BYTES)) static __m512i either(__m512i picks, __m512i ab, __m512i cd) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(picks), ab, cd);
  }
};

template <>
struct Elements<2> {
  static constexpr int kCount = 32;
  __attribute__((PIPIT_WORDS)) static __m512i picks(const std::uint8_t* p) {
    return _mm512_maskz_cvtepu8_epi16(~__mmask32{0}, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  __attribute__((PIPIT_WORDS)) static __m512i load(std::uint64_t mask, const std::byte* p) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), p);
  }
  __attribute__((PIPIT_WORDS)) static void store(std::byte* p, std::uint64_t mask, __m512i v) {
    _mm512_mask_storeu_epi16(p, static_cast<__mmask32>(mask), v);
  }
  __attribute__((PIPIT_WORDS)) static __m512i two(__m512i picks, __m512i a, __m512i b) {
    return _mm512_permutex2var_epi16(a, picks, b);
  }
  __attribute__((PIPIT_WORDS)) static __m512i either(__m512i picks, __m512i ab, __m512i cd) {
    return _mm512_mask_blend_epi16(_mm512_test_epi16_mask(picks, _mm512_set1_epi16(2 * kCount)), ab, cd);
  }
};

template <>
struct Elements<4> {
  static constexpr int kCount = 16;
  __attribute__((PIPIT_WORDS)) static __m512i picks(const std::uint8_t* p) {
    return _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  __attribute__((PIPIT_WORDS)) static __m512i load(std::uint64_t mask, const std::byte* p) {
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
  }
  __attribute__((PIPIT_WORDS)) static void store(std::byte* p, std::uint64_t mask, __m512i v) {
    _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), v);
  }
  __attribute__((PIPIT_WORDS)) static __m512i two(__m512i picks, __m512i a, __m512i b) {
    return _mm512_permutex2var_epi32(a, picks, b);
  }
  __attribute__((PIPIT_WORDS)) static __m512i either(__m512i picks, __m512i ab, __m512i cd) {
    return _mm512_mask_blend_epi32(_mm512_test_epi32_mask(picks, _mm512_set1_epi32(2 * kCount)), ab, cd);
  }
};

template <>
struct Elements<8> {
  static constexpr int kCount = 8;
  __attribute__((PIPIT_WORDS)) static __m512i picks(const std::uint8_t* p) {
    return _mm512_maskz_cvtepu8_epi64(0xFF, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  __attribute__((PIPIT_WORDS)) static __m512i load(std::uint64_t mask, const std::byte* p) {
    return _mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
  }
  __attribute__((PIPIT_WORDS)) static void store(std::byte* p, std::uint64_t mask, __m512i v) {
    _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), v);
  }
  __attribute__((PIPIT_WORDS)) static __m512i two(__m512i picks, __m512i a, __m512i b) {
    return _mm512_permutex2var_epi64(a, picks, b);
  }
  __attribute__((PIPIT_WORDS)) static __m512i either(__m512i picks, __m512i ab, __m512i cd) {
    return _mm512_mask_blend_epi64(_mm512_test_epi64_mask(picks, _mm512_set1_epi64(2 * kCount)), ab, cd);
  }
};

// The loop for elements of more than a byte, and the same with the instructions for bytes.
#define PIPIT_PICK_REGISTERS(NAME, TARGET)                                                                   \
  template <std::size_t Bytes, int Windows>                                                                  \
  __attribute__((target(TARGET))) void NAME(std::byte* target, const std::byte* source, const Row& row) {    \
    using E = Elements<Bytes>;                                                                               \
    const std::uint64_t read = row.read;                                                                     \
    const std::size_t last = row.registers.size() - 1;                                                       \
    for (std::size_t i = 0; i <= last; ++i) {                                                                \
      const PickedRow::Register& at = row.registers[i];                                                      \
      const auto window = [&](std::size_t w) __attribute__((target(TARGET), always_inline)) {                \
        return E::load(read, source + std::int64_t{at.windows[w]} * static_cast<std::int64_t>(Bytes));       \
      };                                                                                                     \
      const __m512i picks = E::picks(at.picks.data());                                                       \
      __m512i picked;                                                                                        \
      if constexpr (Windows == 1) {                                                                          \
        const __m512i all = window(0);                                                                       \
        picked = E::two(picks, all, all);                                                                    \
      } else if constexpr (Windows == 2) {                                                                   \
        picked = E::two(picks, window(0), window(1));                                                        \
      } else {                                                                                               \
        picked = E::either(picks, E::two(picks, window(0), window(1)), E::two(picks, window(2), window(3))); \
      }                                                                                                      \
      E::store(target + 64 * i, i == last ? row.written : ~std::uint64_t{0}, picked);                        \
    }                                                                                                        \
  }
PIPIT_PICK_REGISTERS(pick_words, "avx512f,avx512bw")
PIPIT_PICK_REGISTERS(pick_bytes, "avx512f,avx512bw,avx512vbmi")

template <std::size_t Bytes, int Windows>
Pick of_windows() {
  if constexpr (Bytes == 1) {
    return __builtin_cpu_supports("avx512vbmi") ? &pick_bytes<Bytes, Windows> : nullptr;
  } else {
    return &pick_words<Bytes, Windows>;
  }
}

template <std::size_t Bytes>
Pick choose_pick(std::size_t windows) {
  if (chosen_isa() < Isa::avx512) return nullptr;
  return windows == 1   ? of_windows<Bytes, 1>()
         : windows == 2 ? of_windows<Bytes, 2>()
                        : of_windows<Bytes, 4>();
}
#undef PIPIT_PICK_REGISTERS
#undef PIPIT_WORDS
#undef PIPIT_BYTES
#else
template <std::size_t Bytes>
Pick choose_pick(std::size_t /*windows*/) {
  return nullptr;
}
#endif

std::uint64_t bits(std::int64_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// The first place of each window of `size` elements that all places lie in. Empty where that takes too many.
std::vector<std::int32_t> windows_of(std::span<const std::int32_t> places, std::int64_t size) {
  std::vector<std::int32_t> sorted(places.begin(), places.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int32_t> windows;
  for (const std::int32_t place : sorted) {
    if (!windows.empty() && place < windows.back() + size) continue;
    if (std::ssize(windows) == PickedRow::kMaxWindows) return {};
    windows.push_back(place);
  }
  return windows;
}

}  // namespace

PickedRow::PickedRow(std::span<const std::int32_t> places, DType type)
    : type_(type), count_(std::ssize(places)) {
  constexpr std::int64_t kRegister = 64;
  find_windows(places, kRegister / static_cast<std::int64_t>(dtype_bytes(type)));
  if (pick_ == nullptr) places_.assign(places.begin(), places.end());
}

void PickedRow::find_windows(std::span<const std::int32_t> places, std::int64_t in_register) {
  const auto [low, high] = std::ranges::minmax(places);
  // Windows end with the last place: nothing after it is read.
  const auto last_window =
      static_cast<std::int32_t>(std::max<std::int64_t>(low, std::int64_t{high} - in_register + 1));
  read_ = bits(std::min<std::int64_t>(in_register, std::int64_t{high} - low + 1));
  std::vector<Register> registers;
  std::size_t most = 1;
  for (std::int64_t begin = 0; begin < count_; begin += in_register) {
    const std::int64_t count = std::min(in_register, count_ - begin);
    const auto part = places.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
    const std::vector<std::int32_t> windows = windows_of(part, in_register);
    if (windows.empty()) return;
    most = std::max(most, windows.size());
    Register next{};
    for (std::size_t w = 0; w < kMaxWindows; ++w)
      next.windows[w] = std::min(w < windows.size() ? windows[w] : windows[0], last_window);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto w = std::ranges::upper_bound(windows, part[i]) - windows.begin() - 1;
      next.picks[i] =
          static_cast<std::uint8_t>(w * in_register + part[i] - next.windows[static_cast<std::size_t>(w)]);
    }
    registers.push_back(next);
    written_ = bits(count);
  }
  with_element_size(type_, [&](auto size) { pick_ = choose_pick<decltype(size)::value>(most); });
  if (pick_ != nullptr) registers_ = std::move(registers);
}

void PickedRow::copy(std::byte* target, const std::byte* source) const {
  if (pick_ != nullptr) return pick_(target, source, {registers_, read_, written_});
  with_element_size(type_, [&](auto size) {
    using T = Element<decltype(size)::value>;
    simd<pick_each<T>>(reinterpret_cast<T*>(target), reinterpret_cast<const T*>(source), places_.data(),
                       count_);
  });
}

}  // namespace pipit::internal
