#include "layers/cpu/quantized/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pipit::internal {

namespace {

std::int64_t blocks_of(std::int64_t count) {
  return (count + kPackedBlock - 1) / kPackedBlock;
}

}  // namespace

PackedWeights::PackedWeights(const WeightFormat& format, const Tensor& weights, const Tensor& scales,
                             std::int64_t depth)
    : format_(format),
      kernels_(packed_kernels()),
      panels_(f32_tiles(), depth, weights.shape()[0]),
      group_(format.group(depth)),
      groups_(format.groups(depth)),
      blocks_(blocks_of(depth)) {
  const std::int64_t width = panels_.bytes() / (4 * panels_.steps);  // of all panels together
  HostBuffer packed = zeroed_host_buffer(static_cast<std::size_t>(blocks_ * block_bytes(width)));
  HostBuffer all_scales = zeroed_host_buffer(static_cast<std::size_t>(groups_ * width) * sizeof(float));
  for (std::int64_t p = 0; p < panels_.count(); ++p)
    pack(p, weights.view().data, scales.values<float>().data(), packed.data() + panel_offset(p),
         reinterpret_cast<float*>(all_scales.data()) + scales_offset(p));
  packed_ = SharedBuffer(std::move(packed));
  scales_ = SharedBuffer(std::move(all_scales));
}

PackedCall PackedWeights::call_of(std::int64_t panel) const {
  PackedCall call;
  call.weights = packed_.data() + panel_offset(panel);
  call.scales = reinterpret_cast<const float*>(scales_.data()) + scales_offset(panel);
  call.depth = panels_.steps;
  call.group = group_;
  call.finish.columns = panels_.columns(panel);
  return call;
}

// `blocks` and `to_scales`: of the panel.
void PackedWeights::pack(std::int64_t panel, const std::byte* weights, const float* scales, std::byte* blocks,
                         float* to_scales) const {
  const std::int64_t columns = panels_.columns(panel);
  const std::int64_t width = (columns + panels_.lanes - 1) / panels_.lanes * panels_.lanes;
  for (std::int64_t o = 0; o < columns; ++o) {
    const std::int64_t output = panel * panels_.panel + o;
    const std::byte* row = weights + output * format_.row_bytes(panels_.steps);
    for (std::int64_t g = 0; g < groups_; ++g) to_scales[g * width + o] = scales[output * groups_ + g];
    for (std::int64_t k = 0; k < panels_.steps; ++k) {
      std::byte* block = blocks + k / kPackedBlock * block_bytes(width);
      const std::int64_t j = k % kPackedBlock;
      if (format_.bits == 8) {
        block[j * width + o] = row[k];
      } else {
        const auto half = static_cast<unsigned>(format_.at(row, k)) & 15U;
        block[4 * o + j / 2] |= static_cast<std::byte>(half << (4 * (j % 2)));
      }
    }
  }
}

void PackedWeights::widen(std::int64_t panel, std::byte* to) const {
  const PackedCall call = call_of(panel);
  const int vectors = f32_tiles().vectors(call.finish.columns);
  kernels_.widen[format_.bits == 4 ? 1 : 0][vectors - 1](call, reinterpret_cast<float*>(to));
}

std::span<const std::byte> PackedWeights::kept(std::int64_t panel) const {
  const PackedCall call = call_of(panel);
  const std::int64_t width = std::int64_t{f32_tiles().vectors(call.finish.columns)} * panels_.lanes;
  return {call.weights, static_cast<std::size_t>(blocks_ * block_bytes(width))};
}

void PackedWeights::multiply(std::int64_t panel, std::int64_t rows, PackedCall call) const {
  const PackedCall own = call_of(panel);
  const std::int64_t output = panel * panels_.panel;
  call.weights = own.weights;
  call.scales = own.scales;
  call.depth = own.depth;
  call.group = own.group;
  call.y += output;
  if (call.residual != nullptr) call.residual += output;
  if (call.finish.bias != nullptr) call.finish.bias += output;
  call.finish.columns = own.finish.columns;
  const int vectors = f32_tiles().vectors(call.finish.columns);
  // In calls of nearly equal size.
  const std::int64_t calls = (rows + kernels_.rows - 1) / kernels_.rows;
  for (std::int64_t c = 0; c < calls; ++c) {
    const std::int64_t count = rows * (c + 1) / calls - rows * c / calls;
    kernels_.multiply[format_.bits == 4 ? 1 : 0][count - 1][vectors - 1](call);
    call.x += count * call.x_stride;
    call.y += count * call.y_stride;
    if (call.residual != nullptr) call.residual += count * call.y_stride;
  }
}

}  // namespace pipit::internal
