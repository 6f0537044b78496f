// Convolutions for the tests of "resident_gemm" in fp16.
#pragma once

#include <optional>
#include <string>

#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/pruned_weights.h"

namespace pipit::internal::test {

/// Calls check(layer, test) for the first and the last variant of the convolution, with pruned weights or not. Outputs
/// become a multiple of eight. Returns why the candidate refuses it, where it does.
template <typename Check>
std::optional<std::string> check_resident(Geometry g, bool pruned, std::mt19937& random, Check&& check) {
  g.outputs = (g.outputs + 7) / 8 * 8;
  const Conv layer(ConvAttributes{g.window, 1, g.activation});
  GpuCase test = make_case(g, Precision::fp16, random);
  if (pruned) test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, 8, random);
  if (auto reason = gpu_refusal(layer, "resident_gemm", test)) return reason;
  const std::vector<std::string> ways = gpu_variants(layer, "resident_gemm", test);
  for (const std::size_t way : {std::size_t{0}, ways.size() - 1}) {
    if (::testing::Test::HasFailure()) break;
    test.variant = ways[way];
    check(g, layer, test);
  }
  return std::nullopt;
}

}  // namespace pipit::internal::test
