// Convolutions of small groups, with any window in one or two dimensions, on NHWC data.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/graph/tensor.h"
#include "engine/plan/kernel.h"
#include "layers/cpu/conv/window_axes.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// How such a convolution is cut into tiles, and all that does not depend on what activations are stored in.
///
/// A panel is a register of outputs: some whole groups, part of a group with many outputs, or where one register holds
/// all channels of several pixels, those of neighbouring pixels. A task computes some panels (a block) of some
/// neighbouring output rows and columns. The input that they read is copied into a ring of rows as floats, with zeros
/// left and right of the image, a row when it is needed: it stays in a near cache, is converted once, and no tap is
/// tested.
class GroupWindows {
 public:
  struct Geometry {
    Window window;  ///< of one or two dimensions
    Shape x;        ///< [N, C, spatial...]
    Shape y;
    std::int64_t groups = 1;
  };
  /// Why other kernels are better or this one cannot; nothing where it takes the convolution.
  static std::optional<const char*> refuse(const Geometry& geometry);

  /// Whether panels of `lanes` input channels follow each other, so that a RowSource's are some of them, and the ring
  /// stays in a second-level cache with those.
  static bool takes_pieces(const Geometry& geometry);

  /// `exact`: sums are of whole numbers and stay exact; integers are handed on where floats would not hold them.
  /// `piece_channels`: what a RowSource computes at once that puts whole rows into the ring; 0: there is none.
  GroupWindows(const Geometry& geometry, bool exact, int threads, std::int64_t piece_channels = 0);

  GroupWindows(const GroupWindows&) = delete;
  GroupWindows& operator=(const GroupWindows&) = delete;

  /// [panels][taps][inputs of a group][lanes] from [O, inputs of a group, taps].
  template <typename W>
  std::vector<float> pack(const W* weights) const {
    std::vector<float> packed(panels_.size() * static_cast<std::size_t>(panel_floats()), 0.0F);
    float* to = packed.data();
    for (const Panel& panel : panels_) {
      for (std::int64_t t = 0; t < height_.kernel * width_.kernel; ++t) {
        const std::int64_t tap = t / width_.kernel * height_.tap_step + t % width_.kernel * width_.tap_step;
        for (std::int64_t j = 0; j < group_inputs_; ++j, to += lanes_) {
          for (std::int64_t l = 0; l < panel.outputs; ++l) {
            const std::int64_t o = panel.output + l % channels_out_;
            to[l] =
                static_cast<float>(weights[(o * group_inputs_ + j) * height_.kernel * width_.kernel + tap]);
          }
        }
      }
    }
    return packed;
  }
  /// Values of outputs as lanes have them: repeated for pixels that share a register, and up to the end of the last
  /// register.
  template <typename V>
  std::vector<V> spread(std::vector<V> values, V rest) const {
    const std::size_t count = values.size();
    if (pixels_ > 1) {
      for (std::int64_t p = 1; p < pixels_; ++p) {
        for (std::size_t i = 0; i < count; ++i) values.push_back(values[i]);
      }
    }
    values.resize(values.size() + static_cast<std::size_t>(lanes_) - 1, rest);
    return values;
  }
  /// Whether outputs are repeated: then they have no more than a register.
  bool repeats() const { return pixels_ > 1; }

  /// Taps inside of the image, for all outputs.
  std::int64_t macs() const;
  /// Elements of the rows that are put into the ring together.
  std::int64_t piece_elements() const { return piece_rows_ * ring_columns_ * block_channels(0); }
  /// Scratch of a worker, before what bodies need; a multiple of 64.
  std::size_t worker_bytes() const;

  /// Sums of some jobs in one row of y.
  struct Part {
    const float* sums;
    const std::int32_t* whole;  ///< as WindowOutput has them
    std::int64_t sums_step;
    const WindowJob* jobs;
    std::int64_t job_count;
    std::int64_t columns;
    std::int64_t offset;  ///< of the row, in elements of y
    std::int64_t step;    ///< elements from output to output
    template <typename T>
    WindowOutput<T> output() const {
      WindowOutput<T> output;
      output.jobs = jobs;
      output.job_count = job_count;
      output.sums = sums;
      output.whole = whole;
      output.sums_step = sums_step;
      output.tile.columns = columns;
      output.tile.y_step = step;
      return output;
    }
  };
  /// Neighbouring pixels of a row, when all of their channels of a block are done.
  struct Tile {
    std::int64_t pixels;
    std::int64_t offset;  ///< elements of y
    std::int64_t step;    ///< from pixel to pixel
    std::int64_t channel;
    std::int64_t channels;
  };
  /// Rows of an image to be put into the ring.
  struct Rows {
    std::int64_t image;
    std::int64_t begin;
    std::int64_t end;
    std::int64_t block;
    std::int64_t channel;  ///< the first
    std::int64_t channels;
    std::int64_t pixel;  ///< the first one, of all images
    std::int64_t step;   ///< from pixel to pixel
    std::int64_t pixels;
    float* to;
    std::int64_t pitch;  ///< pixels from row to row of `to`
  };

