// How long a launch is expected to take: what it does, times constants of its kernel on a card.
//
// The constants are fitted to recorded layers (tests/cuda/cost/fit_costs.py); cards without constants of their own take
// these, with their own number of multiprocessors in the terms.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/ops/window.h"

namespace pipit::internal::cuda {

/// What the time of a launch depends on.
struct LaunchTerms {
  double steps = 0;      ///< along k, one after another, of the longest block
  double rounds = 0;     ///< blocks, one after another, of the busiest multiprocessor
  double blocks = 0;     ///< of a multiprocessor on average
  double megabytes = 0;  ///< operands and results, each once
  double shared = 0;     ///< blocks that share a depth and add up their sums; 0: none do
  double again = 0;      ///< megabytes that are read or written beyond `megabytes`
  double copies = 0;     ///< launches that bring x into another form first
  double products = 0;   ///< 10^9 multiply-accumulates, of kernels without matrix units and of libraries
  double waits = 0;      ///< 1 where the launch does not overlap with the one before it
};

inline constexpr std::size_t kLaunchTerms = 13;
/// The terms as they are multiplied: 1, steps, rounds, rounds steps, blocks, blocks steps, megabytes, shared,
/// shared rounds, again, copies, products, waits.
std::array<double, kLaunchTerms> factors_of(const LaunchTerms& terms);

/// The constants of one kernel, in microseconds for each factor.
struct KernelConstants {
  std::string_view kernel;
  std::array<double, kLaunchTerms> constants;
};

/// Infinite where there are no constants of that name.
Estimate estimate_of(std::string kernel, const LaunchTerms& terms);

/// The variants of a kernel, the one with the least estimate first; equal ones stay in their order.
template <typename Variant, typename EstimateOf>
std::vector<Variant> least_first(std::vector<Variant> variants, const EstimateOf& estimate) {
  std::ranges::stable_sort(variants, {}, [&](const Variant& variant) { return estimate(variant).time; });
  return variants;
}

/// The terms of a kernel without matrix units, each thread of which computes outputs: megabytes and products, steps:
/// taps.
LaunchTerms plain_terms(const NodeSpec& spec, const Window& window);

/// Candidate::estimate of a kernel that reads its operands and writes its results once.
std::function<std::optional<Estimate>(const NodeSpec&)> streaming(
    std::function<Refusal(const NodeSpec&)> refuse);

/// Bytes of an input of a convolution or product, weights as they are packed; 0 where it has none.
double input_bytes(const NodeSpec& spec, std::size_t input);
/// Megabytes of all inputs and the output.
double operand_megabytes(const NodeSpec& spec);

// Constants of the GPU kernels on the cards on which layers were recorded.

/// Sorted by name. Of an H100 and an H200, which differ little.
std::span<const KernelConstants> card_constants();

}  // namespace pipit::internal::cuda
