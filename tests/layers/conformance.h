// Runs every kernel of a layer against its reference: all layouts, several thread counts, poisoned memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/registry.h"
#include "tests/support/random.h"

namespace pipit::internal::test {

struct Operand {
  std::shared_ptr<const Tensor> tensor;  ///< row_major; null: an absent optional input
  bool constant = false;                 ///< known when the kernel is created, as weights are
};

struct Conformance {
  std::vector<Operand> inputs;
  /// Candidates that must accept at least one combination of layouts; every other candidate is tested
  /// wherever it accepts.
  std::vector<std::string> expected;
  /// A float output may differ from the reference by
  ///   absolute + relative * |reference| + scale * magnitude[i],
  /// where magnitude bounds what was added up for that element (for sums of products: the same layer on
  /// absolute values) and scale is the number of roundings times epsilon. Integers must be equal.
  double absolute = 0;
  double relative = 0;
  double scale = 0;
  std::vector<double> magnitude;  ///< of output 0, row-major; empty: no third term
  /// If not 0: output 0 must also satisfy ||y - reference|| <= norm_relative * ||reference|| (Euclidean).
  double norm_relative = 0;
  /// Try channels_last for operands of rank >= 3 as well as row_major.
  bool all_layouts = true;
  /// Whose candidates are tested; null: default_registry().
  const Registry* registry = nullptr;
  /// The same in fp16, of candidates for 16 bits alone. Those of `expected` must run in 16 bits as well: on stored
  /// values where they read them (the list in conformance.cpp), else as "NAME, 16-bit storage".
  std::vector<std::string> expected_fp16;
  std::vector<std::string> expected_bf16;
  /// Those of the list that do not read them in this geometry.
  std::set<std::string> widened;
};

/// For every candidate of the layer on the CPU and every combination of operand layouts that it accepts: runs
/// it with 1, 2 and 3 threads (and in place, where the layer allows it) and fails the current test, with all
/// parameters and the seed, unless
///  - every element matches the reference's (run on row_major operands) within the tolerance;
///  - all thread counts give the same bits;
///  - nothing outside the outputs and the declared scratch was written, and no input changed;
///  - a fast kernel's run() allocated no memory.
/// Then the same in fp16 and bf16 with the operands rounded first, against the reference on the rounded operands: the
/// tolerance grows by the rounding of the result. Where results do not fit into f16, nothing is run in fp16.
/// Outputs and scratch are filled with NaN (all bits set) first, and so is the memory around every operand.
void expect_conformance(const Layer& layer, const Conformance& conformance);

/// The outputs of the reference kernel, row_major.
std::vector<Tensor> run_reference(const Layer& layer, const std::vector<Operand>& inputs);

/// Why the named candidate refuses the layer on these row_major operands; empty when it accepts.
std::optional<std::string> refusal(const Layer& layer, const std::vector<Operand>& inputs,
                                   std::string_view candidate);

/// |x| of every element, row_major f32: operands for the magnitude of a sum of products.
std::shared_ptr<const Tensor> absolute_values(const Tensor& tensor);
/// The elements of a row-major f32 tensor as doubles.
std::vector<double> doubles(const Tensor& tensor);

}  // namespace pipit::internal::test
