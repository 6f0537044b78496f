#include "layers/cpu/quantized/winograd_int8.h"

#include "engine/platform/isa_build.h"

namespace pipit::internal {

namespace {

// s G g, see winograd_int8.h: a column of three taps becomes six.
void transform(const int* g, int step, int* u, int u_step) {
  const int a = g[0];
  const int b = g[step];
  const int c = g[2 * step];
  u[0] = a;
  u[u_step] = -a - b - c;
  u[2 * u_step] = b - a - c;
  u[3 * u_step] = a + 2 * b + 4 * c;
  u[4 * u_step] = a - 2 * b + 4 * c;
  u[5 * u_step] = c;
}

}  // namespace

void transform_byte_filters(const std::int8_t* g, std::int64_t count, std::int16_t* u, std::int64_t plane) {
  for (std::int64_t f = 0; f < count; ++f, g += 9) {
    int taps[9];
    int half[6 * 3];
    int whole[6 * 6];
    for (int t = 0; t < 9; ++t) taps[t] = g[t];
    for (int j = 0; j < 3; ++j) transform(taps + j, 3, half + j, 3);
    for (int i = 0; i < 6; ++i) transform(half + 3 * i, 1, whole + 6 * i, 1);
    for (int i = 0; i < 36; ++i) u[i * plane + f] = static_cast<std::int16_t>(whole[i]);
  }
}

const ByteWinograd* byte_winograd(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512vnni) return &byte_winograd_avx512vnni;
  if (isa >= Isa::avx2) return &byte_winograd_avx2;
#endif
  static_cast<void>(isa);
  return nullptr;
}

}  // namespace pipit::internal
