// Pooling on NHWC and NDHWC data, vectorized over the channels.
#include "layers/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "engine/base/ceil_div.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kNearFloats = 4096;  // a third of a first-level cache

// One window per image, of which a task takes a row.
bool takes_rows(const Image& x, const Image& y) {
  return y.positions() == 1 && !shares_channels(x.channels, x.batch * x.positions());
}

Refusal refuse_pool(const NodeSpec& spec) {
  const PoolAttributes& attributes = layer_as<Pool>(spec.layer).attributes();
  if (attributes.indices) return "positions of the maxima are not tracked";
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (attributes.kind == PoolKind::lp && attributes.p > 2) return "only norms of order 1 and 2 are handled";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  return std::nullopt;
}

PIPIT_INLINE inline void sqrt_row(float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = std::sqrt(y[i]);
}

template <typename T>
typename PoolKernels<T>::Function reduction_of(const PoolAttributes& attributes) {
  const PoolKernels<T>& kernels = stored_kernels<T>().pools;
  switch (attributes.kind) {
    case PoolKind::max:
      return kernels.max;
    case PoolKind::average:
      return kernels.sum;
    case PoolKind::lp:
      break;
  }
  return attributes.p == 1 ? kernels.sum_absolute : kernels.sum_squares;
}

// T: what activations are stored in. Where windows overlap, the rows of an output row's taps are reduced for every
// column first, and then the columns for every output; elsewhere all taps of an output at once.
template <typename T>
class PoolRows final : public Kernel {
 public:
  explicit PoolRows(const NodeSpec& spec)
      : attributes_(layer_as<Pool>(spec.layer).attributes()),
        x_(*spec.inputs[0]),
        y_(spec.outputs[0]),
        y_pixel_(y_.channels),
        window_(as_3d(pool_window(attributes_, spec.inputs[0]->shape))),
        reduction_(reduction_of<T>(attributes_)),
        // What joins the results of rows; sums of absolute values or squares are not taken again.
        join_(attributes_.kind == PoolKind::max ? row_kernels().f32.pools.max : row_kernels().f32.pools.sum),
        threads_(spec.threads),
        by_rows_(takes_rows(x_, y_)),
        whole_windows_(whole_windows()) {
    if (const std::size_t stride = spec.fusion.row_stride; stride != 0)
      y_pixel_ = static_cast<std::int64_t>(stride / dtype_bytes(spec.outputs[0].dtype));
    share_out();
  }

  std::size_t scratch_bytes() const override {
    if (!by_rows_) return static_cast<std::size_t>(threads_) * worker_bytes_;
    // The sums of all rows, and for elements of 16 bits those of an image.
    const std::int64_t rows = x_.batch * x_.extent[0] * x_.extent[1] + (kHalves ? 1 : 0);
    return static_cast<std::size_t>(rows * x_.channels) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (by_rows_) {
      run_rows(inputs[0].as<T>(), outputs[0].as<T>(), context);
    } else {
      run_windows(inputs[0].as<T>(), outputs[0].as<T>(), context);
    }
  }

 private:
  static constexpr bool kHalves = !std::is_same_v<T, float>;

  // What a task computes: a block of channels of an output row.
  struct Row {
    std::int64_t slice;  // of the output
    std::int64_t row;
    std::int64_t output;  // elements of y before it
    std::int64_t channels;
    TapRange d, h;
  };

  std::int64_t output_rows() const { return y_.batch * y_.extent[0] * y_.extent[1]; }

  void share_out() {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    constexpr std::int64_t kMinChannels = 4 * kLine;
    constexpr std::int64_t kMaxJoined = 1 << 16;  // floats: an eighth of a second-level cache of 2 MiB
    const std::int64_t width = x_.extent[2];
    const std::int64_t rows =
        std::min(window_.kernel[0], x_.extent[0]) * std::min(window_.kernel[1], x_.extent[1]);
    const std::int64_t columns = std::min(window_.kernel[2], width);
    joins_rows_ = width * kMinChannels <= kMaxJoined &&
                  width * (rows + 1) + y_.extent[2] * columns < y_.extent[2] * rows * columns;
    // Channels that one task takes: few output rows (global pooling) leave the channels to share out.
    block_ = output_rows() < 32 ? kMinChannels : std::max<std::int64_t>(y_.channels, 1);
    if (joins_rows_) block_ = std::min(block_, std::max(kNearFloats / width / kLine * kLine, kMinChannels));
    joined_ = joins_rows_ ? round_up(width * block_, kLine) : 0;
    stage_outputs_ = std::max<std::int64_t>(kNearFloats / block_, 1);
    const std::int64_t stage = kHalves ? std::min(stage_outputs_, y_.extent[2]) * block_ : 0;
    worker_bytes_ = worker_stride(static_cast<std::size_t>(joined_ + stage) * sizeof(float));
  }