  /// Calls fill(Rows, scratch) for what outputs read when they do, part(Part, scratch) and tile(Tile, scratch) for all
  /// outputs. `scratch_step`: bytes from worker to worker; the callbacks get the part after worker_bytes().
  template <typename Fill, typename PartBody, typename TileBody>
  void run(const float* packed, const RunContext& context, std::size_t scratch_step, Fill&& fill,
           PartBody&& part, TileBody&& tile) const {
    context.pool.parallel_for(tasks(), [&](std::int64_t index, int worker) {
      std::byte* scratch = context.scratch + static_cast<std::size_t>(worker) * scratch_step;
      Task task = task_of(index, scratch);
      scratch += worker_bytes();
      for (std::int64_t row = task.row_begin; row < task.row_end; ++row) {
        const TapRange taps = height_.taps(row);
        const std::int64_t last = taps.start + (taps.end - 1) * height_.dilation;
        if (piece_rows_ == 1) task.next = std::max(task.next, taps.start);
        while (taps.count() > 0 && task.next <= last) fill(next_rows(task), scratch);
        find_rows(task, taps);
        run_row(task, taps, row, packed, part, tile, scratch);
      }
    });
  }

  /// Copies rows of x, from which `zero_point` is taken off. For run().
  template <typename T>
  void stage(const T* x, float zero_point, const WindowStorage<T>& storage, const Rows& rows) const {
    StagedPixels<T> pixels;
    pixels.x = x + rows.pixel * channels_in_ + rows.channel;
    pixels.y = rows.to;
    pixels.x_step = rows.step * channels_in_;
    pixels.y_step = rows.channels;
    pixels.pixels = rows.pixels;
    pixels.channels = rows.channels;
    pixels.zero_point = zero_point;
    if (rows.channels == channels_in_ && rows.step == 1) {
      pixels.channels *= pixels.pixels;
      pixels.pixels = 1;
    }
    storage.stage(pixels);
  }

 private:
  struct Panel {
    std::int64_t input = 0;  // first channel
    std::int64_t inputs = 0;
    std::int64_t output = 0;   // first channel
    std::int64_t outputs = 0;  // lanes that hold something
  };
  // Chains that follow each other, as WindowTile has them; columns of the image and of the window.
  struct Chain {
    int taps = 0;
    std::int64_t links = 1;
    std::int64_t tap = 0;
    std::int64_t link_taps = 0;
    std::int64_t link_columns = 0;
    friend bool operator==(const Chain&, const Chain&) = default;
  };
  // Evenly spaced outputs of a row, each of pixels_ pixels or of the last few.
  struct Columns {
    std::int64_t pixel = 0;   // first, of a row of y
    std::int64_t column = 0;  // of the ring, where its first tap is
    std::int64_t count = 0;
    std::int64_t pixels = 0;
    int width = 0;  // of WindowKernels
    std::vector<Chain> chains;
    bool like(const Columns& other) const {
      return count == other.count && pixels == other.pixels && width == other.width && chains == other.chains;
    }
  };
  // Jobs that are done together, of tiles of the same kind.
  struct Batch {
    const Columns* tile = nullptr;  // one of them
    std::size_t first = 0;
    std::size_t count = 0;
  };
  // Columns that a task computes.
  struct Segment {
    std::int64_t first_column = 0;  // of the ring, in the image; may be negative
    std::int64_t pixel = 0;         // of a row of y
    std::int64_t pixels = 0;
    std::vector<Columns> tiles;
  };
  // What a task does for every row.
  struct Plan {
    std::vector<WindowJob> jobs;
    std::vector<Batch> batches;
  };
  // How neighbouring outputs share what they load.
  struct Sharing {
    std::int64_t spacing = 1;   // outputs of a tile, in units of pixels_
    std::int64_t tap_step = 1;  // taps of a chain
    int width = 0;
    double cost = 0;    // of a row of taps, in cycles
    double inputs = 0;  // registers loaded for it
  };
  struct Task {
    std::int64_t image = 0;
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    const Segment* segment = nullptr;
    const Plan* plan = nullptr;
    std::size_t panel_begin = 0;
    std::size_t panel_end = 0;
    std::int64_t channel = 0;   // first input channel
    std::int64_t channels = 0;  // of the ring
    std::int64_t block = 0;
    std::int64_t first = 0;  // row of the image that slot 0 of the ring holds
    std::int64_t next = 0;   // to be put into the ring
    float* ring = nullptr;
    float* sums = nullptr;
    std::int32_t* whole = nullptr;
    const float** rows = nullptr;
  };

