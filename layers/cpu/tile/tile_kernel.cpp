#include "layers/cpu/tile/tile_kernel.h"

#include "layers/cpu/tile/tile_isa.h"

namespace pipit::internal {

const TileKernels& f32_tiles(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512) return f32_tiles_avx512;
  if (isa >= Isa::avx2) return f32_tiles_avx2;
#endif
  static_cast<void>(isa);
  return f32_tiles_baseline;
}

const TileKernels& u8s8_tiles(Isa isa) {
#if PIPIT_ISA_X86
  switch (isa) {
    case Isa::amx:
#if PIPIT_ISA_AMX
      return u8s8_tiles_amx;
#endif
    case Isa::avx512fp16:
    case Isa::avx512vnni:
      return u8s8_tiles_avx512vnni;
    case Isa::avx512:
      return u8s8_tiles_avx512;
    case Isa::avxvnni:
      return u8s8_tiles_avxvnni;
    case Isa::avx2:
      return u8s8_tiles_avx2;
    case Isa::baseline:
      break;
  }
#endif
  static_cast<void>(isa);
  return u8s8_tiles_baseline;
}

double amx_cost(double runs, std::int64_t run) {
  // On Emerald Rapids: what AMX takes for as many steps as it multiplies at a time, and what storing sums and
  // configuring its registers takes in addition.
  constexpr double kAtATime = 3;
  constexpr double kFinish = 4;
  return kAtATime * runs * static_cast<double>(run) / amx_steps(run) + kFinish;
}

namespace {

bool amx_is_faster(std::int64_t segments, std::int64_t run) {
  return amx_cost(static_cast<double>(segments), run) <= static_cast<double>(segments * run);
}

}  // namespace

const TileKernels& u8s8_tiles_for(std::int64_t segments, std::int64_t run, Isa isa) {
  return u8s8_tiles(isa == Isa::amx && !amx_is_faster(segments, run) ? Isa::avx512vnni : isa);
}

const TileKernels& bf16_tiles_for(std::int64_t segments, std::int64_t run, Isa isa) {
  return *bf16_tiles(isa == Isa::amx && !amx_is_faster(segments, run) ? Isa::avx512vnni : isa);
}

const TileKernels* s16_tiles(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512vnni) return &s16_tiles_avx512vnni;
  if (isa >= Isa::avx2) return &s16_tiles_avx2;
#endif
  static_cast<void>(isa);
  return nullptr;
}

const TileKernels* f16_tiles(Isa isa) {
#if PIPIT_ISA_FP16
  if (isa >= Isa::avx512fp16) return &f16_tiles_avx512fp16;
#endif
  static_cast<void>(isa);
  return nullptr;
}

const TileKernels* bf16_tiles(Isa isa) {
#if PIPIT_ISA_BF16
  static const bool multiplies = cpu_has_avx512bf16();
  if (isa < Isa::avx512vnni || !multiplies) return nullptr;
#if PIPIT_ISA_AMX
  static const bool in_tiles = cpu_has_amx_bf16();
  if (isa == Isa::amx && in_tiles) return &bf16_tiles_amx;
#endif
  return &bf16_tiles_avx512bf16;
#else
  static_cast<void>(isa);
  return nullptr;
#endif
}

const TileKernels* stored_tiles(DType stored) {
  return stored == DType::f16 ? f16_tiles() : stored == DType::bf16 ? bf16_tiles() : nullptr;
}

void run_tile_row(const TileKernels& kernels, const TileCall& call, std::int64_t pixels) {
  const TilePairs pairs(kernels, pixels);
  const int vectors = kernels.vectors(call.columns);
  TileCall part = call;
  const auto place = [&](int slot, std::int64_t pixel) {
    part.a[slot] = call.a[0] + pixel * call.a_stride;
    part.c[slot] = call.c[0] + pixel * call.c_stride;
    if (call.residual[0] != nullptr) part.residual[slot] = call.residual[0] + pixel * call.residual_stride;
    if (call.pixel_scale[0] != nullptr)
      part.pixel_scale[slot] = call.pixel_scale[0] + pixel * call.pixel_scale_step;
  };
  for (std::int64_t i = 0; i < pairs.count; ++i) {
    const TilePairs::Pair pair = pairs.pair(i);
    for (int slot = 0; slot < pair.strips; ++slot) place(slot, pair.start[slot]);
    kernels.tile[pair.strips - 1][pair.size - 1][vectors - 1](part);
    part.prefetch += call.prefetch_step * call.run * call.segment_count;
  }
  kernels.done();
}

}  // namespace pipit::internal
