// Quantize, Dequantize, the sum and the product of two INT8 tensors, and functions of one.
#include "layers/ops/qelementwise.h"

#include <array>
#include <cstring>
#include <optional>

#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/byte_loops.h"
#include "layers/cpu/vector/lookup.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"

namespace pipit::internal {

namespace {

// Elements of a chunk: what is read and written of each is 2 to 5 bytes.
constexpr std::int64_t kChunk = kChunkBytes;

Refusal refuse_layouts(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  for (const TensorDesc* input : spec.inputs) {
    if (input->layout != spec.outputs[0].layout && !spec.outputs[0].layouts_coincide()) {
      return "inputs and output have different layouts";
    }
  }
  return std::nullopt;
}

void run_quantize(const Quantize& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& context) {
  const ByteTarget target(layer.y());
  const auto* x = inputs[0].as<float>();
  parallel_chunks(context.pool, outputs[0].desc.elements(), kChunk,
                  [&](std::int64_t begin, std::int64_t end) {
                    quantize_span(x + begin, layer.y().scale, target, outputs[0].data + begin, end - begin);
                  });
}

// With what follows: functions of one element, sums and products with a constant per channel, and a Quantize, which
// ends it. Integers that stay in floating point for one layer are not written as f32, then.
class DequantizeKernel final : public Kernel {
 public:
  explicit DequantizeKernel(const NodeSpec& spec)
      : x_(layer_as<Dequantize>(spec.layer).x()),
        channels_(channels_of(spec.outputs[0])),
        threads_(spec.threads) {
    std::span<const NodeSpec* const> followers = spec.fusion.followers;
    if (followers.empty()) return;
    if (const auto* quantize = dynamic_cast<const Quantize*>(&followers.back()->layer)) {
      y_ = quantize->y();
      followers = followers.first(followers.size() - 1);
    }
    epilogue_ = Epilogue(1, followers);
  }
  std::size_t scratch_bytes() const override {
    return y_ ? values_bytes() * static_cast<std::size_t>(threads_) : 0;
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::int64_t elements = outputs[0].desc.elements();
    const std::int64_t step = epilogue_.empty() ? kChunk : rows_per_chunk(channels_) * channels_;
    context.pool.parallel_for((elements + step - 1) / step, [&](std::int64_t chunk, int worker) {
      const std::int64_t begin = chunk * step;
      const std::int64_t count = std::min(step, elements - begin);
      auto* values =
          y_ ? reinterpret_cast<float*>(context.scratch + values_bytes() * static_cast<std::size_t>(worker))
             : outputs[0].as<float>() + begin;
      dequantize_span({inputs[0].data + begin, x_}, x_.scale, values, count);
      if (!epilogue_.empty()) epilogue_.apply(values, 0, {channels_, count / channels_, channels_});
      if (y_) quantize_span(values, y_->scale, ByteTarget(*y_), outputs[0].data + begin, count);
    });
  }

  // In rows of channels, or any order where no channel has constants of its own.
  static bool fuses(const NodeSpec& spec, const NodeSpec& next) {
    const auto& followers = spec.fusion.followers;
    const TensorDesc& y = spec.outputs[0];
    const bool ended =
        !followers.empty() && dynamic_cast<const Quantize*>(&followers.back()->layer) != nullptr;
    if (ended || y.elements() == 0) return false;
    if (dynamic_cast<const Quantize*>(&next.layer) != nullptr) {
      return y.layout == next.outputs[0].layout || next.outputs[0].layouts_coincide();
    }
    return y.shape.rank() >= 2 && Epilogue::fuses(1, next) &&
           (is_channels_last(y) || !Epilogue::depends_on_channels(next));
  }

 private:
  static std::int64_t channels_of(const TensorDesc& y) {
    return y.shape.rank() < 2 ? 1 : std::max<std::int64_t>(1, y.shape[1]);
  }
  std::size_t values_bytes() const {
    return worker_stride(static_cast<std::size_t>(std::max(kChunk, rows_per_chunk(channels_) * channels_)) *
                         sizeof(float));
  }

  Quantization x_;
  std::optional<Quantization> y_;
  std::int64_t channels_;
  int threads_;
  Epilogue epilogue_;
};

void run_qadd(const QAdd& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& context) {
  const QAddAttributes& attributes = layer.attributes();
  const ByteTarget target(attributes.y, attributes.activation.low, attributes.activation.high);
  const float a_scale = attributes.a.scale / attributes.y.scale;
  const float b_scale = attributes.b.scale / attributes.y.scale;
  parallel_chunks(
      context.pool, outputs[0].desc.elements(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        add_span({inputs[0].data + begin, attributes.a}, a_scale, {inputs[1].data + begin, attributes.b},
                 b_scale, target, outputs[0].data + begin, end - begin);
      });
}

// Joins short runs that follow each other in y and a and read the same b, as a gate per channel is read for every
// pixel: b is then repeated as often. A call for each run would take longer than what it computes.
class RepeatedRuns {
 public:
  /// Operands as StridedLoop<3> counts them: y, a, b. b: null where runs are not to be joined.
  explicit RepeatedRuns(const std::byte* b) : data_(b) {}

