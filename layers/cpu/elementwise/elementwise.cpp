#include "layers/common/dispatch.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/binary.h"
#include "layers/ops/operands.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kChunk = kChunkBytes / static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kStaged = 2048;  // elements of 16 bits that are made f32 at a time

Refusal refuse_unary(const NodeSpec& spec) {
  const bool stored = stores_16_bits(spec.precision) && is_stored_float(spec.outputs[0].dtype);
  if (Refusal reason = stored ? refuse_unless_stored_floats(spec) : refuse_unless_f32(spec)) return reason;
  if (spec.inputs[0]->layout != spec.outputs[0].layout && !spec.outputs[0].layouts_coincide()) {
    return "input and output have different layouts";
  }
  return std::nullopt;
}

template <typename T>
void unary_stored(const UnaryAttributes& attributes, const T* x, T* y, std::int64_t count) {
  if (const auto span = stored_span<T>(attributes.kind)) return span(x, y, {count});
  float stage[kStaged];
  for (std::int64_t i = 0; i < count; i += kStaged) {
    const std::int64_t staged = std::min(kStaged, count - i);
    widen_row(x + i, stage, staged);
    unary_span(attributes, stage, stage, {staged});
    narrow_row(stage, y + i, staged);
  }
}

void run_unary(const Unary& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& context) {
  if (const DType type = outputs[0].desc.dtype; is_stored_float(type)) {
    with_stored_float(type, [&]<typename T>(std::type_identity<T>) {
      const auto* x = inputs[0].as<T>();
      auto* y = outputs[0].as<T>();
      parallel_chunks(context.pool, outputs[0].desc.elements(), kChunk,
                      [&](std::int64_t begin, std::int64_t end) {
                        unary_stored(layer.attributes(), x + begin, y + begin, end - begin);
                      });
    });
    return;
  }
  const auto* x = inputs[0].as<float>();
  auto* y = outputs[0].as<float>();
  parallel_chunks(context.pool, outputs[0].desc.elements(), kChunk,
                  [&](std::int64_t begin, std::int64_t end) {
                    unary_span(layer.attributes(), x + begin, y + begin, {end - begin});
                  });
}

Refusal refuse_binary(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  const BinaryKind kind = layer_as<Binary>(spec.layer).attributes().kind;
  if (!has_binary_span(kind)) return std::string(binary_name(kind)) + " is left to the reference";
  if (spec.outputs[0].dtype == DType::f32) return std::nullopt;
  const auto steps = broadcast_loop<3>({&spec.outputs[0], spec.inputs[0], spec.inputs[1]}).row_strides();
  if (steps[1] > 1 || steps[2] > 1) return "16 bits: elements of a row do not follow each other";
  return std::nullopt;
}

// An operand of a binary layer, of 16 bits or (a constant) of floats, as f32, kStaged at a time; `step` along a row is
// 0 or 1.
struct StoredOperand {
  const std::byte* data;
  std::int64_t step;
  std::int64_t elements;
  DType type;
  bool dense;  // its elements lie like those of the result

  StoredOperand(const ConstTensorView& view, std::int64_t row_step, const TensorView& result)
      : data(view.data),
        step(row_step),
        elements(view.desc.elements()),
        type(view.desc.dtype),
        dense(view.desc.shape == result.desc.shape && view.desc.layout == result.desc.layout) {}

  // What serves many rows is made f32 once for all of them.
  bool prepared() const { return is_stored_float(type) && (dense || elements <= kStaged); }
  void prepare(std::int64_t begin, std::int64_t end, float* stage) const {
    if (!prepared()) return;
    const std::int64_t first = dense ? begin : 0;
    widen_row(type, data, first, stage, (dense ? end : elements) - first);
  }
  // Whether rows() gives several rows at once where they lie `next` apart.
  bool serves_rows(std::int64_t next) const { return !is_stored_float(type) || prepared() || next == 0; }
  // Rows of `count` elements, the first from element `at` on and the others `next` apart; `begin` as in prepare().
  StridedFloats rows(std::int64_t at, std::int64_t next, std::int64_t begin, std::int64_t count,
                     float* stage) const {
    if (!is_stored_float(type)) return {reinterpret_cast<const float*>(data) + at, step, next};
    if (prepared()) return {stage + (dense ? at - begin : at), step, next};
    widen_row(type, data, at, stage, step == 0 ? 1 : count);
    return {stage, step};
  }
};

class BinaryKernel final : public Kernel {
 public:
  explicit BinaryKernel(const NodeSpec& spec)
      : attributes_(layer_as<Binary>(spec.layer).attributes()),
        loop_(broadcast_loop<3>({&spec.outputs[0], spec.inputs[0], spec.inputs[1]})) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (is_stored_float(outputs[0].desc.dtype)) return run_stored(inputs, outputs[0], context.pool);
    const auto* a = inputs[0].as<float>();
    const auto* b = inputs[1].as<float>();
    auto* y = outputs[0].as<float>();
    // A dense output in loop order: its innermost stride is 1.
    const auto step = loop_.row_strides();
    const auto next = loop_.row_steps();
    parallel_chunks(context.pool, loop_.size(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      loop_.for_each_rows(begin, end, [&](const auto& at, std::int64_t count, std::int64_t rows) {
        binary_span(attributes_, {a + at[1], step[1], next[1]}, {b + at[2], step[2], next[2]}, y + at[0],
                    {count, rows, next[0]});
      });
    });
  }

 private:
  void run_stored(std::span<const ConstTensorView> inputs, const TensorView& result, ThreadPool& pool) const {
    const auto steps = loop_.row_strides();
    const StoredOperand a(inputs[0], steps[1], result);
    const StoredOperand b(inputs[1], steps[2], result);
    const auto next = loop_.row_steps();
    const bool together = a.serves_rows(next[1]) && b.serves_rows(next[2]);
    parallel_chunks(pool, loop_.size(), kStaged, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) float stages[3][kStaged];
      a.prepare(begin, end, stages[0]);
      b.prepare(begin, end, stages[1]);
      // The result is dense in loop order. Rows may be short, so one call takes several.
      loop_.for_each_rows(begin, end, [&](const auto& at, std::int64_t count, std::int64_t rows) {
        const std::int64_t most = together ? rows : 1;
        for (std::int64_t r = 0; r < rows; r += most) {
          binary_span(attributes_, a.rows(at[1] + r * next[1], next[1], begin, count, stages[0]),
                      b.rows(at[2] + r * next[2], next[2], begin, count, stages[1]),
                      stages[2] + (at[0] + r * next[0] - begin), {count, most, next[0]});
        }
      });
      narrow_row(stages[2], result.desc.dtype, result.data, begin, end - begin);
    });
  }

  BinaryAttributes attributes_;
  StridedLoop<3> loop_;
};

}  // namespace

void register_cpu_elementwise(Registry& registry) {
  add_layer_kernel<Unary>(registry, "vector", refuse_unary, run_unary);
  registry.add(Binary::kType, DeviceKind::cpu, {"vector", refuse_binary, [](const NodeSpec& spec) {
                                                  return std::make_unique<BinaryKernel>(spec);
                                                }});
}

}  // namespace pipit::internal
