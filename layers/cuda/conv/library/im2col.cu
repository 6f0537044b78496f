#include "layers/cuda/conv/library/library.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace pipit::internal::cuda {

namespace {

constexpr int kThreads = 256;

// One column of the patch matrix: where its tap lies, relative to the window's start.
struct Column {
  int offset;           // in elements, of the input; negative: a zero column
  short depth, height;  // in positions
  int width;
};

// Parameters by value, narrowed to 32 bits (problem() has checked that they fit).
struct Geometry {
  int rows, columns;
  int out_d, out_h, out_w;
  int in_d, in_h, in_w;
  int step_d, step_h, step_w;  // of the window
  int pad_d, pad_h, pad_w;
  long long batch_stride;
  int stride_d, stride_h, stride_w;
};

template <typename V, typename E>
__global__ void __launch_bounds__(kThreads)
    im2col(Geometry g, const Column* table, const E* input, V* patches) {
  for (int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y); row < g.rows;
       row += static_cast<int>(gridDim.x * blockDim.y)) {
    int rest = row;
    const int w0 = rest % g.out_w * g.step_w - g.pad_w;
    rest /= g.out_w;
    const int h0 = rest % g.out_h * g.step_h - g.pad_h;
    rest /= g.out_h;
    const int d0 = rest % g.out_d * g.step_d - g.pad_d;
    const E* window = input + rest / g.out_d * g.batch_stride + static_cast<long long>(d0) * g.stride_d +
                      static_cast<long long>(h0) * g.stride_h + static_cast<long long>(w0) * g.stride_w;
    V* to = patches + static_cast<long long>(row) * g.columns;
    for (int c = static_cast<int>(threadIdx.x); c < g.columns; c += static_cast<int>(blockDim.x)) {
      const Column column = table[c];
      const bool inside = column.offset >= 0 &&
                          static_cast<unsigned>(d0 + column.depth) < static_cast<unsigned>(g.in_d) &&
                          static_cast<unsigned>(h0 + column.height) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(w0 + column.width) < static_cast<unsigned>(g.in_w);
      V value{};
      if (inside) value = *reinterpret_cast<const V*>(window + column.offset);
      to[c] = value;
    }
  }
}

template <typename V, typename E>
void launch(const Geometry& g, const DeviceBuffer& table, const void* input, void* patches,
            cudaStream_t stream) {
  // Threads along a row write neighbouring memory; short rows share a warp.
  int along = 32;
  while (along > 1 && along / 2 >= g.columns) along /= 2;
  const int rows = kThreads / along;
  const int blocks = std::min((g.rows + rows - 1) / rows, 132 * 64);
  im2col<<<static_cast<unsigned>(blocks), dim3(static_cast<unsigned>(along), static_cast<unsigned>(rows)), 0,
           stream>>>(g, table.as<const Column>(), static_cast<const E*>(input), static_cast<V*>(patches));
  check_launch("im2col");
}

}  // namespace

const char* Im2col::problem(const Im2colShape& s, std::int64_t images) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  const std::int64_t image = (s.input[0] - 1) * s.stride[0] + (s.input[1] - 1) * s.stride[1] +
                             (s.input[2] - 1) * s.stride[2] +
                             (s.groups * s.group_channels - 1) * s.channel_stride;
  const std::int64_t positions = images * s.output[0] * s.output[1] * s.output[2];
  if (image >= kMax / 4 || positions >= kMax || s.groups * s.row >= kMax)
    return "an image has too many elements";
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Window& w = s.window;
    const std::int64_t reach =
        w.span(static_cast<int>(axis)) + s.input[axis] + w.pad_begin[axis] + w.pad_end[axis];
    if (reach >= (axis == 2 ? kMax / 2 : 32767)) return "the window or an extent is too large";
    if ((w.span(static_cast<int>(axis)) - 1) * s.stride[axis] >= kMax / 4) return "the window is too large";
  }
  return nullptr;
}

Im2col::Im2col(const Im2colShape& shape) : shape_(shape) {
  const std::int64_t wide = static_cast<std::int64_t>(16 / shape.element);
  // Sixteen bytes at once where channels are dense and every start of a run of channels is so aligned.
  const bool dense = shape.channel_stride == 1 && shape.group_channels % wide == 0 &&
                     (shape.kept.empty() || shape.block % wide == 0) && shape.row % wide == 0 &&
                     shape.batch_stride % wide == 0 && shape.stride[0] % wide == 0 &&
                     shape.stride[1] % wide == 0 && shape.stride[2] % wide == 0;
  vector_ = dense ? static_cast<int>(wide) : 1;
  columns_ = shape.groups * shape.row / vector_;
  const Window& w = shape.window;
  std::vector<Column> table(static_cast<std::size_t>(columns_), Column{-1, 0, 0, 0});
  for (std::int64_t c = 0; c < columns_; ++c) {
    std::int64_t at = c * vector_ % shape.row;
    if (!shape.kept.empty()) {
      const auto run = static_cast<std::size_t>(at / shape.block);
      if (run >= shape.kept.size()) continue;
      at = shape.kept[run] + at % shape.block;
    }
    const std::int64_t tap = at / shape.group_channels;
    if (tap >= w.taps()) continue;
    const std::int64_t channel = c * vector_ / shape.row * shape.group_channels + at % shape.group_channels;
    const std::int64_t kw = tap % w.kernel[2] * w.dilation[2];
    const std::int64_t kh = tap / w.kernel[2] % w.kernel[1] * w.dilation[1];
    const std::int64_t kd = tap / w.kernel[2] / w.kernel[1] * w.dilation[0];
    table[static_cast<std::size_t>(c)] = {
        static_cast<int>(channel * shape.channel_stride + kd * shape.stride[0] + kh * shape.stride[1] +
                         kw * shape.stride[2]),
        static_cast<short>(kd), static_cast<short>(kh), static_cast<int>(kw)};
  }
  table_ = DeviceBuffer(table.data(), table.size() * sizeof(Column));
}

void Im2col::run(const void* input, std::int64_t images, void* patches, cudaStream_t stream) const {
  const Im2colShape& s = shape_;
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  Geometry g{};
  g.rows = narrow(images * s.output[0] * s.output[1] * s.output[2]);
  g.columns = narrow(columns_);
  g.out_d = narrow(s.output[0]);
  g.out_h = narrow(s.output[1]);
  g.out_w = narrow(s.output[2]);
  g.in_d = narrow(s.input[0]);
  g.in_h = narrow(s.input[1]);
  g.in_w = narrow(s.input[2]);
  g.step_d = narrow(s.window.stride[0]);
  g.step_h = narrow(s.window.stride[1]);
  g.step_w = narrow(s.window.stride[2]);
  g.pad_d = narrow(s.window.pad_begin[0]);
  g.pad_h = narrow(s.window.pad_begin[1]);
  g.pad_w = narrow(s.window.pad_begin[2]);
  g.batch_stride = s.batch_stride;
  g.stride_d = narrow(s.stride[0]);
  g.stride_h = narrow(s.stride[1]);
  g.stride_w = narrow(s.stride[2]);
  if (vector_ > 1 && s.element == 2) {
    launch<uint4, unsigned short>(g, table_, input, patches, stream);
  } else if (vector_ > 1) {
    launch<uint4, float>(g, table_, input, patches, stream);
  } else if (s.element == 2) {
    launch<unsigned short, unsigned short>(g, table_, input, patches, stream);
  } else {
    launch<float, float>(g, table_, input, patches, stream);
  }
}

}  // namespace pipit::internal::cuda