  struct Joined {
    std::array<std::int64_t, 3> at{};
    std::int64_t count = 0;
    const std::byte* b = nullptr;  ///< null: b lies at at[2]
  };

  template <typename Body>
  void add(const std::array<std::int64_t, 3>& at, std::int64_t count, const Body& body) {
    const bool follows = data_ != nullptr && joined_.count > 0 && at[2] == joined_.at[2] && run_ == count &&
                         at[0] == joined_.at[0] + joined_.count && at[1] == joined_.at[1] + joined_.count &&
                         joined_.count + count <= static_cast<std::int64_t>(repeated_.size());
    if (!follows) {
      finish(body);
      if (at[2] != filled_at_ || count != run_) filled_ = 0;
      joined_ = {at, count, nullptr};
      run_ = count;
      filled_at_ = at[2];
      return;
    }
    joined_.count += count;
    for (; filled_ < joined_.count; filled_ += run_)
      std::memcpy(repeated_.data() + filled_, data_ + at[2], static_cast<std::size_t>(run_));
    joined_.b = repeated_.data();
  }

  template <typename Body>
  void finish(const Body& body) {
    if (joined_.count > 0) body(joined_);
    joined_.count = 0;
  }

 private:
  const std::byte* data_;
  Joined joined_;
  std::int64_t run_ = 0;         // of each run that was joined
  std::int64_t filled_at_ = -1;  // what repeated_ holds, and how much of it
  std::int64_t filled_ = 0;
  std::array<std::byte, 2048> repeated_;
};

class QMulKernel final : public Kernel {
 public:
  explicit QMulKernel(const NodeSpec& spec)
      : attributes_(layer_as<QMul>(spec.layer).attributes()),
        loop_(broadcast_loop<3>({&spec.outputs[0], spec.inputs[0], spec.inputs[1]})),
        target_(attributes_.y, attributes_.activation.low, attributes_.activation.high) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float multiplier = qmul_multiplier(attributes_);
    const bool one_b = loop_.row_strides()[2] == 0;
    parallel_chunks(context.pool, loop_.size(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      RepeatedRuns runs(one_b ? nullptr : inputs[1].data);
      const auto multiply = [&](const RepeatedRuns::Joined& joined) {
        const std::byte* b = joined.b != nullptr ? joined.b : inputs[1].data + joined.at[2];
        multiply_span({inputs[0].data + joined.at[1], attributes_.a}, {b, attributes_.b}, one_b, multiplier,
                      target_, outputs[0].data + joined.at[0], joined.count);
      };
      loop_.for_each_run(begin, end,
                         [&](const auto& at, std::int64_t count) { runs.add(at, count, multiply); });
      runs.finish(multiply);
    });
  }

 private:
  QMulAttributes attributes_;
  StridedLoop<3> loop_;
  ByteTarget target_;
};

// Rows of a and y that are contiguous, and of b that are or that are one value.
Refusal refuse_qmul(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const auto step = broadcast_loop<3>({&spec.outputs[0], spec.inputs[0], spec.inputs[1]}).row_strides();
  if (step[0] > 1 || step[1] != step[0] || step[2] > 1) return "the operands lie in different orders";
  return std::nullopt;
}

class QUnaryKernel final : public Kernel {
 public:
  explicit QUnaryKernel(const NodeSpec& spec)
      : table_(unary_table(layer_as<QUnary>(spec.layer).attributes())) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    parallel_chunks(context.pool, outputs[0].desc.elements(), kChunk,
                    [&](std::int64_t begin, std::int64_t end) {
                      lookup_span(table_, inputs[0].data + begin, outputs[0].data + begin, end - begin);
                    });
  }

 private:
  std::array<std::uint8_t, 256> table_;
};

template <typename K>
std::unique_ptr<Kernel> make(const NodeSpec& spec) {
  return std::make_unique<K>(spec);
}

}  // namespace

void register_cpu_qelementwise(Registry& registry) {
  add_layer_kernel<Quantize>(registry, "vector", refuse_layouts, run_quantize);
  Candidate dequantize{"vector", refuse_layouts, make<DequantizeKernel>};
  dequantize.fusions.epilogue = DequantizeKernel::fuses;
  registry.add(Dequantize::kType, DeviceKind::cpu, std::move(dequantize));
  add_layer_kernel<QAdd>(registry, "vector", refuse_layouts, run_qadd);
  registry.add(QMul::kType, DeviceKind::cpu, {"vector", refuse_qmul, make<QMulKernel>});
  registry.add(QUnary::kType, DeviceKind::cpu, {"table", refuse_layouts, make<QUnaryKernel>});
}

}  // namespace pipit::internal
