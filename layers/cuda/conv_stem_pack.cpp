#include "layers/cuda/conv_stem_pack.h"

namespace pipit::cuda {

StemArgs stem_args(const ConvShape& shape) {
  StemArgs a;
  a.shape = shape;
  a.width = shape.out_c <= 32 ? 32 : 64;
  const int taps = shape.kernel_h * shape.kernel_w;
  a.steps = static_cast<int>(ceil_div(taps, 8));
  a.halo_h = (kStemRows - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  a.halo_w = (kStemColumns - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation_w + 1;
  a.halo_width = Divisor(a.halo_w);
  a.tiles_w = static_cast<int>(ceil_div(shape.out_w, kStemColumns));
  const int per_image = a.tiles_w * static_cast<int>(ceil_div(shape.out_h, kStemRows));
  a.tiles = per_image * shape.batch;
  a.tiles_wide = Divisor(a.tiles_w);
  a.tiles_per_image = Divisor(per_image);
  a.weight_bytes = static_cast<int>(ceil_div(a.steps, 2)) * a.width * kTileDepth * 2;
  a.offset_bytes = a.steps * 8 * 4;
  a.shared_bytes = static_cast<std::size_t>(a.weight_bytes) + static_cast<std::size_t>(a.offset_bytes) +
                   static_cast<std::size_t>(a.halo_h) * static_cast<std::size_t>(a.halo_w) * 8;
  return a;
}

std::vector<Half> pack_stem_weights(const StemArgs& args, const float* weights) {
  const ConvShape& s = args.shape;
  const int taps = s.kernel_h * s.kernel_w;
  const auto block = static_cast<std::size_t>(args.weight_bytes) / sizeof(Half);
  std::vector<Half> packed(block * static_cast<std::size_t>(ceil_div(s.out_c, args.width)));
  for (int o = 0; o < s.out_c; ++o) {
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < s.in_c; ++c) {
        const int k = stem_depth(tap, c);
        const int row = k / kTileDepth * args.width + o % args.width;
        packed[static_cast<std::size_t>(o / args.width) * block +
               static_cast<std::size_t>(row * kTileDepth + k % kTileDepth)] =
            to_half(weights[(static_cast<std::int64_t>(o) * s.in_c + c) * taps + tap]);
      }
    }
  }
  return packed;
}

StemArgs qstem_args(const ConvShape& shape) {
  StemArgs a = stem_args(shape);
  a.weight_bytes = static_cast<int>(ceil_div(a.steps, 4)) * a.width * 128;
  a.shared_bytes = static_cast<std::size_t>(a.weight_bytes) + static_cast<std::size_t>(a.offset_bytes) +
                   static_cast<std::size_t>(a.halo_h) * static_cast<std::size_t>(a.halo_w) * 4;
  return a;
}

std::vector<std::int8_t> pack_qstem_weights(const StemArgs& args, const std::int8_t* weights) {
  const ConvShape& s = args.shape;
  const int taps = s.kernel_h * s.kernel_w;
  const auto block = static_cast<std::size_t>(args.weight_bytes);
  std::vector<std::int8_t> packed(block * static_cast<std::size_t>(ceil_div(s.out_c, args.width)));
  const int rows = static_cast<int>(ceil_div(s.out_c, args.width)) * args.width;
  for (int place = 0; place < rows; ++place) {
    const int o = packed_channel(place);
    if (o >= s.out_c) continue;
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < s.in_c; ++c) {
        const int k = tap * 4 + c;
        const int row = k / 128 * args.width + place % args.width;
        packed[static_cast<std::size_t>(place / args.width) * block +
               static_cast<std::size_t>(row * 128 + k % 128)] =
            weights[(static_cast<std::int64_t>(o) * s.in_c + c) * taps + tap];
      }
    }
  }
  return packed;
}

}  // namespace pipit::cuda
