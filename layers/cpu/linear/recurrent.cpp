// RNN, GRU and LSTM: in every step a product of the hidden states with the packed weights, then the gates.
// Directions and blocks of samples are shared out; a step waits for the one before.
#include "layers/ops/recurrent.h"

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "engine/graph/shared_buffer.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/byte_state.h"
#include "layers/cpu/linear/gemm.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Samples that one worker takes through all steps, of which all use the weights that one has read: more where these
// are larger than a second-level cache.
constexpr std::int64_t kSamples = 16;
constexpr std::int64_t kMaxSamples = 32;
constexpr std::int64_t kCachedFloats = 1 << 19;
// Columns of a task that packs weights.
constexpr std::int64_t kPackedColumns = 192;

// Floats from one row to the next: rows do not compete for the same lines of a cache.
std::int64_t row_step(std::int64_t columns) {
  return round_up(columns, kGemmPadding) + kGemmPadding;
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
  if (spec.has_input(Recurrent::kScales)) {
    for (const std::size_t i : {Recurrent::kWeights, Recurrent::kScales, Recurrent::kZeroPoints})
      if (spec.constant(i) == nullptr) return "weights in 8 bits are computed at run time";
    if (spec.inputs[Recurrent::kWeights]->elements() == 0) return "there are no weights";
  }
  return refuse_unless_row_major(spec);
}

// The samples of one task, and where they are.
struct RecurrentBlock {
  std::int64_t direction = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 0;
  const float* weights = nullptr;
  float* gates = nullptr;   // [samples][gate_step_]
  float* hidden = nullptr;  // [samples][hidden_step_]
  float* cell = nullptr;    // likewise
  float* other = nullptr;   // likewise
  float* workspace = nullptr;
  ThreadPool* pool = nullptr;
  std::int64_t length[kMaxSamples] = {};

  bool goes_on(std::int64_t b) const { return step < length[b]; }
};

class PackedRecurrent final : public Kernel {
 public:
  explicit PackedRecurrent(const NodeSpec& spec)
      : a_(layer_as<Recurrent>(spec.layer).attributes()),
        g_(a_, spec.inputs[Recurrent::kGates]->shape, spec.inputs[Recurrent::kWeights]->shape),
        threads_(spec.threads),
        gate_step_(row_step(g_.gates * g_.hidden)),
        hidden_step_(row_step(g_.hidden)) {
    // Gate h of a GRU has another operand or another scale, so that its product is one of its own.
    const std::int64_t common = a_.kind == RecurrentKind::gru ? 2 : g_.gates;
    common_ = GemmBlocking(g_.hidden, common * g_.hidden, kPackedColumns);
    rest_ = GemmBlocking(g_.hidden, (g_.gates - common) * g_.hidden, kPackedColumns);
    direction_floats_ = static_cast<std::int64_t>(common_.packed_floats() + rest_.packed_floats());
    const Tensor* weights = spec.constant(Recurrent::kWeights);
    constant_ = weights != nullptr;
    if (spec.has_input(Recurrent::kScales)) {
      pack_bytes(spec);
      return;
    }
    if (!constant_) return;
    HostBuffer packed(weights_bytes());
    for (std::int64_t task = 0; task < packing_tasks(); ++task)
      pack(weights->values<float>().data(), task, reinterpret_cast<float*>(packed.data()));
    packed_ = SharedBuffer(std::move(packed));
  }

  std::size_t scratch_bytes() const override {
    return (constant_ ? 0 : weights_bytes()) + worker_bytes() * static_cast<std::size_t>(threads_);
  }
  bool reads_constant(std::size_t index) const override {
    return index != Recurrent::kWeights && index != Recurrent::kScales && index != Recurrent::kZeroPoints;
  }
  std::size_t packed_bytes() const override {
    std::size_t bytes = packed_.bytes();
    for (const auto& product : bytes_) bytes += product->packed_bytes();
    return bytes;
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    for (std::int64_t b = 0; b < g_.samples; ++b)
      sequence_length(inputs, g_, b);  // throws here, not in a worker
    const auto* packed = reinterpret_cast<const float*>(packed_.data());
    std::byte* scratch = context.scratch;
    if (!constant_) {
      auto* to = reinterpret_cast<float*>(scratch);
      const float* from = inputs[Recurrent::kWeights].as<float>();
      context.pool.parallel_for(packing_tasks(), [&](std::int64_t task, int) { pack(from, task, to); });
      packed = to;
      scratch += weights_bytes();
    }
    const std::int64_t blocks = ceil_div(g_.samples, most_samples());
    context.pool.parallel_for(g_.directions * blocks, [&](std::int64_t task, int worker) {
      RecurrentBlock block;
      block.direction = task / blocks;
      block.first = task % blocks * most_samples();
      block.count = std::min(most_samples(), g_.samples - block.first);
      block.weights = packed + block.direction * direction_floats_;
      block.workspace = reinterpret_cast<float*>(scratch + static_cast<std::size_t>(worker) * worker_bytes());
      block.pool = &context.pool;
      block.gates = block.workspace + workspace_floats();
      block.hidden = block.gates + rows() * gate_step_;
      block.cell = block.hidden + rows() * hidden_step_;
      block.other = block.cell + rows() * hidden_step_;
      run_block(block, inputs, outputs);
    });
  }

