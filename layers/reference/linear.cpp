// Gemm and MatMul.
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/reference/float_kernel.h"

namespace pipit::internal {

namespace {

// Strides of an operand that broadcasts to [rows, columns]: 0 along dimensions that are absent or 1.
struct Broadcast2d {
  std::int64_t row = 0;
  std::int64_t column = 0;
  explicit Broadcast2d(const Shape& shape) {
    const int rank = shape.rank();
    if (rank > 0 && shape[rank - 1] != 1) column = 1;
    if (rank > 1 && shape[rank - 2] != 1) row = shape[rank - 1];
  }
};

struct GemmReference {
  template <typename T>
  static void run(const Gemm& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool& pool) {
    const GemmAttributes& attributes = layer.attributes();
    const Shape& y = outputs[0].desc.shape;
    const Shape& sa = inputs[0].desc.shape;
    const Shape& sb = inputs[1].desc.shape;
    const std::int64_t k = sa[attributes.transpose_a ? 0 : 1];
    const std::int64_t a_row = attributes.transpose_a ? 1 : k;
    const std::int64_t a_column = attributes.transpose_a ? sa[1] : 1;
    const std::int64_t b_row = attributes.transpose_b ? 1 : sb[1];
    const std::int64_t b_column = attributes.transpose_b ? k : 1;
    const T* a = inputs[0].as<T>();
    const T* b = inputs[1].as<T>();
    const T* c = optional_data<T>(inputs, 2);
    const Broadcast2d c_stride(c != nullptr ? inputs[2].desc.shape : Shape());
    T* output = outputs[0].as<T>();

    pool.parallel_for(y.elements(), [&](std::int64_t index, int) {
      const std::int64_t m = index / y[1];
      const std::int64_t n = index % y[1];
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += static_cast<double>(a[m * a_row + i * a_column]) * b[i * b_row + n * b_column];
      }
      sum *= attributes.alpha;
      if (c != nullptr)
        sum += static_cast<double>(attributes.beta) * c[m * c_stride.row + n * c_stride.column];
      output[index] = static_cast<T>(attributes.activation(sum));
    });
  }
};

struct MatMulReference {
  template <typename T>
  static void run(const MatMul&, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                  ThreadPool& pool) {
    const MatMulGeometry g = matmul_geometry(inputs[0].desc.shape, inputs[1].desc.shape);
    const T* a = inputs[0].as<T>();
    const T* b = inputs[1].as<T>();
    T* output = outputs[0].as<T>();
    pool.parallel_for(g.batch_count() * g.m, [&](std::int64_t index, int) {
      const MatMulGeometry::Offsets at = g.offsets(index / g.m);
      const T* row = a + at.a + index % g.m * g.k;
      for (std::int64_t n = 0; n < g.n; ++n) {
        double sum = 0;
        for (std::int64_t i = 0; i < g.k; ++i) sum += static_cast<double>(row[i]) * b[at.b + i * g.n + n];
        output[index * g.n + n] = static_cast<T>(sum);
      }
    });
  }
};

Refusal refuse_matmul(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_float(spec)) return reason;
  return refuse_unless_row_major(spec);
}

}  // namespace

void register_reference_linear(Registry& registry) {
  add_float_reference<Gemm, GemmReference>(registry);
  add_float_reference<MatMul, MatMulReference>(registry, refuse_matmul);
}

}  // namespace pipit::internal
