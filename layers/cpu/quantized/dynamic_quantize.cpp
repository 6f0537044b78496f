// DynamicQuantize: the range or the largest magnitude of each sample, then its integers. Both in chunks; a maximum of
// integers does not depend on how it is cut.
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/byte_loops.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Elements of a chunk.
constexpr std::int64_t kChunk = kChunkBytes;

class DynamicQuantizer final : public Kernel {
 public:
  explicit DynamicQuantizer(const NodeSpec& spec)
      : target_(dynamic_bytes(spec.outputs[0].dtype)),
        samples_(spec.outputs[1].elements()),
        size_(spec.inputs[0]->elements() / samples_),
        chunks_((size_ + kChunk - 1) / kChunk) {}

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(samples_ * (chunks_ + 1)) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* x = inputs[0].as<float>();
    float* scales = outputs[1].as<float>();
    auto* largest = reinterpret_cast<std::uint32_t*>(context.scratch);  // [sample][chunk]
    auto* inverses = reinterpret_cast<float*>(context.scratch) + samples_ * chunks_;
    const auto in_chunks = [&](auto body) {
      context.pool.parallel_for(samples_ * chunks_, [&](std::int64_t task, int /*worker*/) {
        const std::int64_t begin = task % chunks_ * kChunk;
        body(task, task / chunks_ * size_ + begin, std::min(kChunk, size_ - begin));
      });
    };
    in_chunks([&](std::int64_t task, std::int64_t begin, std::int64_t count) {
      largest[task] = largest_magnitude_bits(x + begin, count);
    });
    for (std::int64_t s = 0; s < samples_; ++s) {
      const std::uint32_t* of_sample = largest + s * chunks_;
      const DynamicScale found = dynamic_scale(*std::max_element(of_sample, of_sample + chunks_));
      scales[s] = found.scale;
      inverses[s] = found.inverse;
    }
    in_chunks([&](std::int64_t task, std::int64_t begin, std::int64_t count) {
      quantize_steps(x + begin, inverses[task / chunks_], target_, outputs[0].data + begin, count);
    });
  }

 private:
  ByteTarget target_;
  std::int64_t samples_;
  std::int64_t size_;    // elements of a sample
  std::int64_t chunks_;  // of a sample
};

// The same with a zero point, of the whole tensor.
class AffineQuantizer final : public Kernel {
 public:
  explicit AffineQuantizer(const NodeSpec& spec)
      : size_(spec.inputs[0]->elements()), chunks_((size_ + kChunk - 1) / kChunk) {}

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(chunks_) * sizeof(ValueRange);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* x = inputs[0].as<float>();
    auto* ranges = reinterpret_cast<ValueRange*>(context.scratch);
    const auto in_chunks = [&](auto body) {
      context.pool.parallel_for(chunks_, [&](std::int64_t task, int /*worker*/) {
        body(task, task * kChunk, std::min(kChunk, size_ - task * kChunk));
      });
    };
    in_chunks([&](std::int64_t task, std::int64_t begin, std::int64_t count) {
      ranges[task] = value_range(x + begin, count);
    });
    ValueRange all;
    bool finite = true;
    for (std::int64_t task = 0; task < chunks_; ++task) {
      finite = finite && std::isfinite(ranges[task].low) && std::isfinite(ranges[task].high);
      all = {std::min(all.low, ranges[task].low), std::max(all.high, ranges[task].high)};
    }
    const AffineScale found = finite ? affine_scale(all.low, all.high) : affine_scale(0, INFINITY);
    *outputs[1].as<float>() = found.scale;
    *outputs[2].as<std::uint8_t>() = static_cast<std::uint8_t>(found.zero_point);
    if (std::isnan(found.scale)) {
      std::fill_n(outputs[0].data, size_, std::byte{0});
      return;
    }
    const ByteTarget target(found.quantization());
    in_chunks([&](std::int64_t /*task*/, std::int64_t begin, std::int64_t count) {
      quantize_span(x + begin, found.scale, target, outputs[0].data + begin, count);
    });
  }

 private:
  std::int64_t size_;
  std::int64_t chunks_;
};

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (spec.inputs[0]->layout != spec.outputs[0].layout && !spec.outputs[0].layouts_coincide())
    return "input and output have different layouts";
  if (spec.outputs[0].elements() == 0) return "the input is empty";
  return std::nullopt;
}

}  // namespace

void register_cpu_dynamic_quantize(Registry& registry) {
  registry.add(DynamicQuantize::kType, DeviceKind::cpu,
               {"vector", refuse, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                  if (layer_as<DynamicQuantize>(spec.layer).attributes().affine)
                    return std::make_unique<AffineQuantizer>(spec);
                  return std::make_unique<DynamicQuantizer>(spec);
                }});
}

}  // namespace pipit::internal
