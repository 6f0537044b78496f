#include "layers/cuda/conv/conv_tile.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pipit::internal::cuda {

namespace {

std::int64_t all_steps(const ConvShape& shape) {
  return ceil_div(shape.depth(), kTileDepth);
}

int kept_by(const int (&kept)[3], const ConvTile& tile) {
  const auto* at = std::ranges::find(kTileColumns, tile.columns);
  return kept[at - std::begin(kTileColumns)];
}

// How much longer a step of listed blocks takes: they come from more lines of x, of one tap with holes between them
// from nearly all of its lines. Fitted to eight pruned layers on an H200. The blocks of a group lie side by side:
// recorded grouped convolutions take no longer a step than others.
double list_factor(const ConvShape& shape, const ConvTile& tile) {
  const bool one_tap = shape.kernel_h * shape.kernel_w == 1;
  if (!one_tap && shape.groups > 1) return 1;
  if (tile.columns == 128) return one_tap ? 2.0 : 1.4;
  return one_tap ? 3.0 : 1.9;
}

}  // namespace

bool ConvShape::lists(const ConvTile& tile) const {
  constexpr double kDoubt = 0.9;  // lists are read, too
  const int most = has_listed_kernel(tile) ? kept_by(most_kept_steps, tile) : 0;
  return most > 0 && most * list_factor(*this, tile) < kDoubt * static_cast<double>(all_steps(*this));
}
std::int64_t ConvShape::steps(const ConvTile& tile) const {
  return lists(tile) ? kept_by(kept_steps, tile) : all_steps(*this);
}
std::int64_t ConvShape::most_steps(const ConvTile& tile) const {
  return lists(tile) ? kept_by(most_kept_steps, tile) : all_steps(*this);
}

std::int64_t blocks_of(const ConvShape& shape, const ConvTile& tile) {
  return ceil_div(shape.rows(), used_rows(shape, tile)) * ceil_div(shape.out_c, tile.columns) * tile.splits;
}

// A step in copies of 8 bytes, which are twice as many, takes longer: this factor is fitted to the order of the tiles'
// times in RegNetY-400MF at batch 1 on an H100.
double step_factor(const ConvShape& shape, const ConvTile& tile) {
  const double copies = shape.unstored == 0 ? 1 : tile.columns == 32 ? 1.3 : 2;
  return shape.lists(tile) ? copies * list_factor(shape, tile) : copies;
}

bool pays_to_overlap(const ConvShape& shape, const ConvTile& tile, int processors) {
  const std::int64_t steps = ceil_div(shape.steps(tile), tile.splits);
  const std::int64_t blocks = blocks_of(shape, tile);
  constexpr std::int64_t kLongWave = 12;
  constexpr std::int64_t kLongListedWave = 4;  // of blocks that all have a multiprocessor to themselves
  const bool alone = shape.lists(tile) && blocks <= processors;
  return steps < (alone ? kLongListedWave : kLongWave) || blocks >= 2 * processors;
}

namespace {

// Calls use(tile) for every compiled tile and splitting of the depth, largest first.
template <typename Use>
void for_each_tile(const ConvShape& shape, bool clusters, Use use) {
  for (ConvTile tile : kConvTiles) {
    if (!has_kernel(shape, tile)) continue;
    if (shape.averaged && tile.rows < shape.positions()) continue;
    // Each of the blocks that share a tile of averages finishes eight channels or more.
    const int most_splits = !clusters        ? 1
                            : shape.averaged ? std::min(kMaxSplits, tile.columns / 8)
                                             : kMaxSplits;
    for (int splits = 1; splits <= most_splits && splits <= shape.steps(tile); splits *= 2) {
      tile.splits = splits;
      use(tile);
    }
  }
}

}  // namespace

std::string ConvVariant::name() const {
  std::string text = std::to_string(tile.rows) + "x" + std::to_string(tile.columns);
  if (tile.splits > 1) text += "/" + std::to_string(tile.splits);
  return overlap ? text + "+overlap" : text;
}

std::vector<ConvVariant> conv_variants(const ConvShape& shape, int processors, bool clusters,
                                       const VariantCost& cost) {
  std::vector<std::pair<double, ConvVariant>> costs;
  for_each_tile(shape, clusters, [&](const ConvTile& tile) {
    const ConvVariant variant{tile, clusters && pays_to_overlap(shape, tile, processors)};
    costs.emplace_back(cost(variant), variant);
  });
  std::ranges::stable_sort(costs, {}, [](const auto& one) { return one.first; });
  std::vector<ConvVariant> variants;
  for (const auto& one : costs) variants.push_back(one.second);
  return variants;
}

