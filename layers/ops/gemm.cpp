#include "layers/ops/gemm.h"

#include <cmath>

#include "layers/ops/inference_checks.h"

namespace pipit::internal {

Gemm::Gemm(GemmAttributes attributes) : LayerOf(attributes) {
  if (!std::isfinite(attributes_.alpha) || !std::isfinite(attributes_.beta)) {
    fail("Gemm: alpha {} and beta {} must be finite", attributes_.alpha, attributes_.beta);
  }
}

std::vector<TensorDesc> Gemm::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 1);
  const TensorDesc& a = *inputs[0];
  const TensorDesc& b = *inputs[1];
  check_float(a, kType, "A");
  if (a.shape.rank() != 2 || b.shape.rank() != 2) {
    fail("Gemm: A is {} and B is {}; both must have 2 dimensions", a.shape.str(), b.shape.str());
  }
  const bool ta = attributes_.transpose_a;
  const bool tb = attributes_.transpose_b;
  const std::int64_t m = a.shape[ta ? 1 : 0];
  const std::int64_t k = a.shape[ta ? 0 : 1];
  const std::int64_t n = b.shape[tb ? 0 : 1];
  if (b.shape[tb ? 1 : 0] != k || b.dtype != a.dtype) {
    fail("Gemm: A {}{} and B {}{} do not match", a.str(), ta ? " (transposed)" : "", b.str(),
         tb ? " (transposed)" : "");
  }
  const Shape y{m, n};
  if (const TensorDesc* c = optional_input(inputs, 2)) {
    if (c->dtype != a.dtype || !(broadcast_shapes(c->shape, y) == y)) {
      fail("Gemm: C is {}, which does not broadcast to {} {}", c->str(), dtype_name(a.dtype), y.str());
    }
  }
  return {{y, a.dtype, Layout::row_major}};
}

bool Gemm::is_batch_independent(const SampledInputs& inputs) const {
  const TensorDesc* c = optional_input(inputs.descs, 2);
  const bool c_by_sample = c != nullptr && inputs.by_sample[2];
  const bool c_has_rows = c != nullptr && c->shape.rank() == 2 && c->shape[0] != 1;
  return !attributes_.transpose_a && inputs.by_sample[0] && !inputs.by_sample[1] && c_by_sample == c_has_rows;
}

Work Gemm::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  const std::int64_t k = inputs[0]->shape[attributes_.transpose_a ? 0 : 1];
  return {saturating_product(outputs[0].elements(), k)};
}

std::string Gemm::summary() const {
  std::string text;
  if (attributes_.transpose_a) text += "A' ";
  if (attributes_.transpose_b) text += "B' ";
  if (attributes_.alpha != 1.0F) text += fmt::format("alpha {} ", attributes_.alpha);
  if (attributes_.beta != 1.0F) text += fmt::format("beta {} ", attributes_.beta);
  if (!text.empty()) text.pop_back();
  return text + clamp_summary(attributes_.activation);
}

}  // namespace pipit::internal