 private:
  std::int64_t most_samples() const { return direction_floats_ > kCachedFloats ? kMaxSamples : kSamples; }
  std::int64_t rows() const { return std::min(most_samples(), g_.samples); }
  std::size_t weights_bytes() const {
    return static_cast<std::size_t>(g_.directions * direction_floats_) * sizeof(float);
  }
  std::size_t worker_bytes() const {
    const auto floats = static_cast<std::size_t>(rows() * (gate_step_ + 3 * hidden_step_));
    return worker_stride((workspace_floats() + floats) * sizeof(float));
  }
  std::size_t workspace_floats() const {
    if (bytes_.empty()) return common_.workspace_floats(rows());
    std::size_t most = 0;
    for (const auto& product : bytes_) most = std::max(most, product->scratch_bytes());
    return static_cast<std::size_t>(round_up(static_cast<std::int64_t>(most), 64)) / sizeof(float);
  }

  // Of every direction; parts of all weights.
  void pack_bytes(const NodeSpec& spec) {
    const Tensor& weights = *spec.constant(Recurrent::kWeights);
    const ConstTensorView zeros = spec.constant(Recurrent::kZeroPoints)->view();
    const auto scales = spec.constant(Recurrent::kScales)->values<float>();
    const std::int64_t rows = g_.gates * g_.hidden;
    for (std::int64_t d = 0; d < g_.directions; ++d) {
      std::vector<int> zero_points;
      for (std::int64_t i = d * rows; i < (d + 1) * rows; ++i) zero_points.push_back(byte_at(zeros, i));
      const SplitWeights split(weights.view().data + d * rows * g_.hidden, weights.desc().dtype,
                               std::move(zero_points), g_.hidden);
      bytes_.push_back(std::make_unique<const ByteStateProduct>(
          split, scales.subspan(static_cast<std::size_t>(d * rows), static_cast<std::size_t>(rows)),
          g_.hidden));
    }
    direction_floats_ = 0;
  }

  std::int64_t packing_tasks() const { return g_.directions * (common_.n_blocks() + rest_.n_blocks()); }
  // Task: one block column of the weights [direction][gates * hidden][hidden].
  void pack(const float* weights, std::int64_t task, float* packed) const {
    const std::int64_t blocks = common_.n_blocks() + rest_.n_blocks();
    weights += task / blocks * g_.gates * g_.hidden * g_.hidden;
    packed += task / blocks * direction_floats_;
    std::int64_t column = task % blocks;
    const bool rest = column >= common_.n_blocks();
    if (rest) {
      column -= common_.n_blocks();
      weights += common_.n * g_.hidden;
      packed += common_.packed_floats();
    }
    pack_block_column(rest ? rest_ : common_, {weights, g_.hidden, true}, column, packed);
  }

  // The product of rows x with packed weights is added to y.
  void multiply(const RecurrentBlock& s, const GemmBlocking& blocking, const float* packed, const float* x,
                float* y, std::int64_t y_step) const {
    for (std::int64_t n = 0; n < blocking.n_blocks(); ++n)
      multiply_block_column(blocking, packed, n, s.count, 1, {x, hidden_step_, false},
                            y + n * blocking.n_block, y_step, s.workspace);
  }

  void multiply_state(const RecurrentBlock& s) const {
    if (!bytes_.empty()) {
      const RunContext context{*s.pool, reinterpret_cast<std::byte*>(s.workspace)};
      for (std::int64_t b = 0; b < s.count; ++b)
        bytes_[static_cast<std::size_t>(s.direction)]->add(s.hidden + b * hidden_step_,
                                                           s.gates + b * gate_step_, context);
      return;
    }
    if (a_.rounds_state) {
      for (std::int64_t b = 0; b < s.count; ++b)
        round_state(s.hidden + b * hidden_step_, s.other + b * hidden_step_, g_.hidden);
    }
    multiply(s, common_, s.weights, a_.rounds_state ? s.other : s.hidden, s.gates, gate_step_);
  }

