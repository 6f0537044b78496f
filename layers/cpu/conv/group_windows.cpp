#include "layers/cpu/conv/group_windows.h"

#include <numeric>

#include "engine/base/ceil_div.h"
#include "engine/platform/cache_size.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kLine = 64 / kFloat;
constexpr std::int64_t kNearBytes = 32 << 10;  // of a first-level cache of 48 KiB
constexpr std::int64_t kBatch = 8;             // jobs, whose sums stay in a first-level cache
constexpr std::int64_t kMaxRingBytes = 64 << 20;
// Products of bytes whose sum is exact in a float: 255 * 128 * 512 < 2^24.
constexpr std::int64_t kExactProducts = 512;

std::int64_t round_to_line(std::int64_t floats) {
  return round_up(floats, kLine);
}

// Whole groups in a register; 0: a group has more outputs or inputs than one.
std::int64_t groups_per_panel(std::int64_t inputs, std::int64_t outputs, std::int64_t groups) {
  const std::int64_t lanes = row_kernels().lanes;
  return std::min({lanes / inputs, lanes / outputs, groups});
}

// Neighbouring pixels of which a register holds all inputs, another all outputs.
std::int64_t pixels_per_panel(std::int64_t inputs, std::int64_t outputs, std::int64_t stride,
                              std::int64_t width) {
  const std::int64_t lanes = row_kernels().lanes;
  if (inputs > lanes || outputs > lanes) return 1;
  const std::int64_t read = (lanes / inputs - 1) / stride + 1;
  return std::clamp<std::int64_t>(std::min(read, lanes / outputs), 1, width);
}

}  // namespace

GroupWindows::GroupWindows(const Geometry& geometry, bool exact, int threads, std::int64_t piece_channels)
    : images_(geometry.x[0]),
      channels_in_(geometry.x[1]),
      channels_out_(geometry.y[1]),
      groups_(geometry.groups),
      group_inputs_(channels_in_ / groups_),
      group_outputs_(channels_out_ / groups_),
      lanes_(row_kernels().lanes),
      exact_(exact) {
  const WindowAxes axes = window_axes(geometry.window, geometry.x, geometry.y);
  height_ = axes.height;
  width_ = axes.width;
  if (width_.input == 1 && width_.output == 1 && width_.kernel == 1) turn();
  cut_panels();
  choose_lanes();
  if (piece_channels == 0 && pays_to_turn()) turn();
  ring_rows_ = std::min(height_.span(), height_.input);
  cut_segments(std::max<std::int64_t>(outputs_of_row(), 1), piece_channels > 0);
  share_out(threads, piece_channels);
  plan_jobs();
}

std::optional<const char*> GroupWindows::refuse(const Geometry& geometry) {
  const std::int64_t inputs = geometry.x[1] / geometry.groups;
  const std::int64_t outputs = geometry.y[1] / geometry.groups;
  const std::int64_t lanes = row_kernels().lanes;
  if (geometry.window.rank > 2) return "only one or two spatial dimensions are handled";
  if (geometry.y.elements() == 0 || geometry.x.elements() == 0) return "an operand is empty";
  if (inputs > lanes) return "a group has more channels than a register";
  const auto last = static_cast<std::size_t>(geometry.window.rank - 1);
  const std::int64_t pixels = pixels_per_panel(geometry.x[1], geometry.y[1], geometry.window.stride[last],
                                               geometry.y[geometry.window.rank + 1]);
  if (geometry.groups == 1 && (outputs >= 8 || pixels * outputs * 4 < lanes))
    return "one group of many outputs, or one that leaves lanes empty";
  if (inputs >= 8 && outputs >= 8) return "8 channels in a group or more";
  if (inputs > 1 &&
      std::max(pixels * geometry.y[1], groups_per_panel(inputs, std::min(outputs, lanes), geometry.groups) *
                                           std::min(outputs, lanes)) *
              4 <
          lanes)
    return "groups leave lanes empty";
  const GroupWindows made(geometry, false, 1);
  if (made.ring_floats() * kFloat > kMaxRingBytes) return "a window reaches over more than 64 MiB";
  return std::nullopt;
}

