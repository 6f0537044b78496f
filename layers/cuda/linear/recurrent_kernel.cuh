// The recurrent part of RNN, GRU and LSTM: the gates' products with x are inputs (layers/ops/recurrent.h).
#pragma once

#include "layers/cuda/device/faults.cuh"
#include "layers/cuda/device/operands.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/unary_function.cuh"
#include "layers/ops/recurrent.h"

namespace pipit::internal::cuda {

struct RecurrentActivation {
  UnaryKind kind = UnaryKind::tanh;
  float alpha = 0, beta = 0;

  /// The kinds that operator() knows: those that ONNX has for recurrent layers.
  static bool knows(UnaryKind kind) {
    switch (kind) {
      case UnaryKind::sigmoid:
      case UnaryKind::tanh:
      case UnaryKind::relu:
      case UnaryKind::softplus:
      case UnaryKind::softsign:
      case UnaryKind::elu:
      case UnaryKind::leaky_relu:
      case UnaryKind::thresholded_relu:
      case UnaryKind::hard_sigmoid:
        return true;
      default:
        return false;
    }
  }
  __device__ float operator()(float value) const {
    const float x[1] = {value};
    switch (kind) {
      case UnaryKind::sigmoid:
        return UnaryFunction<float>{UnaryKind::sigmoid, alpha, beta}(x);
      case UnaryKind::relu:
        return UnaryFunction<float>{UnaryKind::relu, alpha, beta}(x);
      case UnaryKind::softplus:
        return UnaryFunction<float>{UnaryKind::softplus, alpha, beta}(x);
      case UnaryKind::softsign:
        return UnaryFunction<float>{UnaryKind::softsign, alpha, beta}(x);
      case UnaryKind::elu:
        return UnaryFunction<float>{UnaryKind::elu, alpha, beta}(x);
      case UnaryKind::leaky_relu:
        return UnaryFunction<float>{UnaryKind::leaky_relu, alpha, beta}(x);
      case UnaryKind::thresholded_relu:
        return UnaryFunction<float>{UnaryKind::thresholded_relu, alpha, beta}(x);
      case UnaryKind::hard_sigmoid:
        return UnaryFunction<float>{UnaryKind::hard_sigmoid, alpha, beta}(x);
      default:
        return UnaryFunction<float>{UnaryKind::tanh, alpha, beta}(x);
    }
  }
};

/// The part of a step that a launch computes. A GRU whose reset gate scales the state needs this gate of all units
/// first.
enum class RecurrentPhase { whole, reset, candidate };

/// Extents, operands and states. States are f32 [directions, samples, hidden].
struct RecurrentArgs {
  bool input_forget = false, backward = false;
  float clip = 0;  ///< infinity: none
  int positions = 0, samples = 0, directions = 1, gates = 4, hidden = 0;
  RecurrentActivation activations[2][3];
  In x, hidden_bias, first_hidden, first_cell, peepholes;  ///< data null where there is none
  Indices lengths;
  const void* weights = nullptr;  ///< [directions, gates hidden, hidden] of W
  Out y, last_hidden, last_cell;
  float* states[2] = {};   ///< alternate from step to step
  float* cell = nullptr;   ///< lstm
  float* reset = nullptr;  ///< gru, not linear_before_reset: the scaled state
  float* update = nullptr;
  Fault* fault = nullptr;
  int step = 0;  ///< of the launch
  RecurrentPhase phase = RecurrentPhase::whole;

  RecurrentArgs(const Out& all, const Out& hidden_at_end, const Out& cell_at_end)
      : y(all), last_hidden(hidden_at_end), last_cell(cell_at_end) {}

