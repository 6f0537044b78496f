// The instruction sets that CPU kernels are written for. One binary holds them all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pipit::internal {

/// Each contains what stands before it in its family: avx2 < avxvnni and avx2 < avx512 < avx512vnni < avx512fp16 < amx.
enum class Isa : std::uint8_t {
  baseline,    ///< what the compiler assumes of every CPU
  avx2,        ///< AVX2 and FMA
  avxvnni,     ///< and VPDPBUSD on 256 bits (VEX)
  avx512,      ///< AVX-512 F, BW, DQ and VL
  avx512vnni,  ///< and VPDPBUSD on 512 bits
  avx512fp16,  ///< and arithmetic on halves
  amx,         ///< and TDPBUSD on tile registers
};

/// All of them, in the order of the enumeration.
std::span<const Isa> all_isas();
/// The name that PIPIT_ISA takes, for example "avx512vnni".
std::string_view isa_name(Isa isa);
/// True when this build contains the instruction set and this CPU (and its operating system) runs it. Asking for amx
/// asks Linux for the tile registers, for all threads of the process.
bool isa_available(Isa isa);
/// The instruction set of that name, or for an empty name the best available. Throws Error when there is no such
/// name or this CPU or build lacks it.
Isa find_isa(std::string_view name);
/// find_isa of the environment variable PIPIT_ISA (unset or empty: the best available). Chosen once.
Isa chosen_isa();

}  // namespace pipit::internal