bool GroupWindows::takes_pieces(const Geometry& geometry) {
  const std::int64_t most = std::max(16, f32_tiles().panel());
  const GroupWindows made(geometry, false, 1, most);
  return !made.pays_to_turn() && made.pixels_ == 1 && made.panels_.front().inputs == made.lanes_ &&
         made.width_.x_step == 1 && made.ring_floats() * kFloat <= second_level_cache();
}

void GroupWindows::turn() {
  std::swap(height_, width_);
}

// Whether chains go better down the columns: in a window of more rows than columns more outputs meet what is loaded,
// and the ring has fewer rows. What lies next to each other is copied apart then; lines that pixels share cost more.
bool GroupWindows::pays_to_turn() const {
  constexpr double kCopyApart = 0.1;  // cycles of a register
  const double least_gain = channels_in_ % kLine == 0 ? 1.1 : 1.25;
  if (pixels_ > 1 || pixels_per_panel(channels_in_, channels_out_, height_.stride, height_.output) > 1)
    return false;
  const double copies = kCopyApart * static_cast<double>(height_.output * width_.output);
  return cost_of_image(height_, width_) > least_gain * (cost_of_image(width_, height_) + copies);
}

void GroupWindows::cut_panels() {
  pixels_ = pixels_per_panel(channels_in_, channels_out_, width_.stride, width_.output);
  if (pixels_ > 1) {
    panels_.push_back({0, channels_in_, 0, pixels_ * channels_out_});
    return;
  }
  const std::int64_t together = groups_per_panel(group_inputs_, group_outputs_, groups_);
  if (together > 0) {
    for (std::int64_t g = 0; g < groups_; g += together) {
      const std::int64_t count = std::min(together, groups_ - g);
      panels_.push_back(
          {g * group_inputs_, count * group_inputs_, g * group_outputs_, count * group_outputs_});
    }
    return;
  }
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (std::int64_t o = 0; o < group_outputs_; o += lanes_)
      panels_.push_back(
          {g * group_inputs_, group_inputs_, g * group_outputs_ + o, std::min(lanes_, group_outputs_ - o)});
  }
}

void GroupWindows::choose_lanes() {
  const std::int64_t outputs = panels_.front().outputs;
  bool own = group_inputs_ == 1;
  for (std::int64_t j = 0; j < group_inputs_; ++j) {
    for (std::int64_t l = 0; l < lanes_; ++l) {
      std::int64_t source = 0;
      if (l < outputs) {
        const std::int64_t pixel = pixels_ > 1 ? l / channels_out_ : 0;
        const std::int64_t output = pixels_ > 1 ? l % channels_out_ : l;
        source = pixel * width_.stride * channels_in_ + output / group_outputs_ * group_inputs_ + j;
        own = own && source == l;
      }
      lane_sources_.push_back(static_cast<std::int32_t>(source));
    }
  }
  if (own) lane_sources_.clear();
}

std::int64_t GroupWindows::macs() const {
  return images_ * height_.taps_of_all() * width_.taps_of_all() * channels_out_ * group_inputs_;
}

// In cycles of two products each, for one row of taps.
GroupWindows::Sharing GroupWindows::cost_of(Sharing sharing, const WindowAxis& axis,
                                            std::int64_t outputs) const {
  const WindowKernels& kernels = row_kernels().windows;
  Sharing best = sharing;
  for (int width = 0; width < WindowKernels::kWidths; ++width) {
    const std::int64_t columns = kernels.columns[width];
    if (columns == 0) continue;
    std::int64_t tiles = 0;
    for (std::int64_t r = 0; r < std::min(sharing.spacing, outputs); ++r)
      tiles += ceil_div(ceil_div(outputs - r, sharing.spacing), columns);
    double cycles = 0;
    double inputs = 0;
    for (std::int64_t first = 0; first < std::min(sharing.tap_step, axis.kernel); ++first) {
      const std::int64_t taps = ceil_div(axis.kernel - first, sharing.tap_step);
      const std::int64_t chains = ceil_div(taps, std::int64_t{kernels.taps});
      const double loads = static_cast<double>(chains * (columns - 1) + 2 * taps);
      const double moved = lane_sources_.empty() ? 0 : static_cast<double>(chains * (columns - 1) + taps);
      constexpr std::int64_t kInFlight = 8;
      inputs += static_cast<double>(chains * (columns - 1) + taps);
      const auto products = static_cast<double>(std::max(columns, kInFlight) * taps);
      cycles += std::max(products + moved, 1.1 * loads) / 2;
    }
    sharing.width = width;
    sharing.cost = cycles * static_cast<double>(tiles);
    sharing.inputs = inputs * static_cast<double>(tiles);
    if (best.cost == 0 || sharing.cost < best.cost) best = sharing;
  }
  return best;
}