  std::int64_t panel_floats() const { return height_.kernel * width_.kernel * group_inputs_ * lanes_; }
  std::int64_t tasks() const { return images_ * bands_ * std::ssize(segments_) * blocks_; }
  void turn();
  bool pays_to_turn() const;
  void cut_panels();
  void choose_lanes();
  std::int64_t outputs_of_row() const { return width_.output / pixels_; }
  Sharing sharing(const WindowAxis& axis, std::int64_t outputs) const;
  Sharing cost_of(Sharing sharing, const WindowAxis& axis, std::int64_t outputs) const;
  double cost_of_image(const WindowAxis& rows, const WindowAxis& columns) const;
  void cut_segments(std::int64_t outputs, bool whole_rows);
  Columns tile_at(const Segment& segment, std::int64_t pixel, std::int64_t count, int width) const;
  std::vector<Chain> chains(std::int64_t begin, std::int64_t end) const;
  void share_out(int threads, std::int64_t piece_channels);
  std::int64_t block_channels(std::int64_t block) const;
  std::int64_t ring_floats() const;
  std::int64_t tile_floats() const;
  Task task_of(std::int64_t index, std::byte* scratch) const;
  float* slot(const Task& task, std::int64_t row) const {
    return task.ring + (row - task.first) % ring_rows_ * ring_columns_ * task.channels;
  }
  Rows next_rows(Task& task) const;
  void find_rows(Task& task, const TapRange& taps) const;
  void plan_jobs();
  // Sums of a batch. False: what `whole` holds is to be added.
  bool add_up(const Task& task, const TapRange& taps, const Batch& batch, const float* packed) const;
  void add_whole(const Task& task, WindowTile tile, WindowKernels::Function function, std::int64_t of_row,
                 std::size_t floats, std::int64_t& products) const;

  template <typename PartBody, typename TileBody>
  void run_row(const Task& task, const TapRange& taps, std::int64_t row, const float* packed, PartBody& part,
               TileBody& tile, std::byte* scratch) const {
    const std::int64_t pixel = task.image * height_.output * width_.output + row * height_.y_step;
    for (const Batch& batch : task.plan->batches) {
      const bool complete = add_up(task, taps, batch, packed);
      part(Part{task.sums, complete ? nullptr : task.whole,
                row_kernels().windows.columns[batch.tile->width] * lanes_,
                task.plan->jobs.data() + batch.first, static_cast<std::int64_t>(batch.count),
                batch.tile->count, pixel * channels_out_,
                sharing_.spacing * pixels_ * width_.y_step * channels_out_},
           scratch);
    }
    const Panel& last = panels_[task.panel_end - 1];
    const std::int64_t channel = panels_[task.panel_begin].output;
    const std::int64_t channels = pixels_ > 1 ? channels_out_ : last.output + last.outputs - channel;
    tile(Tile{task.segment->pixels, (pixel + task.segment->pixel * width_.y_step) * channels_out_ + channel,
              width_.y_step * channels_out_, channel, channels},
         scratch);
  }

  WindowAxis height_;
  WindowAxis width_;
  std::int64_t images_ = 0;
  std::int64_t channels_in_ = 0;
  std::int64_t channels_out_ = 0;
  std::int64_t groups_ = 0;
  std::int64_t group_inputs_ = 0;
  std::int64_t group_outputs_ = 0;
  std::int64_t lanes_ = 0;
  bool exact_ = false;
  std::int64_t pixels_ = 1;  // that share a register
  std::vector<Panel> panels_;
  std::vector<std::int32_t> lane_sources_;  // empty: its own
  Sharing sharing_;
  std::vector<Segment> segments_;
  std::vector<Plan> plans_;  // [segments][blocks]
  std::int64_t ring_columns_ = 0;
  std::int64_t ring_rows_ = 0;
  std::int64_t piece_rows_ = 1;  // that are put into it together
  std::int64_t block_ = 1;       // panels of a task
  std::int64_t blocks_ = 1;
  std::int64_t bands_ = 1;  // of the rows of an image
};

}  // namespace pipit::internal