namespace {

int blocks_of(const ConvShape& shape) {
  return static_cast<int>(shape.depth() / block_units(shape));
}

// What of neighbouring channels belongs to an output's group.
struct GroupChannels {
  int first, count;
  int begin(int channel) const { return std::max(channel, first); }
  int end(int channel) const { return std::min(channel, first + count); }
};
GroupChannels channels_of(const ConvShape& shape, int channels, int output) {
  const int count = channels / shape.groups;
  return {output / (shape.out_c / shape.groups) * count, count};
}

}  // namespace

KeptDepth::KeptDepth(const ConvShape& shape)
    : block_units_(block_units(shape)),
      count_(blocks_of(shape)),
      outputs_(shape.out_c),
      groups_(shape.groups) {}

template <typename T>
KeptDepth::KeptDepth(const ConvShape& shape, int channels, std::span<const T> weights) : KeptDepth(shape) {
  const std::int64_t taps = std::int64_t{shape.kernel_h} * shape.kernel_w;
  const int per_tap = shape.in_c / block_units_;
  const int values = block_units_ * (sizeof(T) == 1 ? 2 : 1);  // of a block, in one output
  taps_ = static_cast<int>(taps), channels_ = channels, values_ = values;
  for (int first = 0; first < outputs_; first += kPanel) {
    std::vector<bool> kept(static_cast<std::size_t>(count_));
    int found = 0;
    // A dense layer's first output has weights in all of them.
    for (int o = first; o < std::min(first + kPanel, outputs_) && found < count_; ++o) {
      const GroupChannels group = channels_of(shape, channels, o);
      const T* filter = weights.data() + o * (group.count * taps);
      for (int tap = 0; tap < taps_; ++tap) {
        const T* from = filter + tap;
        for (int begin = group.first / values * values; begin < group.first + group.count; begin += values) {
          const auto b = static_cast<std::size_t>(tap * per_tap + begin / values);
          if (kept[b]) continue;
          for (int c = group.begin(begin); c < group.end(begin + values); ++c) {
            if (from[(c - group.first) * taps] == T{0}) continue;
            kept[b] = true;
            ++found;
            break;
          }
        }
      }
    }
    all_ = all_ && found == count_;
    panels_.push_back(std::move(kept));
  }
  if (all_) panels_.clear();
}

template KeptDepth::KeptDepth(const ConvShape&, int, std::span<const float>);
template KeptDepth::KeptDepth(const ConvShape&, int, std::span<const std::int8_t>);

std::vector<int> KeptDepth::blocks(int tile, int columns) const {
  const auto begin = static_cast<std::size_t>(tile * (columns / kPanel));
  const std::size_t end = std::min(begin + static_cast<std::size_t>(columns / kPanel), panels_.size());
  std::vector<int> kept;
  for (int b = 0; b < count_; ++b) {
    bool keep = all_;
    for (std::size_t p = begin; p < end && !keep; ++p) keep = panels_[p][static_cast<std::size_t>(b)];
    if (keep) kept.push_back(b);
  }
  return kept;
}

int KeptDepth::steps(int tile, int columns) const {
  const auto kept = all_ ? count_ : static_cast<int>(blocks(tile, columns).size());
  return std::max(1, static_cast<int>(ceil_div(kept * block_units_, kTileDepth)));
}

int KeptDepth::most_steps(int columns) const {
  int most = 1;
  for (int tile = 0; tile < (all_ ? 1 : ceil_div(outputs_, columns)); ++tile)
    most = std::max(most, steps(tile, columns));
  return most;
}

void KeptDepth::describe(ConvShape& shape) const {
  for (std::size_t i = 0; i < std::size(kTileColumns); ++i) {
    const int columns = kTileColumns[i];
    const int tiles = static_cast<int>(ceil_div(outputs_, columns));
    int sum = 0, most = 0;
    for (int tile = 0; tile < tiles && !all_; ++tile) {
      sum += steps(tile, columns);
      most = std::max(most, steps(tile, columns));
    }
    shape.kept_steps[i] = all_ ? 0 : static_cast<int>(ceil_div(sum, tiles));
    shape.most_kept_steps[i] = most;
  }
}

double KeptDepth::share(int columns) const {
  if (all_) return 1;
  double kept = 0, all = 0;
  for (int tile = 0; tile * columns < outputs_; ++tile) {
    const int outputs = std::min(columns, outputs_ - tile * columns);
    kept += static_cast<double>(blocks(tile, columns).size()) * outputs;
    all += static_cast<double>(reached(tile, columns)) * outputs;
  }
  return kept / all;
}

