// RNN, GRU and LSTM with constant weights: in every step a product of the hidden state with the packed weights, then
// the gates of each sample. Directions and blocks of samples are shared out; a step waits for the one before.
#include "layers/ops/recurrent.h"

#include <algorithm>
#include <vector>

#include "engine/graph/shared_buffer.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Columns of a packed block; its rows follow each other.
constexpr std::int64_t kColumns = 64;
// Samples that one worker takes through all steps.
constexpr std::int64_t kSamples = 8;

// GCC drops attributes whose values depend on a template's parameter.
template <int kLanes>
struct BlockLanes;
template <>
struct BlockLanes<8> {
  using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct BlockLanes<16> {
  using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));
};

// y += x times a packed block.
template <int kLanes>
PIPIT_INLINE inline void add_block(const float* packed, const float* x, std::int64_t depth, float* y) {
  using Vector = typename BlockLanes<kLanes>::Vector;
  constexpr int kVectors = kColumns / kLanes;
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = reinterpret_cast<const Vector*>(y)[v];
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto* row = reinterpret_cast<const Vector*>(packed + k * kColumns);
    for (int v = 0; v < kVectors; ++v) sums[v] += x[k] * row[v];
  }
  for (int v = 0; v < kVectors; ++v) reinterpret_cast<Vector*>(y)[v] = sums[v];
}

// c = f c + i g and, of a cell state after its activation, h = o a.
PIPIT_INLINE inline void add_products(const float* f, const float* c, const float* i, const float* g,
                                      float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t j = 0; j < count; ++j) y[j] = f[j] * c[j] + i[j] * g[j];
}
PIPIT_INLINE inline void multiply_rows(const float* a, const float* b, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t j = 0; j < count; ++j) y[j] = a[j] * b[j];
}
PIPIT_INLINE inline void add_product(const float* a, const float* b, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t j = 0; j < count; ++j) y[j] += a[j] * b[j];
}
PIPIT_INLINE inline void one_minus(const float* x, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t j = 0; j < count; ++j) y[j] = 1 - x[j];
}
PIPIT_INLINE inline void limit(float* y, std::int64_t count, float clip) {
  for (std::int64_t j = 0; j < count; ++j) {
    const float low = y[j] < -clip ? -clip : y[j];
    y[j] = low > clip ? clip : low;
  }
}
// h = (1 - z) n + z h
PIPIT_INLINE inline void mix(const float* z, const float* n, float* h, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t j = 0; j < count; ++j) h[j] = (1 - z[j]) * n[j] + z[j] * h[j];
}

Refusal refuse_recurrent(const NodeSpec& spec) {
  if (spec.precision != Precision::fp32) return refuse_reduced_precision(spec);
  if (spec.inputs[Recurrent::kGates]->dtype != DType::f32) return "only f32 is handled";
  if (spec.constant(Recurrent::kWeights) == nullptr) return "the weights are computed at run time";
  return refuse_unless_row_major(spec);
}

class PackedRecurrent final : public Kernel {
 public:
  explicit PackedRecurrent(const NodeSpec& spec)
      : a_(layer_as<Recurrent>(spec.layer).attributes()),
        g_(a_, spec.inputs[Recurrent::kGates]->shape, spec.inputs[Recurrent::kWeights]->shape),
        threads_(spec.threads) {
    // Gate h of a GRU has another operand or another scale, so that its product is one of its own.
    common_ = a_.kind == RecurrentKind::gru ? 2 : g_.gates;
    common_columns_ = padded(common_ * g_.hidden);
    rest_columns_ = padded((g_.gates - common_) * g_.hidden);
    HostBuffer packed =
        zeroed_host_buffer(static_cast<std::size_t>(g_.directions * direction_floats()) * sizeof(float));
    auto* to = reinterpret_cast<float*>(packed.data());
    const std::span<const float> weights = spec.constant(Recurrent::kWeights)->values<float>();
    for (std::int64_t d = 0; d < g_.directions; ++d) {
      const float* from = weights.data() + d * g_.gates * g_.hidden * g_.hidden;
      pack(from, common_ * g_.hidden, to + d * direction_floats());
      pack(from + common_ * g_.hidden * g_.hidden, (g_.gates - common_) * g_.hidden,
           to + d * direction_floats() + common_columns_ * g_.hidden);
    }
    packed_ = SharedBuffer(std::move(packed));
  }

