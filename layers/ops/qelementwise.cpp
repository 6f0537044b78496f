#include "layers/ops/qelementwise.h"

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

QAdd::QAdd(QAddAttributes attributes) : LayerOf(attributes) {
  for (const auto& [q, name] : {std::pair{attributes_.a, "a"}, {attributes_.b, "b"}, {attributes_.y, "y"}}) {
    check_quantization(q, kType, name);
    if (!q.quantized()) fail("QAdd: {} is not quantized", name);
  }
}

std::vector<TensorDesc> QAdd::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.a.dtype, kType, "a");
  check_operand(*inputs[1], inputs[0]->shape, attributes_.b.dtype, kType, "b");
  return {{inputs[0]->shape, attributes_.y.dtype}};
}

bool QAdd::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 1});
}

std::string QAdd::summary() const {
  return clamp_summary(attributes_.activation);
}

QMul::QMul(QMulAttributes attributes) : LayerOf(attributes) {
  for (const auto& [q, name] : {std::pair{attributes_.a, "a"}, {attributes_.b, "b"}, {attributes_.y, "y"}}) {
    check_quantization(q, kType, name);
    if (!q.quantized()) fail("QMul: {} is not quantized", name);
  }
}

std::vector<TensorDesc> QMul::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.a.dtype, kType, "a");
  check_operand(*inputs[1], inputs[1]->shape, attributes_.b.dtype, kType, "b");
  if (!qmul_fits(inputs[0]->shape, inputs[1]->shape))
    fail("QMul: b is {}, expected {} or 1 where a has more", inputs[1]->shape.str(), inputs[0]->shape.str());
  return {{inputs[0]->shape, attributes_.y.dtype}};
}

bool QMul::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 1});
}

std::string QMul::summary() const {
  return clamp_summary(attributes_.activation);
}

bool qmul_fits(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (int d = 0; d < a.rank(); ++d) {
    if (b[d] != a[d] && b[d] != 1) return false;
  }
  return true;
}

float qmul_multiplier(const QMulAttributes& attributes) {
  return attributes.a.scale * attributes.b.scale / attributes.y.scale;
}

QAveragePool::QAveragePool(QAveragePoolAttributes attributes) : LayerOf(attributes) {
  check_quantization(attributes_.x, kType, "x");
  check_quantization(attributes_.y, kType, "y");
  if (!attributes_.x.quantized()) fail("QAveragePool: x is not quantized");
  if (attributes_.pool.kind != PoolKind::average || attributes_.pool.indices)
    fail("QAveragePool: the pool is not an average");
}

std::vector<TensorDesc> QAveragePool::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.x.dtype, kType, "x");
  TensorDesc x = *inputs[0];
  x.dtype = DType::f32;
  const std::array<const TensorDesc*, 1> real{&x};
  TensorDesc y = Pool(attributes_.pool).infer(real)[0];
  y.dtype = attributes_.y.dtype;
  return {y};
}

bool QAveragePool::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

Work QAveragePool::work(std::span<const TensorDesc* const> inputs,
                        std::span<const TensorDesc> outputs) const {
  return Pool(attributes_.pool).work(inputs, outputs);
}

std::string QAveragePool::summary() const {
  return Pool(attributes_.pool).summary();
}

}  // namespace pipit::internal