  __device__ int state_at(int direction, int sample, int unit) const {
    return (direction * samples + sample) * hidden + unit;
  }
  __device__ int length(int sample) const {
    if (lengths.data == nullptr) return positions;
    const std::int64_t n = lengths[sample];
    if (n >= 0 && n <= positions) return static_cast<int>(n);
    report(fault, n);
    return n < 0 ? 0 : positions;
  }
  __device__ float activate(int direction, int which, float v) const {
    // Not the cell state.
    if (which < 2) v = v < -clip ? -clip : v > clip ? clip : v;
    return activations[direction][which](v);
  }
};

/// Four neighbours.
__device__ inline void load_four_floats(const float* from, float (&v)[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
__device__ inline void load_four_floats(const __half* from, float (&v)[4]) {
  const uint2 x = *reinterpret_cast<const uint2*>(from);
  v[0] = half_bits_to_float(static_cast<unsigned short>(x.x & 0xFFFFU));
  v[1] = half_bits_to_float(static_cast<unsigned short>(x.x >> 16));
  v[2] = half_bits_to_float(static_cast<unsigned short>(x.y & 0xFFFFU));
  v[3] = half_bits_to_float(static_cast<unsigned short>(x.y >> 16));
}
__device__ inline void load_four_floats(const __nv_bfloat16* from, float (&v)[4]) {
  const uint2 x = *reinterpret_cast<const uint2*>(from);
  v[0] = bfloat_bits_to_float(static_cast<unsigned short>(x.x & 0xFFFFU));
  v[1] = bfloat_bits_to_float(static_cast<unsigned short>(x.x >> 16));
  v[2] = bfloat_bits_to_float(static_cast<unsigned short>(x.y & 0xFFFFU));
  v[3] = bfloat_bits_to_float(static_cast<unsigned short>(x.y >> 16));
}
__device__ inline float as_float(float v) {
  return v;
}
__device__ inline float as_float(__half v) {
  return __half2float(v);
}
__device__ inline float as_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

/// sum[g][b] = the product of the weights of unit `unit` of gate `first` + g with the state of sample b, by a warp: the
/// same bits in all lanes. state: of the first sample.
template <typename W, int Gates, int Samples>
__device__ void recurrent_products(const RecurrentArgs& a, int direction, int first, int unit,
                                   const float* state, int samples, float (&sum)[Gates][Samples]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const W* row[Gates];
#pragma unroll
  for (int g = 0; g < Gates; ++g) {
    row[g] = static_cast<const W*>(a.weights) +
             (static_cast<std::int64_t>(direction) * a.gates * a.hidden + (first + g) * a.hidden + unit) *
                 a.hidden;
#pragma unroll
    for (int b = 0; b < Samples; ++b) sum[g][b] = 0;
  }
  if (a.hidden % 4 == 0) {
    for (int k = lane * 4; k < a.hidden; k += 128) {
      float w[Gates][4];
#pragma unroll
      for (int g = 0; g < Gates; ++g) load_four_floats(row[g] + k, w[g]);
#pragma unroll
      for (int b = 0; b < Samples; ++b) {
        if (b >= samples) break;
        float h[4];
        load_four_floats(state + b * a.hidden + k, h);
#pragma unroll
        for (int g = 0; g < Gates; ++g) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[g][b] += w[g][i] * h[i];
        }
      }
    }
  } else {
    for (int k = lane; k < a.hidden; k += 32) {
#pragma unroll
      for (int b = 0; b < Samples; ++b) {
        if (b >= samples) break;
        const float h = state[b * a.hidden + k];
#pragma unroll
        for (int g = 0; g < Gates; ++g) sum[g][b] += as_float(row[g][k]) * h;
      }
    }
  }
#pragma unroll
  for (int g = 0; g < Gates; ++g) {
#pragma unroll
    for (int b = 0; b < Samples; ++b) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum[g][b] += __shfl_xor_sync(0xFFFFFFFFU, sum[g][b], mask);
    }
  }
}

/// One unit of a step for up to Samples samples from `sample` on, by a warp; lane b finishes sample b.
template <typename W, int Gates, int Samples>
__device__ void recurrent_unit(const RecurrentArgs& a, RecurrentPhase phase, int step, int direction,
                               int sample, int unit) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int samples = a.samples - sample < Samples ? a.samples - sample : Samples;
  const bool mine = lane < samples;
  const int own = mine ? sample + lane : sample;
  const float* state = a.states[step % 2];
  float* next = a.states[(step + 1) % 2];
  const int at = a.state_at(direction, own, unit);
  const int length = a.length(own);
  const bool live = step < length;
  const int position = !live ? step : (direction == 1 || a.backward) ? length - 1 - step : step;
  const float before = state[at];
  const int first = phase == RecurrentPhase::candidate ? 2 : 0;

  float of_x[Gates];
  const std::int64_t x_at =
      (static_cast<std::int64_t>(position) * a.samples + own) * a.directions * a.gates * a.hidden +
      (direction * a.gates + first) * a.hidden + unit;
#pragma unroll
  for (int g = 0; g < Gates; ++g) of_x[g] = load<float>(a.x, x_at + g * a.hidden);