// Outputs spaced so that the taps of one fall on those of the next; or neighbouring ones, which meet no tap twice.
GroupWindows::Sharing GroupWindows::sharing(const WindowAxis& axis, std::int64_t outputs) const {
  const std::int64_t stride = pixels_ * axis.stride;
  const std::int64_t common = std::gcd(stride, axis.dilation);
  const Sharing apart = cost_of({1, axis.kernel}, axis, outputs);
  const Sharing shared = cost_of({axis.dilation / common, stride / common}, axis, outputs);
  return shared.cost <= apart.cost ? shared : apart;
}

// The cost of one image and panel where chains lie along `columns`.
double GroupWindows::cost_of_image(const WindowAxis& rows, const WindowAxis& columns) const {
  constexpr double kFarLoad = 3;  // cycles of a register from the second-level cache
  const Sharing along = sharing(columns, columns.output);
  const std::int64_t ring_bytes =
      std::min(rows.span(), rows.input) * columns.input * panels_.front().inputs * kFloat;
  const double cost =
      ring_bytes > kNearBytes / 2 ? std::max(along.cost, kFarLoad * along.inputs) : along.cost;
  return cost * static_cast<double>(rows.kernel * rows.output);
}

void GroupWindows::cut_segments(std::int64_t outputs, bool whole_rows) {
  const std::int64_t stride = pixels_ * width_.stride;
  const std::int64_t panel_inputs = panels_.front().inputs;
  const std::int64_t budget = height_.kernel == 1 ? kNearBytes : second_level_cache() / 4;
  const std::int64_t columns = budget / (ring_rows_ * panel_inputs * kFloat) - width_.span();
  const std::int64_t most =
      std::max<std::int64_t>({columns / stride, ceil_div(4 * width_.span(), stride), 64});
  const std::int64_t count = whole_rows ? 1 : ceil_div(outputs, most);
  sharing_ = sharing(width_, ceil_div(outputs, count));
  const int widest = sharing_.width;
  const std::int64_t tile = row_kernels().windows.columns[widest];
  int narrowest = WindowKernels::kWidths - 1;
  while (row_kernels().windows.columns[narrowest] == 0) --narrowest;
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int64_t begin = outputs_of_row() * s / count;
    const std::int64_t end = outputs_of_row() * (s + 1) / count;
    Segment segment;
    segment.first_column = begin * stride - width_.pad;
    segment.pixel = begin * pixels_;
    segment.pixels = (s == count - 1 ? width_.output : end * pixels_) - segment.pixel;
    for (std::int64_t r = 0; r < std::min(sharing_.spacing, end - begin); ++r) {
      const std::int64_t of_residue = ceil_div(end - begin - r, sharing_.spacing);
      for (std::int64_t at = 0; at < of_residue; at += tile) {
        // The last tile overlaps its neighbour.
        const std::int64_t first = std::max<std::int64_t>(0, std::min(at, of_residue - tile));
        segment.tiles.push_back(tile_at(segment, (begin + r + first * sharing_.spacing) * pixels_,
                                        std::min(tile, of_residue), widest));
      }
    }
    const bool ragged = s == count - 1 && width_.output % pixels_ != 0;
    if (ragged)
      segment.tiles.push_back(
          tile_at(segment, std::max<std::int64_t>(0, width_.output - pixels_), 1, narrowest));
    for (const Columns& columns_of_tile : segment.tiles) {
      const std::int64_t spaced = row_kernels().windows.columns[columns_of_tile.width] - 1;
      const std::int64_t last = columns_of_tile.column + spaced * sharing_.spacing * stride + width_.span() -
                                1 + (pixels_ - 1) * width_.stride;
      ring_columns_ = std::max(ring_columns_, last + 1);
    }
    segments_.push_back(std::move(segment));
  }
}

