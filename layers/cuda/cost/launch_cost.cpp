#include "layers/cuda/cost/launch_cost.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pipit::internal::cuda {

std::array<double, kLaunchTerms> factors_of(const LaunchTerms& t) {
  return {1,
          t.steps,
          t.rounds,
          t.rounds * t.steps,
          t.blocks,
          t.blocks * t.steps,
          t.megabytes,
          t.shared,
          t.shared * t.rounds,
          t.again,
          t.copies,
          t.products,
          t.waits};
}

Estimate estimate_of(std::string kernel, const LaunchTerms& terms) {
  const std::span<const KernelConstants> rows = card_constants();
  const auto row = std::ranges::lower_bound(rows, kernel, {}, &KernelConstants::kernel);
  const std::array<double, kLaunchTerms> factors = factors_of(terms);
  const bool known = row != rows.end() && row->kernel == kernel;
  const double us = known ? std::inner_product(factors.begin(), factors.end(), row->constants.begin(), 0.0)
                          : std::numeric_limits<double>::infinity();
  return {us, std::move(kernel), {factors.begin(), factors.end()}};
}

LaunchTerms plain_terms(const NodeSpec& spec, const Window& window) {
  LaunchTerms terms;
  terms.steps = static_cast<double>(window.taps());
  terms.megabytes = operand_megabytes(spec);
  terms.products = 1e-9 * static_cast<double>(spec.layer.work(spec.inputs, spec.outputs).macs);
  terms.blocks = 1e-6 * static_cast<double>(spec.outputs[0].elements());
  return terms;
}

std::function<std::optional<Estimate>(const NodeSpec&)> streaming(
    std::function<Refusal(const NodeSpec&)> refuse) {
  return [refuse = std::move(refuse)](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    LaunchTerms terms;
    terms.megabytes = operand_megabytes(spec);
    return estimate_of("streaming", terms);
  };
}

double input_bytes(const NodeSpec& spec, std::size_t input) {
  if (!spec.has_input(input)) return 0;
  const TensorDesc& x = *spec.inputs[input];
  const bool halved =
      spec.constant(input) != nullptr && x.dtype == DType::f32 && stores_16_bits(spec.precision);
  return static_cast<double>(x.elements()) * (halved ? 2.0 : static_cast<double>(dtype_bytes(x.dtype)));
}

double operand_megabytes(const NodeSpec& spec) {
  double bytes = static_cast<double>(spec.outputs[0].bytes());
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) bytes += input_bytes(spec, i);
  return 1e-6 * bytes;
}

}  // namespace pipit::internal::cuda
