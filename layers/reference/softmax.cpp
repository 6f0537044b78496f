#include "layers/ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/reference/float_kernel.h"
#include "layers/reference/group_loops.h"

namespace pipit::internal {

namespace {

struct SoftmaxReference {
  template <typename T>
  static void run(const Softmax& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool&) {
    const TensorDesc& desc = inputs[0].desc;
    const SoftmaxGroups range = softmax_groups(layer.attributes(), desc.shape);
    const GroupLoops<2> loops =
        group_loops<2>(desc.shape, range.begin, range.end, {outputs[0].desc.strides(), desc.strides()});
    loops.groups.for_each([&](const auto& at) {
      T* y = outputs[0].as<T>() + at[0];
      const T* x = inputs[0].as<T>() + at[1];
      double highest = -std::numeric_limits<double>::infinity();
      loops.inside.for_each(
          [&](const auto& i) { highest = std::max(highest, static_cast<double>(x[i[1]])); });
      double sum = 0;
      loops.inside.for_each([&](const auto& i) { sum += std::exp(x[i[1]] - highest); });
      const double log_sum = std::log(sum);
      loops.inside.for_each([&](const auto& i) {
        const double shifted = x[i[1]] - highest;
        y[i[0]] = static_cast<T>(layer.attributes().log ? shifted - log_sum : std::exp(shifted) / sum);
      });
    });
  }
};

}  // namespace

void register_reference_softmax(Registry& registry) {
  add_float_reference<Softmax, SoftmaxReference>(registry);
}

}  // namespace pipit::internal