GroupWindows::Columns GroupWindows::tile_at(const Segment& segment, std::int64_t pixel, std::int64_t count,
                                            int width) const {
  Columns tile;
  tile.pixel = pixel;
  tile.count = count;
  tile.pixels = std::min(pixels_, width_.output);
  tile.width = width;
  const std::int64_t first = pixel * width_.stride - width_.pad;
  tile.column = first - segment.first_column;
  // Taps that any of its outputs has inside the image.
  const std::int64_t last = first + ((count - 1) * sharing_.spacing * pixels_ + pixels_ - 1) * width_.stride;
  const std::int64_t begin = last >= 0 ? 0 : ceil_div(-last, width_.dilation);
  const std::int64_t end = first >= width_.input ? 0 : (width_.input - 1 - first) / width_.dilation + 1;
  tile.chains = chains(begin, std::min(end, width_.kernel));
  return tile;
}

// The chains of taps [begin, end) of a row.
std::vector<GroupWindows::Chain> GroupWindows::chains(std::int64_t begin, std::int64_t end) const {
  std::vector<Chain> chains;
  if (begin >= end) return chains;
  const std::int64_t step = sharing_.tap_step;
  if (step >= width_.kernel && width_.kernel > 1) {
    chains.push_back({1, end - begin, begin, 1, width_.dilation});
    return chains;
  }
  for (std::int64_t first = begin; first < std::min(begin + step, end); ++first) {
    const std::int64_t taps = ceil_div(end - first, step);
    const std::int64_t count = ceil_div(taps, std::int64_t{row_kernels().windows.taps});
    // As even as can be: `longer` chains of one tap more go first.
    const std::int64_t least = taps / count;
    const std::int64_t longer = taps % count;
    const auto append = [&](std::int64_t length, std::int64_t links, std::int64_t at) {
      if (links > 0)
        chains.push_back({static_cast<int>(length), links, first + at * step, length * step,
                          length * step * width_.dilation});
    };
    append(least + 1, longer, 0);
    append(least, count - longer, longer * (least + 1));
  }
  return chains;
}

void GroupWindows::share_out(int threads, std::int64_t piece_channels) {
  constexpr std::int64_t kTasksPerThread = 4;
  constexpr std::int64_t kTogetherBytes = 16 << 10;
  constexpr std::int64_t kMinPixels = 28;  // two register tiles
  const auto panels = static_cast<std::int64_t>(panels_.size());
  const std::int64_t bytes = ring_rows_ * ring_columns_ * panels_.front().inputs * kFloat;
  // What comes from the shared cache comes faster in whole pixels.
  const std::int64_t values = images_ * (height_.input * width_.input * channels_in_ +
                                         height_.output * width_.output * channels_out_);
  const bool far = values / threads * kFloat > second_level_cache() / 2;
  block_ = std::clamp<std::int64_t>((far ? second_level_cache() / 4 : kNearBytes) / bytes, 1, panels);
  blocks_ = ceil_div(panels, block_);
  block_ = piece_channels > 0 ? std::min(piece_channels / lanes_, panels) : ceil_div(panels, blocks_);
  blocks_ = ceil_div(panels, block_);
  if (piece_channels > 0) {
    piece_rows_ = std::clamp<std::int64_t>(kTogetherBytes / (ring_columns_ * piece_channels * kFloat),
                                           ceil_div(kMinPixels, width_.input), height_.input);
    ring_rows_ = round_up(std::min(height_.span() - 1 + piece_rows_, height_.input), piece_rows_);
  }
  // Registers read to their end; and rows of an odd number of lines do not all meet the same sets of a cache.
  std::int64_t least = channels_in_;
  for (std::int64_t b = 0; b < blocks_; ++b) least = std::min(least, block_channels(b));
  ring_columns_ = (ring_columns_ + ceil_div(lanes_, least)) | 1;
  if (threads > 1) {
    const std::int64_t others = images_ * std::ssize(segments_) * blocks_;
    bands_ = std::clamp<std::int64_t>(ceil_div(threads * kTasksPerThread, others), 1, height_.output);
  }
}

std::int64_t GroupWindows::block_channels(std::int64_t block) const {
  const auto last = static_cast<std::size_t>(std::min((block + 1) * block_, std::ssize(panels_)) - 1);
  return panels_[last].input + panels_[last].inputs - panels_[static_cast<std::size_t>(block * block_)].input;
}