  std::size_t scratch_bytes() const override { return worker_bytes() * static_cast<std::size_t>(threads_); }
  bool reads_constant(std::size_t index) const override { return index != Recurrent::kWeights; }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    for (std::int64_t b = 0; b < g_.samples; ++b)
      sequence_length(inputs, g_, b);  // throws here, not in a worker
    const std::int64_t blocks = (g_.samples + kSamples - 1) / kSamples;
    context.pool.parallel_for(g_.directions * blocks, [&](std::int64_t task, int worker) {
      Samples samples;
      samples.direction = task / blocks;
      samples.first = task % blocks * kSamples;
      samples.count = std::min(kSamples, g_.samples - samples.first);
      auto* memory =
          reinterpret_cast<float*>(context.scratch + static_cast<std::size_t>(worker) * worker_bytes());
      samples.gates = memory;
      samples.hidden = samples.gates + kSamples * gate_stride();
      samples.cell = samples.hidden + kSamples * g_.hidden;
      samples.other = samples.cell + kSamples * g_.hidden;
      run_samples(samples, inputs, outputs);
    });
  }

 private:
  struct Samples {
    std::int64_t direction = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
    float* gates = nullptr;   // [samples][gate_stride()]
    float* hidden = nullptr;  // [samples][hidden]
    float* cell = nullptr;    // likewise
    float* other = nullptr;   // [rest_columns_ and hidden at least], of one sample
    std::int64_t length[kSamples] = {};
  };

  static std::int64_t padded(std::int64_t columns) { return (columns + kColumns - 1) / kColumns * kColumns; }
  std::int64_t direction_floats() const { return (common_columns_ + rest_columns_) * g_.hidden; }
  // Gates that are computed together, filled up to whole blocks, then gate h of a GRU, filled up likewise.
  std::int64_t gate_stride() const { return common_columns_ + rest_columns_; }
  std::size_t worker_bytes() const {
    const std::int64_t floats = kSamples * (gate_stride() + 2 * g_.hidden) + padded(g_.hidden);
    return worker_stride(static_cast<std::size_t>(floats) * sizeof(float));
  }

  // Rows [columns][hidden] as blocks of columns.
  void pack(const float* from, std::int64_t columns, float* to) const {
    for (std::int64_t c = 0; c < columns; ++c) {
      float* block = to + c / kColumns * kColumns * g_.hidden + c % kColumns;
      for (std::int64_t k = 0; k < g_.hidden; ++k) block[k * kColumns] = from[c * g_.hidden + k];
    }
  }
  const float* weights_of(std::int64_t direction) const {
    return reinterpret_cast<const float*>(packed_.data()) + direction * direction_floats();
  }
  // y [columns filled up] += x times packed weights, for all samples while a block is in the cache.
  void multiply_all(const float* packed, std::int64_t columns, const float* x, float* y, std::int64_t y_step,
                    std::int64_t count) const {
    for (std::int64_t c = 0; c < columns; c += kColumns) {
      for (std::int64_t b = 0; b < count; ++b)
        simd<add_block<8>, add_block<16>>(packed + c * g_.hidden, x + b * g_.hidden, g_.hidden,
                                          y + b * y_step + c);
    }
  }

  void activate(std::int64_t direction, std::size_t which, float* y, std::int64_t count) const {
    if (a_.clip > 0 && which < 2) simd<limit>(y, count, static_cast<float>(a_.clip));
    const std::size_t first = static_cast<std::size_t>(direction) * recurrent_activations(a_.kind);
    unary_span(a_.activations[first + which], y, y, SpanRows{count, 1, count});
  }

  void start(Samples& s, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) const {
    const float* hidden = optional_data<float>(inputs, Recurrent::kFirstHidden);
    const float* cell = optional_data<float>(inputs, Recurrent::kFirstCell);
    const std::int64_t count = s.count * g_.hidden;
    const std::int64_t at = (s.direction * g_.samples + s.first) * g_.hidden;
    const auto fill = [&](const float* from, float* to) {
      if (from != nullptr) std::copy_n(from + at, count, to);
      if (from == nullptr) std::fill_n(to, count, 0.0F);
    };
    fill(hidden, s.hidden);
    fill(cell, s.cell);
    for (std::int64_t b = 0; b < s.count; ++b) {
      s.length[b] = sequence_length(inputs, g_, s.first + b);
      for (std::int64_t t = s.length[b]; t < g_.positions; ++t)
        std::fill_n(outputs[0].as<float>() + place(s, t, b), g_.hidden, 0.0F);
    }
  }
  std::int64_t place(const Samples& s, std::int64_t t, std::int64_t b) const {
    return ((t * g_.directions + s.direction) * g_.samples + s.first + b) * g_.hidden;
  }

  void run_samples(Samples& s, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs) const {
    start(s, inputs, outputs);
    const bool reversed = RecurrentGeometry::reversed(a_, s.direction);
    const std::int64_t rows = g_.gates * g_.hidden;
    const std::int64_t longest = *std::max_element(s.length, s.length + s.count);
    for (std::int64_t step = 0; step < longest; ++step) {
      const auto position = [&](std::int64_t b) { return reversed ? s.length[b] - 1 - step : step; };
      for (std::int64_t b = 0; b < s.count; ++b) {
        float* gates = s.gates + b * gate_stride();
        std::fill_n(gates, gate_stride(), 0.0F);
        if (step >= s.length[b]) continue;
        const float* x = inputs[Recurrent::kGates].as<float>() +
                         ((position(b) * g_.samples + s.first + b) * g_.directions + s.direction) * rows;
        std::copy_n(x, common_ * g_.hidden, gates);
        std::copy_n(x + common_ * g_.hidden, rows - common_ * g_.hidden, gates + common_columns_);
      }
      multiply_all(weights_of(s.direction), common_columns_, s.hidden, s.gates, gate_stride(), s.count);
      for (std::int64_t b = 0; b < s.count; ++b) {
        if (step >= s.length[b]) continue;
        finish_step(s, b, inputs);
        std::copy_n(s.hidden + b * g_.hidden, g_.hidden, outputs[0].as<float>() + place(s, position(b), b));
      }
    }
    const std::int64_t at = (s.direction * g_.samples + s.first) * g_.hidden;
    std::copy_n(s.hidden, s.count * g_.hidden, outputs[1].as<float>() + at);
    if (outputs.size() > 2) std::copy_n(s.cell, s.count * g_.hidden, outputs[2].as<float>() + at);
  }

  void finish_step(Samples& s, std::int64_t b, std::span<const ConstTensorView> inputs) const {
    float* gates = s.gates + b * gate_stride();
    float* hidden = s.hidden + b * g_.hidden;
    if (a_.kind == RecurrentKind::lstm) return finish_lstm(s, b, inputs);
    if (a_.kind == RecurrentKind::gru) return finish_gru(s, b, inputs);
    activate(s.direction, 0, gates, g_.hidden);
    std::copy_n(gates, g_.hidden, hidden);
  }

  void finish_lstm(Samples& s, std::int64_t b, std::span<const ConstTensorView> inputs) const {
    const std::int64_t n = g_.hidden;
    float* input = s.gates + b * gate_stride();
    float *output = input + n, *forget = input + 2 * n, *candidate = input + 3 * n;
    float* cell = s.cell + b * n;
    const float* peepholes = optional_data<float>(inputs, Recurrent::kPeepholes);
    if (peepholes != nullptr) peepholes += s.direction * 3 * n;
    if (peepholes != nullptr) simd<add_product>(peepholes, cell, input, n);
    if (peepholes != nullptr) simd<add_product>(peepholes + 2 * n, cell, forget, n);
    activate(s.direction, 0, input, n);
    if (a_.input_forget) {
      simd<one_minus>(input, forget, n);
    } else {
      activate(s.direction, 0, forget, n);
    }
    activate(s.direction, 1, candidate, n);
    simd<add_products>(forget, cell, input, candidate, cell, n);
    if (peepholes != nullptr) simd<add_product>(peepholes + n, cell, output, n);
    activate(s.direction, 0, output, n);
    std::copy_n(cell, n, s.other);
    activate(s.direction, 2, s.other, n);
    simd<multiply_rows>(output, s.other, s.hidden + b * n, n);
  }

  void finish_gru(Samples& s, std::int64_t b, std::span<const ConstTensorView> inputs) const {
    const std::int64_t n = g_.hidden;
    float* update = s.gates + b * gate_stride();
    float* reset = update + n;
    float* candidate = update + common_columns_;
    float* hidden = s.hidden + b * n;
    const float* weights = weights_of(s.direction) + common_columns_ * n;
    activate(s.direction, 0, update, n);
    activate(s.direction, 0, reset, n);
    if (a_.linear_before_reset) {
      const float* bias = optional_data<float>(inputs, Recurrent::kHiddenBias);
      std::fill_n(s.other, rest_columns_, 0.0F);
      if (bias != nullptr) std::copy_n(bias + s.direction * n, n, s.other);
      multiply_all(weights, rest_columns_, hidden, s.other, rest_columns_, 1);
      simd<add_product>(reset, s.other, candidate, n);
    } else {
      simd<multiply_rows>(reset, hidden, s.other, n);
      multiply_all(weights, rest_columns_, s.other, candidate, rest_columns_, 1);
    }
    activate(s.direction, 1, candidate, n);
    simd<mix>(update, candidate, hidden, n);
  }

  RecurrentAttributes a_;
  RecurrentGeometry g_;
  int threads_;
  std::int64_t common_ = 0;  // gates whose products are computed together
  std::int64_t common_columns_ = 0;
  std::int64_t rest_columns_ = 0;
  SharedBuffer packed_;
};

}  // namespace

void register_cpu_recurrent(Registry& registry) {
  registry.add(Recurrent::kType, DeviceKind::cpu, {"steps", refuse_recurrent, [](const NodeSpec& spec) {
                                                     return std::make_unique<PackedRecurrent>(spec);
                                                   }});
}

}  // namespace pipit::internal