  void run_windows(const T* x, T* y, const RunContext& context) const {
    const std::int64_t blocks = ceil_div(y_.channels, block_);
    context.pool.parallel_for(output_rows() * blocks, [&](std::int64_t task, int worker) {
      const std::int64_t index = task / blocks;
      const std::int64_t channel = task % blocks * block_;
      Row row{};
      row.row = index % y_.extent[1];
      row.slice = index / y_.extent[1] % y_.extent[0];
      row.output = index * y_.extent[2] * y_pixel_ + channel;
      row.channels = std::min(block_, y_.channels - channel);
      row.d = taps_inside(window_, 0, row.slice, x_.extent[0]);
      row.h = taps_inside(window_, 1, row.row, x_.extent[1]);
      const T* image = x + index / y_.extent[1] / y_.extent[0] * x_.positions() * x_.channels + channel;
      float* scratch =
          reinterpret_cast<float*>(context.scratch + static_cast<std::size_t>(worker) * worker_bytes_);
      if (joins_rows_) {
        join_rows(image, row, scratch);
        for_each_stretch([&](std::int64_t begin, std::int64_t end) {
          const TapRange w = taps_inside(window_, 2, begin, x_.extent[2]);
          PoolRow<float> columns;
          columns.taps.data = scratch + (w.start + w.begin * window_.dilation[2]) * row.channels;
          columns.taps.column_step = window_.dilation[2] * row.channels;
          columns.taps.rows = 1;
          columns.taps.columns = w.count();
          columns.x_step = window_.stride[2] * row.channels;
          reduce(join_, columns, row, begin, end, y, scratch + joined_);
        });
      } else {
        for_each_stretch([&](std::int64_t begin, std::int64_t end) {
          PoolRow<T> windows;
          windows.taps = taps_of(image, x_.extent[1], x_.extent[2], x_.channels, window_, row.d, row.h,
                                 taps_inside(window_, 2, begin, x_.extent[2]));
          windows.x_step = window_.stride[2] * x_.channels;
          reduce(reduction_, windows, row, begin, end, y, scratch);
        });
      }
    });
  }

  // Calls body(begin, end) for neighbouring outputs of a row whose windows have the same columns inside of x.
  template <typename Body>
  void for_each_stretch(Body&& body) const {
    const auto [begin, end] = whole_windows_;
    for (std::int64_t column = 0; column < begin; ++column) body(column, column + 1);
    if (begin < end) body(begin, end);
    for (std::int64_t column = end; column < y_.extent[2]; ++column) body(column, column + 1);
  }

  // The columns of y whose windows have all their columns inside of x, [begin, end) with begin <= end.
  std::pair<std::int64_t, std::int64_t> whole_windows() const {
    const std::int64_t stride = window_.stride[2];
    const std::int64_t last =
        x_.extent[2] - 1 - window_.dilation[2] * (window_.kernel[2] - 1) + window_.pad_begin[2];
    const std::int64_t begin = std::min(ceil_div(window_.pad_begin[2], stride), y_.extent[2]);
    return {begin, last < 0 ? begin : std::clamp(last / stride + 1, begin, y_.extent[2])};
  }

  // to[column][channel] = the reduction of all rows of taps.
  void join_rows(const T* image, const Row& row, float* to) const {
    const std::int64_t width = x_.extent[2] * x_.channels;
    PoolRow<T> rows;
    rows.taps.data = image + ((row.d.start + row.d.begin * window_.dilation[0]) * x_.extent[1] + row.h.start +
                              row.h.begin * window_.dilation[1]) *
                                 width;
    rows.taps.row_step = window_.dilation[0] * x_.extent[1] * width;
    rows.taps.column_step = window_.dilation[1] * width;
    rows.taps.rows = row.d.count();
    rows.taps.columns = row.h.count();
    rows.x_step = x_.channels;
    rows.outputs = x_.extent[2];
    rows.count = row.channels;
    rows.y = to;
    rows.y_step = row.channels;
    reduction_(rows);
  }

