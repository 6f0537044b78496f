// ChannelShuffle of NHWC data, pixel by pixel.
#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/common/dispatch.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/channel_shuffle.h"

namespace pipit::internal {

namespace {

Refusal refuse_shuffle(const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  for (const TensorDesc* x : spec.inputs) {
    if (!is_channels_last(*x)) return "inputs must be channels_last";
    if (x->dtype != y.dtype) return "inputs are stored differently";
  }
  for (const TensorDesc& output : spec.outputs) {
    if (!is_channels_last(output)) return "outputs must be channels_last";
  }
  return std::nullopt;
}

// Channels that follow each other in an input and stand `groups` apart in an output, both in elements of a pixel.
struct Run {
  std::size_t input = 0, output = 0;
  std::int64_t from = 0, to = 0, count = 0;
};

// The runs of an output are in the order of `to`, so that those that alternate are neighbours.
std::vector<Run> runs_of(const NodeSpec& spec) {
  const ChannelShuffleAttributes& a = layer_as<ChannelShuffle>(spec.layer).attributes();
  const std::int64_t groups = a.groups;
  const std::int64_t channels = std::accumulate(a.sizes.begin(), a.sizes.end(), std::int64_t{0});
  const std::int64_t of_group = channels / groups;
  std::vector<Run> runs;
  std::int64_t y_begin = 0;
  for (std::size_t o = 0; o < spec.outputs.size(); ++o) {
    const std::int64_t y_end = y_begin + a.sizes[o];
    const std::size_t first_run = runs.size();
    std::int64_t x_begin = 0;
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      const std::int64_t x_end = x_begin + a.taken_of(i, *spec.inputs[i]);
      for (std::int64_t g = 0; g < groups; ++g) {
        // Channel m of group g is the input's where it lies in it, and the output's where m * groups + g does.
        const auto first = [&](std::int64_t bound) { return bound <= g ? 0 : ceil_div(bound - g, groups); };
        const std::int64_t low = std::max(first(y_begin), x_begin - g * of_group);
        const std::int64_t high = std::min({first(y_end), x_end - g * of_group, of_group});
        if (low < high)
          runs.push_back({i, o, g * of_group + low - x_begin, low * groups + g - y_begin, high - low});
      }
      x_begin = x_end;
    }
    std::sort(runs.begin() + static_cast<std::ptrdiff_t>(first_run), runs.end(),
              [](const Run& l, const Run& r) { return l.to < r.to; });
    y_begin = y_end;
  }
  return runs;
}

// Two runs whose channels alternate.
template <typename T>
void interleave(T* __restrict y, const T* __restrict a, const T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[2 * i] = a[i];
    y[2 * i + 1] = b[i];
  }
}

template <typename T>
void scatter(T* __restrict y, std::int64_t step, const T* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i * step] = x[i];
}

class ShuffleRows final : public Kernel {
 public:
  explicit ShuffleRows(const NodeSpec& spec)
      : a_(layer_as<ChannelShuffle>(spec.layer).attributes()), runs_(runs_of(spec)) {
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const bool two = a_.groups == 2 && r + 1 < runs_.size() && runs_[r + 1].output == runs_[r].output &&
                       runs_[r + 1].to == runs_[r].to + 1 && runs_[r + 1].count == runs_[r].count;
      steps_.push_back({r, two});
      if (two) ++r;
    }
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    with_element_size(outputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      std::int64_t channels = 0, elements = 0;
      for (const TensorView& y : outputs) {
        channels += y.desc.shape[1];
        elements += y.desc.elements();
      }
      if (elements == 0) return;
      const std::int64_t step =
          std::max<std::int64_t>(1, kChunkBytes / (channels * static_cast<std::int64_t>(sizeof(T))));
      parallel_chunks(context.pool, elements / channels, step, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t pixel = begin; pixel < end; ++pixel) {
          for (const Step& s : steps_) shuffle<T>(s, inputs, outputs, pixel);
          for (std::size_t o = 0; o < outputs.size(); ++o) {
            const std::int64_t again = a_.width_of(o) - a_.sizes[o];
            if (again == 0) continue;
            T* const next = reinterpret_cast<T*>(outputs[o].data) + (pixel + 1) * a_.width_of(o);
            std::fill(next - again, next, next[-again - 1]);
          }
        }
      });
    });
  }

 private:
  // Run `first`, and the next one where two alternate.
  struct Step {
    std::size_t first;
    bool two;
  };

  template <typename T>
  void shuffle(const Step& s, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
               std::int64_t pixel) const {
    const Run& run = runs_[s.first];
    const auto source = [&](const Run& r) {
      const ConstTensorView& x = inputs[r.input];
      return reinterpret_cast<const T*>(x.data) + pixel * x.desc.shape[1] + r.from;
    };
    const TensorView& y = outputs[run.output];
    T* const to = reinterpret_cast<T*>(y.data) + pixel * y.desc.shape[1] + run.to;
    if (s.two) {
      interleave(to, source(run), source(runs_[s.first + 1]), run.count);
    } else {
      scatter(to, a_.groups, source(run), run.count);
    }
  }

  ChannelShuffleAttributes a_;
  std::vector<Run> runs_;
  std::vector<Step> steps_;
};

}  // namespace

void register_cpu_channel_shuffle(Registry& registry) {
  registry.add(ChannelShuffle::kType, DeviceKind::cpu, {"rows", refuse_shuffle, [](const NodeSpec& spec) {
                                                          return std::make_unique<ShuffleRows>(spec);
                                                        }});
}

}  // namespace pipit::internal
