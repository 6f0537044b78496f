// Tensor maps: what Hopper's bulk tensor copies know of a tensor in memory. Bytes throughout, rows in shared memory of
// 128 of them, swizzled in 16-byte chunks as by swizzled_chunk<8> (conv_tile.h).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::internal::cuda {

/// A matrix [rows, columns], columns a multiple of 16, read in boxes of box_rows x box_columns; zeros beyond its edges.
/// Rows of 64 bytes are swizzled as by swizzled_chunk<4>.
/// Throws Error with the driver's reason when there is no such map.
CUtensorMap matrix_map(const void* data, std::int64_t columns, std::int64_t rows, int box_columns,
                       int box_rows);

/// x [batch, in_h, in_w, channels] of a convolution, read as pixels x box_channels for one tap of `pixels` neighbouring
/// output positions; zeros in the padding and beyond the channels. shape.in_c has no part in it.
CUtensorMap patch_map(const void* x, const ConvShape& shape, int channels, int box_channels, int pixels);

/// x [batch, in_h, in_w, in_c units] read in pieces of one row: box_pixels x box_bytes (64 or 128) of the pixels'
/// channels; zeros beyond the image and the channels. Rows of 64 bytes are swizzled as by swizzled_chunk<4>.
CUtensorMap row_map(const void* x, const ConvShape& shape, int box_bytes, int box_pixels);

}  // namespace pipit::internal::cuda
