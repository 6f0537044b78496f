#include "engine/platform/isa.h"

#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "engine/platform/isa_build.h"

#if PIPIT_ISA_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pipit::internal {

namespace {

constexpr Isa kIsas[] = {Isa::baseline,   Isa::avx2,       Isa::avxvnni, Isa::avx512,
                         Isa::avx512vnni, Isa::avx512fp16, Isa::amx};
constexpr std::string_view kNames[] = {"baseline",   "avx2",       "avxvnni", "avx512",
                                       "avx512vnni", "avx512fp16", "amx"};

#if PIPIT_ISA_AMX
// Linux gives a process the tile registers when it asks for them (Documentation/arch/x86/xstate.rst), all its threads
// at once, and saves 8 KiB more of a thread from then on that uses them.
bool tile_registers_granted() {
  static const bool granted = [] {
    constexpr long kRequestPermission = 0x1023;
    constexpr long kTileData = 18;
    return os_saves_tiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
}
#endif

// A minimal build has one instruction set, with VPDPBUSD in its registers.
constexpr bool in_build([[maybe_unused]] Isa isa) {
#if !defined(PIPIT_MINIMAL)
  return true;
#elif defined(__AVX512F__)
  return isa == Isa::avx512 || isa == Isa::avx512vnni;
#elif defined(__AVX2__)
  return isa == Isa::avx2 || isa == Isa::avxvnni;
#else
  return isa == Isa::baseline;
#endif
}

// The reason why an instruction set is not available.
std::string_view why_not(Isa isa) {
#if PIPIT_ISA_AMX
  if (isa == Isa::amx && isa_available(Isa::avx512fp16) && cpu_has_amx())
    return "the operating system refuses this process the tile registers";
#endif
  static_cast<void>(isa);
  return "this CPU or build does not have it";
}

}  // namespace

std::span<const Isa> all_isas() {
  return kIsas;
}

std::string_view isa_name(Isa isa) {
  return kNames[static_cast<std::size_t>(isa)];
}

bool isa_available(Isa isa) {
#if PIPIT_ISA_X86
  if (!in_build(isa)) return false;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx512vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return avx2;
    case Isa::avxvnni:
      return avx2 && cpu_has_avxvnni();
    case Isa::avx512:
      return avx512;
    case Isa::avx512vnni:
      return avx512vnni;
    case Isa::avx512fp16:
      return PIPIT_ISA_FP16 != 0 && avx512vnni && cpu_has_avx512fp16();
    case Isa::amx:
#if PIPIT_ISA_AMX
      return isa_available(Isa::avx512fp16) && cpu_has_amx() && tile_registers_granted();
#else
      return false;
#endif
  }
#endif
  return isa == Isa::baseline;
}

Isa find_isa(std::string_view name) {
  std::string expected;
  Isa best = Isa::baseline;
  for (const Isa isa : kIsas) {
    if (name == isa_name(isa) && !isa_available(isa)) fail("PIPIT_ISA={}: {}", name, why_not(isa));
    if (name == isa_name(isa)) return isa;
    if (!isa_available(isa)) continue;
    best = isa;
    expected += expected.empty() ? "" : ", ";
    expected += isa_name(isa);
  }
  if (expected.empty()) fail("this build of pipit has code for another instruction set only than this CPU's");
  if (!name.empty()) fail("PIPIT_ISA={}: this CPU and build have {}", name, expected);
  return best;
}

Isa chosen_isa() {
  static const Isa isa = [] {
    const char* name = std::getenv("PIPIT_ISA");
    return find_isa(name == nullptr ? "" : name);
  }();
  return isa;
}

}  // namespace pipit::internal
