// Concatenation along the channels of NHWC data, pixel by pixel.
#include <cstring>
#include <vector>

#include "layers/arrange.h"
#include "layers/cpu/chunks.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/epilogue.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

Refusal refuse_concat(const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  if (y.dtype != DType::f32 && y.dtype != DType::f16) return "only f32 and f16 are handled";
  if (y.shape.rank() < 3 ||
      normalize_axis(layer_as<Concat>(spec.layer).attributes().axis, y.shape.rank(), "Concat") != 1) {
    return "the axis is not that of the channels of an image";
  }
  if (spec.precision == Precision::int8) return refuse_reduced_precision(spec);
  if (!is_channels_last(y)) return "the output must be channels_last";
  for (const TensorDesc* input : spec.inputs) {
    if (!is_channels_last(*input)) return "inputs must be channels_last";
    if (input->dtype != y.dtype) return "inputs are stored differently";
  }
  return std::nullopt;
}

class ConcatRows final : public Kernel {
 public:
  explicit ConcatRows(const NodeSpec& spec) : is_f32_(spec.outputs[0].dtype == DType::f32) {
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(spec.outputs[0].dtype));
    const Shape& y = spec.outputs[0].shape;
    channels_ = y[1];
    row_ = channels_ * bytes;
    pixels_ = channels_ == 0 ? 0 : y.elements() / channels_;
    for (const TensorDesc* input : spec.inputs) parts_.push_back(input->shape[1] * bytes);
  }
  bool absorb(const NodeSpec& next) override { return is_f32_ && epilogue_.absorb(next); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(1, row_));
    parallel_chunks(context.pool, pixels_, step, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pixel = begin; pixel < end; ++pixel) {
        std::byte* y = outputs[0].data + pixel * row_;
        std::byte* to = y;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          std::memcpy(to, inputs[i].data + pixel * parts_[i], static_cast<std::size_t>(parts_[i]));
          to += parts_[i];
        }
        if (!epilogue_.empty()) epilogue_.apply(reinterpret_cast<float*>(y), 0, channels_);
      }
    });
  }

 private:
  bool is_f32_;
  std::int64_t channels_ = 0;
  std::int64_t pixels_ = 0;
  std::int64_t row_ = 0;             // bytes of an output pixel
  std::vector<std::int64_t> parts_;  // bytes of a pixel of every input
  Epilogue epilogue_{1};
};

}  // namespace

void register_cpu_concat(Registry& registry) {
  registry.add(Concat::kType, DeviceKind::cpu, {"rows", refuse_concat, [](const NodeSpec& spec) {
                                                  return std::make_unique<ConcatRows>(spec);
                                                }});
}

}  // namespace pipit
