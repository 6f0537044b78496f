#include "layers/ops/grid_sample.h"

#include "layers/reference/float_kernel.h"
#include "layers/reference/index.h"

namespace pipit::internal {

namespace {

struct GridSampleReference {
  template <typename T>
  static void run(const GridSample& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool& /*pool*/) {
    const ConstTensorView& x = inputs[0];
    const int rank = x.desc.shape.rank();
    const Strides x_strides = x.desc.strides();
    const Strides grid_strides = inputs[1].desc.strides();
    const Strides y_strides = outputs[0].desc.strides();
    for_each_index(outputs[0].desc.shape, [&](const Index& i) {
      std::array<GridTaps, kMaxRank> taps{};
      Index at{};
      at[0] = i[0];
      for (int d = 2; d < rank; ++d) at[static_cast<std::size_t>(d - 1)] = i[static_cast<std::size_t>(d)];
      std::int64_t count = 1;
      for (int d = 2; d < rank; ++d) {
        at[static_cast<std::size_t>(rank - 1)] = rank - 1 - d;  // the innermost dimension first
        const T position = inputs[1].as<T>()[offset_of(at, grid_strides, rank)];
        taps[static_cast<std::size_t>(d)] = grid_taps(layer.attributes(), position, x.desc.shape[d]);
        count *= taps[static_cast<std::size_t>(d)].count;
      }
      double sum = 0;
      for (std::int64_t tap = 0; tap < count; ++tap) {
        Index from{i[0], i[1]};
        double weight = 1;
        std::int64_t rest = tap;
        for (std::size_t d = 2; d < static_cast<std::size_t>(rank); ++d) {
          const auto which = static_cast<std::size_t>(rest % taps[d].count);
          rest /= taps[d].count;
          from[d] = taps[d].index[which];
          weight *= static_cast<double>(taps[d].weight[which]);
        }
        sum += weight * x.as<T>()[offset_of(from, x_strides, rank)];
      }
      outputs[0].as<T>()[offset_of(i, y_strides, rank)] = static_cast<T>(sum);
    });
  }
};

}  // namespace

void register_reference_grid_sample(Registry& registry) {
  add_float_reference<GridSample, GridSampleReference>(registry);
}

}  // namespace pipit::internal