  float sums[Gates][Samples];
  const float* operand = phase == RecurrentPhase::candidate ? a.reset : state;
  recurrent_products<W>(a, direction, first, unit, operand + a.state_at(direction, sample, 0), samples, sums);
  float product[Gates];
#pragma unroll
  for (int g = 0; g < Gates; ++g) {
    product[g] = 0;
#pragma unroll
    for (int b = 0; b < Samples; ++b) product[g] = lane == b ? sums[g][b] : product[g];
  }
  if (!mine) return;

  float h = 0;
  if constexpr (Gates == 4) {
    const auto peephole = [&](int which, float cell) {
      if (a.peepholes.data == nullptr) return 0.0F;
      return load<float>(a.peepholes, (direction * 3 + which) * a.hidden + unit) * cell;
    };
    const float cell = a.cell[at];
    const float input = a.activate(direction, 0, of_x[0] + product[0] + peephole(0, cell));
    const float forget =
        a.input_forget ? 1 - input : a.activate(direction, 0, of_x[2] + product[2] + peephole(2, cell));
    const float kept = forget * cell + input * a.activate(direction, 1, of_x[3] + product[3]);
    h = a.activate(direction, 0, of_x[1] + product[1] + peephole(1, kept)) * a.activate(direction, 2, kept);
    if (live) a.cell[at] = kept;
  } else if constexpr (Gates == 3) {
    const float update = a.activate(direction, 0, of_x[0] + product[0]);
    const float reset = a.activate(direction, 0, of_x[1] + product[1]);
    const float bias =
        a.hidden_bias.data == nullptr ? 0 : load<float>(a.hidden_bias, direction * a.hidden + unit);
    const float candidate = a.activate(direction, 1, of_x[2] + reset * (product[2] + bias));
    h = (1 - update) * candidate + update * before;
  } else if constexpr (Gates == 2) {
    a.update[at] = a.activate(direction, 0, of_x[0] + product[0]);
    a.reset[at] = a.activate(direction, 0, of_x[1] + product[1]) * before;
    return;
  } else if (phase == RecurrentPhase::candidate) {
    const float update = a.update[at];
    h = (1 - update) * a.activate(direction, 1, of_x[0] + product[0]) + update * before;
  } else {
    h = a.activate(direction, 0, of_x[0] + product[0]);
  }
  next[at] = live ? h : before;
  store<float>(
      a.y,
      ((static_cast<std::int64_t>(position) * a.directions + direction) * a.samples + own) * a.hidden + unit,
      live ? h : 0.0F);
}

inline constexpr int kRecurrentThreads = 256;

/// Grid: blocks of units, directions, blocks of samples. A launch does one step, or with several blocks of units and
/// two gates one phase of it. Gates: rnn 1, gru 3 (2: the reset gate scales the state), lstm 4.
template <typename W, int Gates, int Samples>
__global__ void __launch_bounds__(kRecurrentThreads) recurrent_step(const __grid_constant__ RecurrentArgs a) {
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  const auto unit = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  const auto direction = static_cast<int>(blockIdx.y);
  const int sample = static_cast<int>(blockIdx.z) * Samples;
  if (Gates != 2 || a.phase != RecurrentPhase::candidate) {
    const RecurrentPhase phase = Gates == 2 ? RecurrentPhase::reset : RecurrentPhase::whole;
    if (unit < a.hidden) recurrent_unit<W, Gates, Samples>(a, phase, a.step, direction, sample, unit);
  }
  if constexpr (Gates == 2) {
    if (a.phase == RecurrentPhase::reset) return;
    if (a.phase == RecurrentPhase::whole) __syncthreads();
    if (unit < a.hidden)
      recurrent_unit<W, 1, Samples>(a, RecurrentPhase::candidate, a.step, direction, sample, unit);
  }
}

/// Writes the states before the first step.
static __global__ void begin_recurrent(const __grid_constant__ RecurrentArgs a) {
  const auto i = static_cast<int>(thread_index());
  if (i >= a.directions * a.samples * a.hidden) return;
  a.states[0][i] = a.first_hidden.data == nullptr ? 0 : load<float>(a.first_hidden, i);
  if (a.cell != nullptr) a.cell[i] = a.first_cell.data == nullptr ? 0 : load<float>(a.first_cell, i);
}

/// Writes the last states to the outputs.
static __global__ void end_recurrent(const __grid_constant__ RecurrentArgs a) {
  const auto i = static_cast<int>(thread_index());
  if (i >= a.directions * a.samples * a.hidden) return;
  store<float>(a.last_hidden, i, a.states[a.positions % 2][i]);
  if (a.cell != nullptr) store<float>(a.last_cell, i, a.cell[i]);
}

}  // namespace pipit::internal::cuda