std::int64_t GroupWindows::ring_floats() const {
  std::int64_t most = 0;
  for (std::int64_t b = 0; b < blocks_; ++b) most = std::max(most, block_channels(b));
  return round_to_line(ring_rows_ * ring_columns_ * most + lanes_);
}

std::size_t GroupWindows::worker_bytes() const {
  return static_cast<std::size_t>((ring_floats() + 2 * tile_floats()) * kFloat +
                                  round_up(height_.kernel * std::int64_t{sizeof(float*)}, std::int64_t{64}));
}

std::int64_t GroupWindows::tile_floats() const {
  return round_to_line(row_kernels().windows.columns[0] * lanes_ * kBatch);
}

GroupWindows::Task GroupWindows::task_of(std::int64_t index, std::byte* scratch) const {
  Task task;
  const std::int64_t block = index % blocks_;
  task.block = block;
  index /= blocks_;
  const std::int64_t segment = index % std::ssize(segments_);
  task.segment = &segments_[static_cast<std::size_t>(segment)];
  task.plan = &plans_[static_cast<std::size_t>(segment * blocks_ + block)];
  index /= std::ssize(segments_);
  const std::int64_t band = index % bands_;
  task.image = index / bands_;
  task.row_begin = height_.output * band / bands_;
  task.row_end = height_.output * (band + 1) / bands_;
  task.panel_begin = static_cast<std::size_t>(block * block_);
  task.panel_end = std::min(task.panel_begin + static_cast<std::size_t>(block_), panels_.size());
  task.channel = panels_[task.panel_begin].input;
  task.channels = block_channels(block);
  task.ring = reinterpret_cast<float*>(scratch);
  task.sums = task.ring + ring_floats();
  task.whole = reinterpret_cast<std::int32_t*>(task.sums + tile_floats());
  task.rows = reinterpret_cast<const float**>(task.whole + tile_floats());
  task.first = std::clamp<std::int64_t>(height_.taps(task.row_begin).start, 0, height_.input - 1);
  task.next = task.first;
  // What lies left and right of the image.
  const std::int64_t begin = std::clamp<std::int64_t>(-task.segment->first_column, 0, ring_columns_);
  const std::int64_t end =
      std::clamp<std::int64_t>(width_.input - task.segment->first_column, begin, ring_columns_);
  for (std::int64_t r = 0; r < ring_rows_; ++r) {
    float* row = task.ring + r * ring_columns_ * task.channels;
    std::fill(row, row + begin * task.channels, 0.0F);
    std::fill(row + end * task.channels, row + ring_columns_ * task.channels, 0.0F);
  }
  std::fill_n(task.ring + ring_rows_ * ring_columns_ * task.channels, lanes_, 0.0F);
  return task;
}

GroupWindows::Rows GroupWindows::next_rows(Task& task) const {
  Rows rows{};
  rows.image = task.image;
  rows.begin = task.next;
  rows.end = std::min(task.next + piece_rows_, height_.input);
  rows.block = task.block;
  rows.channel = task.channel;
  rows.channels = task.channels;
  const std::int64_t column = std::clamp<std::int64_t>(task.segment->first_column, 0, width_.input);
  const std::int64_t end = std::min(task.segment->first_column + ring_columns_, width_.input);
  rows.pixel =
      task.image * height_.input * width_.input + task.next * height_.x_step + column * width_.x_step;
  rows.step = width_.x_step;
  rows.pixels = std::max(end, column) - column;
  rows.to = slot(task, task.next) + (column - task.segment->first_column) * task.channels;
  rows.pitch = ring_columns_;
  task.next = rows.end;
  return rows;
}

void GroupWindows::find_rows(Task& task, const TapRange& taps) const {
  for (std::int64_t t = taps.begin; t < taps.end; ++t)
    task.rows[t - taps.begin] = slot(task, taps.start + t * height_.dilation);
}

