// Concatenation along the channels of NHWC data, pixel by pixel.
#include <algorithm>
#include <cstring>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

Refusal refuse_concat(const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  if (y.shape.rank() < 3 ||
      normalize_axis(layer_as<Concat>(spec.layer).attributes().axis, y.shape.rank(), "Concat") != 1) {
    return "the axis is not that of the channels of an image";
  }
  if (!is_channels_last(y)) return "the output must be channels_last";
  for (const TensorDesc* input : spec.inputs) {
    if (!is_channels_last(*input)) return "inputs must be channels_last";
    if (input->dtype != y.dtype) return "inputs are stored differently";
  }
  return std::nullopt;
}

// Bytes of an output pixel, as the Concat alone has it.
std::size_t row_bytes(const NodeSpec& spec) {
  return static_cast<std::size_t>(spec.outputs[0].shape[1]) * dtype_bytes(spec.outputs[0].dtype);
}

std::optional<RowPlace> place_of_input(const NodeSpec& spec, std::size_t input) {
  RowPlace place{0, spec.fusion.row_stride != 0 ? spec.fusion.row_stride : row_bytes(spec)};
  for (std::size_t i = 0; i < input; ++i)
    place.offset += static_cast<std::size_t>(spec.inputs[i]->shape[1]) * dtype_bytes(spec.outputs[0].dtype);
  return place;
}

class ConcatRows final : public Kernel {
 public:
  explicit ConcatRows(const NodeSpec& spec)
      : type_(spec.outputs[0].dtype), threads_(spec.threads), epilogue_(1, spec.fusion.followers) {
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(spec.outputs[0].dtype));
    const Shape& y = spec.outputs[0].shape;
    channels_ = y[1];
    row_ = channels_ * bytes;
    pixels_ = channels_ == 0 ? 0 : y.elements() / channels_;
    stride_ = spec.fusion.row_stride != 0 ? static_cast<std::int64_t>(spec.fusion.row_stride) : row_;
    std::int64_t offset = 0;
    for (const TensorDesc* input : spec.inputs) {
      parts_.push_back({offset, input->shape[1] * bytes});
      offset += parts_.back().bytes;
    }
    for (const std::size_t input : spec.fusion.in_place) parts_[input].in_place = true;
  }
  std::size_t scratch_bytes() const override {
    return widens() ? static_cast<std::size_t>(row_floats() * threads_) * sizeof(float) : 0;
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const bool copies = std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return !p.in_place; });
    if (!copies && epilogue_.empty()) return;
    if (widens()) return run_halves(inputs, outputs[0].data, context);
    const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(1, row_));
    parallel_chunks(context.pool, pixels_, step, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pixel = begin; pixel < end; ++pixel) {
        std::byte* y = outputs[0].data + pixel * stride_;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          const Part& part = parts_[i];
          if (part.in_place) continue;
          std::memcpy(y + part.offset, inputs[i].data + pixel * part.bytes,
                      static_cast<std::size_t>(part.bytes));
        }
      }
      if (epilogue_.empty()) return;
      epilogue_.apply(reinterpret_cast<float*>(outputs[0].data + begin * stride_), 0,
                      {channels_, end - begin, stride_ / static_cast<std::int64_t>(sizeof(float))});
    });
  }

 private:
  // 16 bits on which arithmetic follows: each pixel is computed in f32.
  bool widens() const { return is_stored_float(type_) && !epilogue_.empty(); }
  std::int64_t row_floats() const { return (channels_ + 15) / 16 * 16; }

  void run_halves(std::span<const ConstTensorView> inputs, std::byte* to, const RunContext& context) const {
    const std::int64_t step = rows_per_chunk(channels_);
    context.pool.parallel_for((pixels_ + step - 1) / step, [&](std::int64_t chunk, int worker) {
      float* row = reinterpret_cast<float*>(context.scratch) + worker * row_floats();
      for (std::int64_t pixel = chunk * step; pixel < std::min(pixels_, (chunk + 1) * step); ++pixel) {
        std::byte* y = to + pixel * stride_;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          const Part& part = parts_[i];
          const std::byte* x = part.in_place ? y + part.offset : inputs[i].data + pixel * part.bytes;
          widen_row(type_, x, 0, row + part.offset / kHalf, part.bytes / kHalf);
        }
        epilogue_.apply(row, 0, {channels_});
        narrow_row(row, type_, y, 0, channels_);
      }
    });
  }

  static constexpr std::int64_t kHalf = sizeof(Half);
  // An input's share of an output pixel, in bytes.
  struct Part {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    bool in_place = false;  // its kernel wrote it there
  };

  DType type_;
  int threads_;
  std::int64_t channels_ = 0;
  std::int64_t pixels_ = 0;
  std::int64_t row_ = 0;     // bytes of an output pixel
  std::int64_t stride_ = 0;  // from one to the next
  std::vector<Part> parts_;
  Epilogue epilogue_;
};

}  // namespace

void register_cpu_concat(Registry& registry) {
  Candidate rows{"rows", refuse_concat,
                 [](const NodeSpec& spec) { return std::make_unique<ConcatRows>(spec); }};
  rows.fusions.epilogue = fuses_image_epilogue;
  rows.fusions.place_of_input = place_of_input;
  rows.fusions.writes_strided_rows = [](const NodeSpec&) { return true; };
  registry.add(Concat::kType, DeviceKind::cpu, std::move(rows));
}

}  // namespace pipit::internal
