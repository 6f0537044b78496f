#include "layers/cuda/conv/stem/plan.h"

#include <algorithm>
#include <limits>

namespace pipit::internal::cuda {

namespace {

int narrow(std::int64_t v) {
  return static_cast<int>(v);
}

int element_bytes(const ConvShape& shape) {
  return shape.int8 ? 1 : 2;
}

// The fewest units from pixel to pixel for which the four pixels that half a warp reads at once lie in different banks.
// Units of few bytes or few to a pixel overlap, which is no conflict: one read serves both.
int pixel_pitch(const StemUnits& units, int stride) {
  if (units.unit_bytes != 8 || units.per_pixel < 4) return units.per_pixel;
  int pitch = units.per_pixel + units.per_pixel % 2;  // copies of 16 bytes
  while (stride % 4 != 0 && pitch * stride % 8 != 4) pitch += 2;
  return pitch;
}

// Weights in the order of the kernels. stored: an element as it is kept.
template <typename To, typename From, typename Stored>
std::vector<To> pack(const StemArgs& args, const From* weights, Stored stored) {
  const ConvShape& s = args.shape;
  const StemUnits& u = args.units;
  const int width = args.tile.width;
  const int row_elements = 128 / narrow(sizeof(To));
  const auto block = static_cast<std::size_t>(args.weight_bytes) / sizeof(To);
  std::vector<To> packed(block * static_cast<std::size_t>(ceil_div(s.out_c, width)));
  for (int place = 0; place < narrow(ceil_div(s.out_c, width)) * width; ++place) {
    const int o = place / width * width + stem_channel(width, place % width);
    if (o >= s.out_c) continue;
    for (int r = 0; r < s.kernel_h; ++r) {
      for (int w = 0; w < s.kernel_w; ++w) {
        for (int c = 0; c < s.in_c; ++c) {
          const int pixel_unit = (r * u.window_w + w / u.group) * u.per_pixel;
          const int element = w % u.group * s.in_c + c;  // of the pixel's units
          const int k = stem_depth(u.unit_bytes, pixel_unit + element / u.elements,
                                   element % u.elements * narrow(sizeof(To))) /
                        narrow(sizeof(To));
          const int row = k / row_elements * width + place % width;
          packed[static_cast<std::size_t>(place / width) * block +
                 static_cast<std::size_t>(row * row_elements + k % row_elements)] =
              stored(
                  weights[((static_cast<std::int64_t>(o) * s.in_c + c) * s.kernel_h + r) * s.kernel_w + w]);
        }
      }
    }
  }
  return packed;
}

}  // namespace

std::string StemTile::name() const {
  return std::to_string(rows) + "x" + std::to_string(width);
}

StemUnits stem_units(const ConvShape& shape) {
  StemUnits u;
  const int bytes = narrow(ceil_div(std::int64_t{shape.in_c} * element_bytes(shape), 4) * 4);
  u.unit_bytes = bytes % 8 == 0 || !shape.int8 ? 8 : 4;
  u.elements = u.unit_bytes / element_bytes(shape);
  u.group = shape.in_c <= 2 ? 4 / shape.in_c : 1;
  u.per_pixel = narrow(ceil_div(bytes, u.unit_bytes));
  u.window_w = narrow(ceil_div(shape.kernel_w, u.group));
  u.count = shape.kernel_h * u.window_w * u.per_pixel;
  return u;
}

StemArgs stem_args(const ConvShape& shape, const StemTile& tile) {
  StemArgs a;
  a.shape = shape;
  a.tile = tile;
  a.units = stem_units(shape);
  const int units_a_step = 32 / a.units.unit_bytes;
  a.steps = narrow(ceil_div(a.units.count, units_a_step));
  a.pitch = pixel_pitch(a.units, shape.stride_w);
  a.halo_h = (tile.rows - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  a.halo_w =
      (kStemColumns - 1) * shape.stride_w + (a.units.window_w - 1) * a.units.group * shape.dilation_w + 1;
  a.halo_width = small_factor(a.halo_w);
  a.units_factor = small_factor(a.units.per_pixel);
  a.window_factor = small_factor(a.units.window_w);
  a.tiles_w = narrow(ceil_div(shape.out_w, kStemColumns));
  const int per_image = a.tiles_w * narrow(ceil_div(shape.out_h, tile.rows));
  a.tiles = per_image * shape.batch;
  a.tiles_wide = Divisor(a.tiles_w);
  a.tiles_per_image = Divisor(per_image);
  // In 64 bits: a window of a thousand taps a side has more weights than an int counts.
  const std::int64_t weight_bytes = ceil_div(a.steps, 4) * tile.width * 128;
  const std::int64_t offset_bytes = ceil_div(a.steps, 2) * 2 * units_a_step * (shape.int8 ? 4 : 16);
  const std::int64_t halo_bytes =
      ceil_div(std::int64_t{a.halo_h} * a.halo_w * a.pitch * a.units.unit_bytes, 16) * 16;
  const auto saturated = [](std::int64_t v) {
    return narrow(std::min<std::int64_t>(v, std::numeric_limits<int>::max()));
  };
  a.weight_bytes = saturated(weight_bytes);
  a.offset_bytes = saturated(offset_bytes);
  a.halo_bytes = saturated(halo_bytes);
  a.shared_bytes = static_cast<std::size_t>(weight_bytes + offset_bytes + halo_bytes);
  return a;
}

int widest_stem_tile(const ConvShape& shape) {
  int width = 8;
  while (width < std::min(shape.out_c, 64)) width *= 2;
  return width;
}

std::vector<StemTile> stem_tiles(const ConvShape& shape, int processors) {
  std::vector<StemTile> tiles;
  for (int width = widest_stem_tile(shape); width >= 8; width /= 2) {
    for (const int rows : {8, 4}) {
      if (stem_args(shape, {rows, width}).shared_bytes <= kStemMaxShared) tiles.push_back({rows, width});
    }
  }
  // The largest tile with a block for every multiprocessor; where there is none, the one of the most blocks that still
  // computes 16 channels.
  const auto blocks = [&](const StemTile& tile) {
    return stem_args(shape, tile).tiles * ceil_div(shape.out_c, tile.width);
  };
  auto last = std::find_if(tiles.begin(), tiles.end(), [](const StemTile& t) { return t.width < 16; });
  if (last == tiles.begin()) last = tiles.end();
  auto best = std::find_if(tiles.begin(), last, [&](const StemTile& t) { return blocks(t) >= processors; });
  if (best == last && best != tiles.begin()) --best;
  // Eight rows read fewer pixels than two times four where windows overlap. Where they do not, or hardly, more blocks
  // balance better (as measured on an H100 at batch 128 for first layers of 3x3 with stride 2, 1x1 convolutions of 32
  // channels to 192, and images of 1x1).
  constexpr double kHardly = 1.1;
  const StemArgs eight = stem_args(shape, {8, 8}), four = stem_args(shape, {4, 8});
  if (best != tiles.end() && best->rows == 8 && four.halo_h * 2 <= eight.halo_h * kHardly) ++best;
  if (best != tiles.end()) std::rotate(tiles.begin(), best, best + 1);
  return tiles;
}

std::vector<Half> pack_stem_weights(const StemArgs& args, const float* weights) {
  return pack<Half>(args, weights, [](float w) { return to_half(w); });
}

std::vector<std::int8_t> pack_qstem_weights(const StemArgs& args, const std::int8_t* weights) {
  return pack<std::int8_t>(args, weights, [](std::int8_t w) { return w; });
}

}  // namespace pipit::internal::cuda