int KeptDepth::reached(int tile, int columns) const {
  if (groups_ == 1) return count_;
  const int of_group = outputs_ / groups_, width = channels_ / groups_;
  const int first = tile * columns / of_group * width;
  const int last = (std::min((tile + 1) * columns, outputs_) - 1) / of_group * width + width;
  return taps_ * static_cast<int>(ceil_div(last, values_) - first / values_);
}

std::vector<DepthBlock> depth_blocks(const ConvShape& shape, const KeptDepth& depth, int columns) {
  const int units = block_units(shape);
  const int per_tap = shape.in_c / units;
  const auto row =
      static_cast<std::size_t>(depth.most_steps(columns)) * static_cast<std::size_t>(kTileDepth / units);
  const auto tiles = static_cast<std::size_t>(ceil_div(shape.out_c, columns));
  std::vector<DepthBlock> all(tiles * row);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    auto to = all.begin() + static_cast<std::ptrdiff_t>(tile * row);
    for (const int block : depth.blocks(static_cast<int>(tile), columns)) {
      const int down = block / per_tap / shape.kernel_w * shape.dilation_h;
      const int right = block / per_tap % shape.kernel_w * shape.dilation_w;
      const int channel = block % per_tap * units;
      const int odd = channel + units > shape.pixel_units() ? 1 : 0;
      const int offset = (down * shape.in_w + right) * shape.pixel_units() + channel;
      *to++ = {offset + odd, static_cast<std::int16_t>(down), static_cast<std::int16_t>(right)};
    }
  }
  return all;
}

namespace {

// convert(w) of every weight; `values` are the weights of a block.
template <typename To, typename From, typename Convert>
std::vector<To> pack_weights(const ConvShape& shape, const KeptDepth& depth, int values, int channels,
                             const From* weights, int columns, Convert convert) {
  const std::int64_t taps = static_cast<std::int64_t>(shape.kernel_h) * shape.kernel_w;
  const int per_tap = shape.in_c / block_units(shape);
  const std::int64_t row = std::int64_t{depth.most_steps(columns)} * kTileDepth / block_units(shape) * values;
  std::vector<To> packed(static_cast<std::size_t>(ceil_div(shape.out_c, columns) * columns * row));
  for (int tile = 0; tile * columns < shape.out_c; ++tile) {
    const std::vector<int> blocks = depth.blocks(tile, columns);
    for (int o = tile * columns; o < std::min((tile + 1) * columns, shape.out_c); ++o) {
      const GroupChannels group = channels_of(shape, channels, o);
      auto to = packed.begin() + o * row;
      for (const int block : blocks) {
        const int begin = block % per_tap * values;
        const From* from = weights + std::int64_t{o} * group.count * taps + block / per_tap;
        for (int c = group.begin(begin); c < group.end(begin + values); ++c)
          to[c - begin] = convert(from[(c - group.first) * taps]);
        to += values;
      }
    }
  }
  return packed;
}

// Rows of `row` elements, in the order of packed_channel.
template <typename T>
std::vector<T> rows_by_lane(const std::vector<T>& plain, std::int64_t row) {
  std::vector<T> packed(plain.size());
  for (std::int64_t r = 0; r * row < static_cast<std::int64_t>(plain.size()); ++r)
    std::copy_n(plain.begin() + packed_channel(static_cast<int>(r)) * row, row, packed.begin() + r * row);
  return packed;
}

}  // namespace

std::vector<std::uint16_t> pack_conv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                             const float* weights, int columns) {
  const auto pack = [&](auto bits) {
    return pack_weights<std::uint16_t>(shape, depth, block_units(shape), channels, weights, columns, bits);
  };
  return shape.bf16 ? pack([](float w) { return to_bfloat16(w).bits; })
                    : pack([](float w) { return to_half(w).bits; });
}

std::vector<std::uint16_t> pack_conv_weights_by_lane(const ConvShape& shape, const KeptDepth& depth,
                                                     int channels, const float* weights, int columns) {
  return rows_by_lane(pack_conv_weights(shape, depth, channels, weights, columns),
                      std::int64_t{depth.most_steps(columns)} * kTileDepth);
}

std::vector<std::int8_t> pack_qconv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                            const std::int8_t* weights, int columns) {
  return rows_by_lane(pack_weights<std::int8_t>(shape, depth, 2 * block_units(shape), channels, weights,
                                                columns, [](std::int8_t w) { return w; }),
                      std::int64_t{depth.most_steps(columns)} * kTileDepth * 2);
}

}  // namespace pipit::internal::cuda
