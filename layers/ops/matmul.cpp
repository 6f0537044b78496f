#include "layers/ops/matmul.h"

#include "layers/ops/inference_checks.h"

namespace pipit::internal {

namespace {

Shape leading(const Shape& shape, int count) {
  return count > 0 ? Shape(shape.dims().first(at(count))) : Shape();
}

// Strides of `shape`, whose matrices have `matrix` elements, along the broadcast batch dimensions.
Strides batch_strides(const Shape& shape, std::int64_t matrix, const Shape& batch) {
  Strides strides{};
  std::int64_t step = matrix;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1) strides[at(axis + batch.rank() - shape.rank())] = step;
    step *= shape[axis];
  }
  return strides;
}

}  // namespace

std::int64_t MatMulGeometry::batch_count() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < batch_rank; ++axis) count *= batch[at(axis)];
  return count;
}

MatMulGeometry::Offsets MatMulGeometry::offsets(std::int64_t index) const {
  Offsets result;
  for (int axis = batch_rank - 1; axis >= 0; --axis) {
    const std::int64_t i = index % batch[at(axis)];
    index /= batch[at(axis)];
    result.a += i * a_stride[at(axis)];
    result.b += i * b_stride[at(axis)];
  }
  return result;
}

MatMulGeometry matmul_geometry(const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0) fail("MatMul: scalars ({} and {}) are no matrices", a.str(), b.str());
  MatMulGeometry g;
  g.m = a.rank() == 1 ? 1 : a[a.rank() - 2];
  g.k = a[a.rank() - 1];
  g.n = b.rank() == 1 ? 1 : b[b.rank() - 1];
  const std::int64_t b_rows = b.rank() == 1 ? b[0] : b[b.rank() - 2];
  if (b_rows != g.k)
    fail("MatMul: {} and {} do not match: {} columns, {} rows", a.str(), b.str(), g.k, b_rows);
  const Shape a_batch = leading(a, a.rank() - 2);
  const Shape b_batch = leading(b, b.rank() - 2);
  const Shape batch = broadcast_shapes(a_batch, b_batch);
  g.batch_rank = batch.rank();
  std::copy(batch.dims().begin(), batch.dims().end(), g.batch.begin());
  g.a_stride = batch_strides(a_batch, g.m * g.k, batch);
  g.b_stride = batch_strides(b_batch, g.k * g.n, batch);
  return g;
}

std::vector<TensorDesc> MatMul::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  const TensorDesc& a = *inputs[0];
  const TensorDesc& b = *inputs[1];
  check_float(a, kType, "A");
  if (b.dtype != a.dtype) fail("MatMul: A is {} but B is {}", a.str(), b.str());
  const MatMulGeometry g = matmul_geometry(a.shape, b.shape);
  std::array<std::int64_t, kMaxRank> dims = g.batch;
  std::size_t rank = at(g.batch_rank);
  if (a.shape.rank() > 1) dims[rank++] = g.m;
  if (b.shape.rank() > 1) dims[rank++] = g.n;
  return {{Shape(std::span<const std::int64_t>(dims.data(), rank)), a.dtype, Layout::row_major}};
}

bool MatMul::is_batch_independent(const SampledInputs& inputs) const {
  // Dimension 0 must be one of the batch, or the rows of A, in the output too.
  const Shape& a = inputs.descs[0]->shape;
  const Shape& b = inputs.descs[1]->shape;
  const auto same_for_all = [](const Shape& shape, int rank) { return shape.rank() < rank || shape[0] == 1; };
  if (!inputs.by_sample[1])
    return a.rank() > 1 && a.rank() >= b.rank() && (b.rank() <= 2 || same_for_all(b, a.rank()));
  if (!inputs.by_sample[0]) return b.rank() > 2 && b.rank() >= a.rank() && same_for_all(a, b.rank());
  return a.rank() > 2 && a.rank() == b.rank();
}

Work MatMul::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  return {saturating_product(outputs[0].elements(), inputs[0]->shape[inputs[0]->shape.rank() - 1])};
}

}  // namespace pipit::internal
