// Runs one GPU candidate of a layer against the CPU reference: poisoned outputs, guard zones, three equal runs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/graph/layer.h"
#include "engine/platform/device.h"
#include "tests/cuda/seed.h"

/// Skips the current test, with the reason, where there is no usable GPU.
#define PIPIT_NEEDS_GPU()                                                                     \
  if (const std::string problem = ::pipit::internal::cuda_status().problem; !problem.empty()) \
  GTEST_SKIP() << problem
/// Likewise where a library cannot be used; state: cuda::cudnn_state() and the like.
#define PIPIT_NEEDS_LIBRARY(state) \
  PIPIT_NEEDS_GPU();               \
  if (const std::string problem = (state).problem; !problem.empty()) GTEST_SKIP() << problem

namespace pipit::internal::test {

struct GpuOperand {
  std::shared_ptr<const Tensor> tensor;  ///< host, row_major; null: an absent optional input
  Layout layout = Layout::row_major;     ///< how the kernel gets it (rank >= 3)
  bool constant = false;                 ///< known when the kernel is created, as weights are
};

struct GpuCase {
  std::vector<GpuOperand> inputs;
  Precision precision = Precision::fp32;
  Layout output_layout = Layout::row_major;  ///< of outputs of rank >= 3
  /// Largest ||y - reference|| / ||reference|| (Euclidean) per output; 0: 1e-5 in fp32, 2e-3 in fp16.
  /// Eight times as much in bf16, which has three bits less than fp16.
  double tolerance = 0;
  /// Floats must have the reference's bits (in fp16 and bf16 those of the rounded reference).
  bool exact = false;
  /// Evaluated instead of the layer where the reference cannot run it (Cast to f16); null: the layer itself.
  const Layer* reference = nullptr;
  /// Layers, each of what the one before computes (the first of output 0) alone, that the candidate must take over
  /// (Fusions::epilogue).
  std::vector<const Layer*> followers;
  /// In fp16 and bf16: keep non-constant f32 inputs and f32 outputs as they are (Cast at the borders of a graph).
  bool keep_input_f32 = false;
  bool keep_output_f32 = false;
  /// The candidate's variant (Candidate::variants); empty: its own choice.
  std::string variant;
};

/// Fails the current test, with all parameters and the seed, unless the candidate accepts the case and
///  - every output agrees with evaluate() within the tolerance (integers and bool exactly). In fp16 and bf16 every
///    f32 operand is first rounded; non-constant ones are stored so, constants stay f32 tensors;
///  - three runs, the last replayed from a captured graph, give the same bits;
///  - nothing outside the outputs and the declared scratch was written, and no input changed;
///  - it is also right in place wherever the layer and the descs allow it.
/// Outputs, scratch and guard zones are filled with all bits set (NaN) first. A case in fp16 is run in bf16 as well,
/// which every kernel that takes fp16 must take, but "stem" of QConv.
void expect_gpu(const Layer& layer, const std::string& candidate, const GpuCase& test);

/// Why the candidate refuses; empty when it accepts. Throws Error when there is no such candidate.
std::optional<std::string> gpu_refusal(const Layer& layer, const std::string& candidate, const GpuCase& test);

/// The candidate's variants for the case.
std::vector<std::string> gpu_variants(const Layer& layer, const std::string& candidate, const GpuCase& test);

/// Microseconds per launch, from events around a captured graph of `launches` launches, best of five replays.
double gpu_microseconds(const Layer& layer, const std::string& candidate, const GpuCase& test,
                        int launches = 20);

/// A row-major f32 tensor, uniform in [low, high).
std::shared_ptr<const Tensor> shared_random(const Shape& shape, std::mt19937& random, float low = -1,
                                            float high = 1);

}  // namespace pipit::internal::test