void GroupWindows::plan_jobs() {
  const std::size_t together =
      exact_ && height_.kernel * width_.kernel * group_inputs_ > kExactProducts ? 1 : kBatch;
  for (const Segment& segment : segments_) {
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const auto begin = static_cast<std::size_t>(block * block_);
      const std::size_t end = std::min(begin + static_cast<std::size_t>(block_), panels_.size());
      const std::int64_t channels = block_channels(block);
      Plan plan;
      for (const Columns& tile : segment.tiles) {
        for (std::size_t p = begin; p < end; ++p) {
          const Panel& panel = panels_[p];
          WindowJob job;
          job.x = tile.column * channels + panel.input - panels_[begin].input;
          job.weights = static_cast<std::int64_t>(p) * panel_floats();
          job.y = tile.pixel * width_.y_step * channels_out_ + panel.output;
          job.channel = panel.output;
          job.count = pixels_ > 1 ? tile.pixels * channels_out_ : panel.outputs;
          Batch* last = plan.batches.empty() ? nullptr : &plan.batches.back();
          if (last == nullptr || last->count == together || !last->tile->like(tile)) {
            plan.batches.push_back({&tile, plan.jobs.size(), 0});
            last = &plan.batches.back();
          }
          ++last->count;
          plan.jobs.push_back(job);
        }
      }
      plans_.push_back(std::move(plan));
    }
  }
}

bool GroupWindows::add_up(const Task& task, const TapRange& taps, const Batch& batch,
                          const float* packed) const {
  const WindowKernels& kernels = row_kernels().windows;
  const Columns& tile = *batch.tile;
  const std::int64_t of_tap = group_inputs_ * lanes_;
  const std::size_t floats = static_cast<std::size_t>(kernels.columns[tile.width] * lanes_) * batch.count;
  WindowTile t;
  t.jobs = task.plan->jobs.data() + batch.first;
  t.job_count = static_cast<std::int64_t>(batch.count);
  t.rows = task.rows;
  t.row_count = taps.count();
  t.x_step = sharing_.spacing * pixels_ * width_.stride * task.channels;
  t.weights_row = width_.kernel * of_tap;
  t.weights_step = sharing_.tap_step * of_tap;
  t.passes = group_inputs_;
  t.lanes = lane_sources_.empty() ? nullptr : lane_sources_.data();
  t.sums = task.sums;
  std::int64_t products = 0;
  for (const Chain& chain : tile.chains) products += taps.count() * chain.taps * chain.links * group_inputs_;
  const bool at_once = !exact_ || products <= kExactProducts;
  if (!at_once) std::fill_n(task.whole, floats, 0);
  if (products == 0) std::fill_n(task.sums, floats, 0.0F);
  products = 0;
  for (const Chain& chain : tile.chains) {
    if (t.row_count == 0) break;
    const auto function = kernels.chain[tile.width][chain.taps][t.lanes != nullptr ? 1 : 0];
    t.x_offset = chain.tap * width_.dilation * task.channels;
    t.x_link = chain.link_columns * task.channels;
    t.weights = packed + taps.begin * t.weights_row + chain.tap * of_tap;
    t.weights_link = chain.link_taps * of_tap;
    t.links = chain.links;
    if (at_once) {
      function(t);
      t.more = true;
    } else {
      add_whole(task, t, function, chain.taps * group_inputs_, floats, products);
    }
  }
  return at_once;
}

// The same in parts, of which each is exact.
void GroupWindows::add_whole(const Task& task, WindowTile tile, WindowKernels::Function function,
                             std::int64_t of_row, std::size_t floats, std::int64_t& products) const {
  const std::int64_t links = tile.links;
  const std::int64_t rows = tile.row_count;
  const float* weights = tile.weights;
  tile.links = 1;
  for (std::int64_t link = 0; link < links;
       ++link, tile.x_offset += tile.x_link, weights += tile.weights_link) {
    for (std::int64_t row = 0; row < rows; row += tile.row_count) {
      tile.row_count = std::min(rows - row, kExactProducts / of_row);
      tile.rows = task.rows + row;
      tile.weights = weights + row * tile.weights_row;
      if (products + tile.row_count * of_row > kExactProducts) {
        for (std::size_t i = 0; i < floats; ++i) task.whole[i] += static_cast<std::int32_t>(task.sums[i]);
        products = 0;
      }
      tile.more = products > 0;
      function(tile);
      products += tile.row_count * of_row;
    }
  }
}

}  // namespace pipit::internal