  // Of all samples.
  void activate(const RecurrentBlock& s, std::size_t which, float* y, std::int64_t columns,
                std::int64_t step) const {
    for (std::int64_t b = 0; b < s.count && a_.clip > 0 && which < 2; ++b)
      simd<limit>(y + b * step, columns, static_cast<float>(a_.clip));
    const std::size_t first = static_cast<std::size_t>(s.direction) * recurrent_activations(a_.kind);
    unary_span(a_.activations[first + which], y, y, SpanRows{columns, s.count, step});
  }

  void start(RecurrentBlock& s, std::span<const ConstTensorView> inputs,
             std::span<const TensorView> outputs) const {
    const float* hidden = optional_data<float>(inputs, Recurrent::kFirstHidden);
    const float* cell = optional_data<float>(inputs, Recurrent::kFirstCell);
    const auto fill = [&](const float* from, float* to) {
      for (std::int64_t b = 0; b < s.count; ++b, to += hidden_step_) {
        if (from == nullptr) std::fill_n(to, g_.hidden, 0.0F);
        if (from != nullptr)
          std::copy_n(from + (s.direction * g_.samples + s.first + b) * g_.hidden, g_.hidden, to);
      }
    };
    fill(hidden, s.hidden);
    fill(cell, s.cell);
    for (std::int64_t b = 0; b < s.count; ++b) {
      s.length[b] = sequence_length(inputs, g_, s.first + b);
      for (std::int64_t t = s.length[b]; t < g_.positions; ++t)
        std::fill_n(outputs[0].as<float>() + place(s, t, b), g_.hidden, 0.0F);
    }
  }
  std::int64_t place(const RecurrentBlock& s, std::int64_t t, std::int64_t b) const {
    return ((t * g_.directions + s.direction) * g_.samples + s.first + b) * g_.hidden;
  }

  void run_block(RecurrentBlock& s, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs) const {
    start(s, inputs, outputs);
    const bool reversed = RecurrentGeometry::reversed(a_, s.direction);
    const std::int64_t columns = g_.gates * g_.hidden;
    const std::int64_t longest = *std::max_element(s.length, s.length + s.count);
    for (s.step = 0; s.step < longest; ++s.step) {
      const auto position = [&](std::int64_t b) { return reversed ? s.length[b] - 1 - s.step : s.step; };
      for (std::int64_t b = 0; b < s.count; ++b) {
        float* gates = s.gates + b * gate_step_;
        const float* x = inputs[Recurrent::kGates].as<float>() +
                         ((position(b) * g_.samples + s.first + b) * g_.directions + s.direction) * columns;
        if (s.goes_on(b)) std::copy_n(x, columns, gates);
        if (!s.goes_on(b)) std::fill_n(gates, columns, 0.0F);
      }
      multiply_state(s);
      if (a_.kind == RecurrentKind::lstm) finish_lstm(s, inputs);
      if (a_.kind == RecurrentKind::gru) finish_gru(s, inputs);
      if (a_.kind == RecurrentKind::rnn) finish_rnn(s);
      for (std::int64_t b = 0; b < s.count; ++b) {
        if (s.goes_on(b))
          std::copy_n(s.hidden + b * hidden_step_, g_.hidden,
                      outputs[0].as<float>() + place(s, position(b), b));
      }
    }
    for (std::int64_t b = 0; b < s.count; ++b) {
      const std::int64_t at = (s.direction * g_.samples + s.first + b) * g_.hidden;
      std::copy_n(s.hidden + b * hidden_step_, g_.hidden, outputs[1].as<float>() + at);
      if (outputs.size() > 2) std::copy_n(s.cell + b * hidden_step_, g_.hidden, outputs[2].as<float>() + at);
    }
  }

  void finish_rnn(const RecurrentBlock& s) const {
    activate(s, 0, s.gates, g_.hidden, gate_step_);
    for (std::int64_t b = 0; b < s.count; ++b) {
      if (s.goes_on(b)) std::copy_n(s.gates + b * gate_step_, g_.hidden, s.hidden + b * hidden_step_);
    }
  }

