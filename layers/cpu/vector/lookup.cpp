#include "layers/cpu/vector/lookup.h"

#include "engine/platform/isa.h"
#include "engine/platform/isa_build.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

namespace pipit::internal {

namespace {

using Table = std::array<std::uint8_t, 256>;

void lookup_each(const Table& table, const std::byte* x, std::byte* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = static_cast<std::byte>(table[static_cast<std::size_t>(x[i])]);
}

#if PIPIT_ISA_X86
#define PIPIT_VBMI target("avx512f,avx512bw,avx512vbmi")

// The table in four registers: VPERMI2B looks seven bits up in two of them, the eighth chooses between the halves.
struct Registers {
  __m512i part[4];
};

__attribute__((PIPIT_VBMI, always_inline)) inline __m512i look_up(const Registers& table, __m512i x) {
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x),
                                _mm512_permutex2var_epi8(table.part[0], x, table.part[1]),
                                _mm512_permutex2var_epi8(table.part[2], x, table.part[3]));
}

__attribute__((PIPIT_VBMI)) void lookup_registers(const Table& table, const std::byte* x, std::byte* y,
                                                  std::int64_t count) {
  constexpr std::int64_t kBytes = 64;
  Registers registers;
  for (int p = 0; p < 4; ++p) registers.part[p] = _mm512_loadu_si512(table.data() + p * kBytes);
  std::int64_t i = 0;
  for (; i + kBytes <= count; i += kBytes)
    _mm512_storeu_si512(y + i, look_up(registers, _mm512_loadu_si512(x + i)));
  if (i == count) return;
  const __mmask64 rest = ~std::uint64_t{0} >> (kBytes - (count - i));
  _mm512_mask_storeu_epi8(y + i, rest, look_up(registers, _mm512_maskz_loadu_epi8(rest, x + i)));
}
#undef PIPIT_VBMI
#endif

using Lookup = void (*)(const Table&, const std::byte*, std::byte*, std::int64_t);

Lookup choose() {
#if PIPIT_ISA_X86
  if (chosen_isa() >= Isa::avx512 && __builtin_cpu_supports("avx512vbmi")) return lookup_registers;
#endif
  return lookup_each;
}

}  // namespace

void lookup_span(const Table& table, const std::byte* x, std::byte* y, std::int64_t count) {
  static const Lookup lookup = choose();
  lookup(table, x, y, count);
}

}  // namespace pipit::internal