  // Outputs [begin, end) of a row from the taps of the first. 16 bits: through `stage`.
  template <typename From>
  void reduce(typename PoolKernels<From>::Function function, PoolRow<From>& call, const Row& row,
              std::int64_t begin, std::int64_t end, T* y, [[maybe_unused]] float* stage) const {
    call.count = row.channels;
    call.factor = factor_at({row.slice, row.row, begin});
    T* to = y + row.output + begin * y_pixel_;
    if constexpr (kHalves) {
      call.y = stage;
      call.y_step = row.channels;
      for (; begin < end; begin += call.outputs) {
        call.outputs = std::min(end - begin, stage_outputs_);
        function(call);
        call.taps.data += call.outputs * call.x_step;
        finish(stage, call.outputs * row.channels);
        const bool joined = y_pixel_ == row.channels;
        const std::int64_t count = row.channels * (joined ? call.outputs : 1);
        for (std::int64_t i = 0; i < (joined ? 1 : call.outputs); ++i)
          narrow_row(stage + i * row.channels, to + i * y_pixel_, count);
        to += call.outputs * y_pixel_;
      }
    } else {
      call.y = to;
      call.y_step = y_pixel_;
      call.outputs = end - begin;
      function(call);
      for (std::int64_t i = 0; is_norm() && i < call.outputs; ++i) finish(to + i * y_pixel_, row.channels);
    }
  }

  // One window per image: first the rows, which are where the workers that wrote them find them, then what they add up
  // to; the order of sums is that of run_windows().
  void run_rows(const T* x, T* y, const RunContext& context) const {
    float* partial = reinterpret_cast<float*>(context.scratch);
    const std::int64_t channels = y_.channels;
    const TapRange d = taps_inside(window_, 0, 0, x_.extent[0]);
    const TapRange h = taps_inside(window_, 1, 0, x_.extent[1]);
    const TapRange w = taps_inside(window_, 2, 0, x_.extent[2]);
    const std::int64_t rows = d.count() * h.count();  // of an image
    context.pool.parallel_for(x_.batch * rows, [&](std::int64_t task, int /*worker*/) {
      const std::int64_t slice = d.start + (d.begin + task % rows / h.count()) * window_.dilation[0];
      const std::int64_t row = h.start + (h.begin + task % h.count()) * window_.dilation[1];
      PoolRow<T> call;
      call.taps.data = x + (((task / rows * x_.extent[0] + slice) * x_.extent[1] + row) * x_.extent[2] +
                            w.start + w.begin * window_.dilation[2]) *
                               channels;
      call.taps.column_step = window_.dilation[2] * channels;
      call.taps.rows = 1;
      call.taps.columns = w.count();
      call.count = channels;
      call.y = partial + task * channels;
      reduction_(call);
    });
    PoolRow<float> sums;
    sums.taps.column_step = channels;
    sums.taps.rows = 1;
    sums.taps.columns = rows;
    sums.count = channels;
    sums.factor = factor_at({0, 0, 0});
    for (std::int64_t n = 0; n < x_.batch; ++n) {
      sums.taps.data = partial + n * rows * channels;
      if constexpr (kHalves) {
        sums.y = partial + x_.batch * x_.extent[0] * x_.extent[1] * channels;
      } else {
        sums.y = y + n * y_pixel_;
      }
      join_(sums);
      finish(sums.y, channels);
      if constexpr (kHalves) narrow_row(sums.y, y + n * y_pixel_, channels);
    }
  }

  // What the sum of an output position is multiplied by.
  float factor_at(const std::array<std::int64_t, 3>& position) const {
    if (attributes_.kind != PoolKind::average) return 1;
    const std::int64_t divisor = average_divisor(window_, attributes_.count_include_pad, position, x_.extent);
    return 1 / static_cast<float>(std::max<std::int64_t>(divisor, 1));
  }

  bool is_norm() const { return attributes_.kind == PoolKind::lp && attributes_.p == 2; }
  void finish(float* y, std::int64_t count) const {
    if (is_norm()) simd<sqrt_row>(y, count);
  }

  PoolAttributes attributes_;
  Image x_;
  Image y_;
  std::int64_t y_pixel_;  // elements from one pixel of the output to the next
  Window window_;         // three-dimensional
  typename PoolKernels<T>::Function reduction_;
  PoolKernels<float>::Function join_;
  int threads_;
  bool by_rows_;
  std::pair<std::int64_t, std::int64_t> whole_windows_;
  bool joins_rows_ = false;         // of taps, before their columns
  std::int64_t block_ = 0;          // channels that one task takes
  std::int64_t joined_ = 0;         // floats of the joined rows
  std::int64_t stage_outputs_ = 0;  // 16 bits: at a time
  std::size_t worker_bytes_ = 0;
};

}  // namespace

void register_cpu_pool(Registry& registry) {
  Candidate nhwc{"nhwc", refuse_pool, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                   if (spec.inputs[0]->dtype == DType::f16) return std::make_unique<PoolRows<Half>>(spec);
                   if (spec.inputs[0]->dtype == DType::bf16)
                     return std::make_unique<PoolRows<BFloat16>>(spec);
                   return std::make_unique<PoolRows<float>>(spec);
                 }};
  nhwc.fusions.writes_strided_rows = [](const NodeSpec&) { return true; };
  registry.add(Pool::kType, DeviceKind::cpu, std::move(nhwc));
}

}  // namespace pipit::internal