  // Gates i, o, f, c.
  void finish_lstm(const RecurrentBlock& s, std::span<const ConstTensorView> inputs) const {
    const std::int64_t n = g_.hidden;
    const float* peepholes = optional_data<float>(inputs, Recurrent::kPeepholes);
    if (peepholes != nullptr) peepholes += s.direction * 3 * n;
    for (std::int64_t b = 0; b < s.count && peepholes != nullptr; ++b) {
      float *gates = s.gates + b * gate_step_, *cell = s.cell + b * hidden_step_;
      simd<add_product>(peepholes, cell, gates, n);
      simd<add_product>(peepholes + 2 * n, cell, gates + 2 * n, n);
    }
    if (peepholes == nullptr) {
      activate(s, 0, s.gates, 3 * n, gate_step_);
    } else {
      activate(s, 0, s.gates, n, gate_step_);
      activate(s, 0, s.gates + 2 * n, n, gate_step_);
    }
    activate(s, 1, s.gates + 3 * n, n, gate_step_);
    for (std::int64_t b = 0; b < s.count; ++b) {
      if (!s.goes_on(b)) continue;
      float *input = s.gates + b * gate_step_, *cell = s.cell + b * hidden_step_;
      float *output = input + n, *forget = input + 2 * n;
      if (a_.input_forget) simd<one_minus>(input, forget, n);
      simd<add_products>(forget, cell, input, input + 3 * n, cell, n);
      if (peepholes != nullptr) simd<add_product>(peepholes + n, cell, output, n);
    }
    if (peepholes != nullptr) activate(s, 0, s.gates + n, n, gate_step_);
    for (std::int64_t b = 0; b < s.count; ++b)
      std::copy_n(s.cell + b * hidden_step_, n, s.other + b * hidden_step_);
    activate(s, 2, s.other, n, hidden_step_);
    for (std::int64_t b = 0; b < s.count; ++b) {
      if (s.goes_on(b))
        simd<multiply_rows>(s.gates + b * gate_step_ + n, s.other + b * hidden_step_,
                            s.hidden + b * hidden_step_, n);
    }
  }

  // Gates z, r, h.
  void finish_gru(const RecurrentBlock& s, std::span<const ConstTensorView> inputs) const {
    const std::int64_t n = g_.hidden;
    float* candidate = s.gates + 2 * n;
    const float* weights = s.weights + common_.packed_floats();
    activate(s, 0, s.gates, 2 * n, gate_step_);
    if (a_.linear_before_reset) {
      const float* bias = optional_data<float>(inputs, Recurrent::kHiddenBias);
      for (std::int64_t b = 0; b < s.count; ++b) {
        if (bias == nullptr) std::fill_n(s.other + b * hidden_step_, n, 0.0F);
        if (bias != nullptr) std::copy_n(bias + s.direction * n, n, s.other + b * hidden_step_);
      }
      multiply(s, rest_, weights, s.hidden, s.other, hidden_step_);
      for (std::int64_t b = 0; b < s.count; ++b)
        simd<add_product>(s.gates + b * gate_step_ + n, s.other + b * hidden_step_,
                          candidate + b * gate_step_, n);
    } else {
      for (std::int64_t b = 0; b < s.count; ++b)
        simd<multiply_rows>(s.gates + b * gate_step_ + n, s.hidden + b * hidden_step_,
                            s.other + b * hidden_step_, n);
      multiply(s, rest_, weights, s.other, candidate, gate_step_);
    }
    activate(s, 1, candidate, n, gate_step_);
    for (std::int64_t b = 0; b < s.count; ++b) {
      if (s.goes_on(b))
        simd<mix>(s.gates + b * gate_step_, candidate + b * gate_step_, s.hidden + b * hidden_step_, n);
    }
  }

  RecurrentAttributes a_;
  RecurrentGeometry g_;
  int threads_;
  std::int64_t gate_step_;
  std::int64_t hidden_step_;
  GemmBlocking common_;  // gates whose products are computed together
  GemmBlocking rest_;
  std::int64_t direction_floats_ = 0;
  bool constant_ = false;
  SharedBuffer packed_;
  std::vector<std::unique_ptr<const ByteStateProduct>> bytes_;  // of every direction, where weights are bytes
};

}  // namespace

void register_cpu_recurrent(Registry& registry) {
  registry.add(Recurrent::kType, DeviceKind::cpu, {"steps", refuse_recurrent, [](const NodeSpec& spec) {
                                                     return std::make_unique<PackedRecurrent>(spec);
                                                   }});
}

}  // namespace pipit::internal
