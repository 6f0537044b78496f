#include "layers/cuda/conv/chain/unit_layout.h"

#include <cstring>

namespace pipit::internal::cuda {

int unit_output(bool stored, int element_bytes, int column) {
  const int lane = column / 2 % 4, index = column / 8 * 2 + column % 2;
  if (stored) {
    const int neighbours = 16 / element_bytes;  // that 16 bytes hold
    return index / neighbours * 4 * neighbours + lane * neighbours + index % neighbours;
  }
  return element_bytes == 2 ? column : index / 4 * 16 + lane * 4 + index % 4;
}

int swizzled_byte(int row, int byte, int row_bytes) {
  const int at = row * row_bytes + byte;
  return at ^ (at >> 3 & (row_bytes == 128 ? 0x70 : 0x30));
}

void pack_unit(const std::byte* weights, int in_c, int taps, int tap, int first_channel, int first_output,
               bool stored, int element_bytes, std::byte* to, int channels) {
  const int row_bytes = channels * element_bytes;
  for (int column = 0; column < kUnitChannels; ++column) {
    const std::int64_t output = first_output + unit_output(stored, element_bytes, column);
    const std::byte* from =
        weights + ((output * taps + tap) * in_c + first_channel) * std::int64_t{element_bytes};
    for (int byte = 0; byte < row_bytes; byte += 16)
      std::memcpy(to + swizzled_byte(column, byte, row_bytes), from + byte, 16);
  }
}

void pack_unit_constants(const std::byte* values, bool stored, int element_bytes, std::byte* to) {
  for (int lane = 0; lane < 4; ++lane) {
    for (int index = 0; index < 16; ++index) {
      std::memcpy(to + (index / 4 * 16 + lane * 4 + index % 4) * 4,
                  values + unit_output(stored, element_bytes, unit_column(lane, index)) * 4, 4);
    }
  }
}

}  // namespace pipit::internal::cuda
