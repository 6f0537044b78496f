// Gemm and MatMul by the blocked matrix product.
#include "engine/graph/shared_buffer.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/gemm.h"
#include "layers/cpu/vector/channel_rows.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxTileRows = 96;

// y = clamp(alpha * A * B + beta * C) for every matrix of a batch.
struct Product {
  MatMulGeometry shape;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  Clamp activation;
  std::int64_t b_matrices = 1;  // different matrices B
};

Product product_of(const NodeSpec& spec, const Gemm& layer) {
  const GemmAttributes& attributes = layer.attributes();
  Product p;
  p.shape.m = spec.outputs[0].shape[0];
  p.shape.n = spec.outputs[0].shape[1];
  p.shape.k = spec.inputs[0]->shape[attributes.transpose_a ? 0 : 1];
  p.transpose_a = attributes.transpose_a;
  p.transpose_b = attributes.transpose_b;
  p.alpha = attributes.alpha;
  p.beta = attributes.beta;
  p.activation = attributes.activation;
  return p;
}

Product product_of(const NodeSpec& spec, const MatMul&) {
  Product p;
  p.shape = matmul_geometry(spec.inputs[0]->shape, spec.inputs[1]->shape);
  const std::int64_t b_matrix = p.shape.k * p.shape.n;
  p.b_matrices = b_matrix == 0 ? 1 : spec.inputs[1]->elements() / b_matrix;
  if (p.b_matrices == 1) {
    // All matrices A lie one below the other.
    p.shape.m *= p.shape.batch_count();
    p.shape.batch_rank = 0;
  }
  return p;
}

// y[i] = beta * c[i * step].
PIPIT_INLINE inline void scale_row(const float* c, std::int64_t step, float beta, float* y,
                                   std::int64_t count) {
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = beta * c[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = beta * c[0];
  }
}

class Linear final : public Kernel {
 public:
  Linear(const Product& product, const NodeSpec& spec)
      : product_(product), epilogue_(spec.outputs[0].shape.rank() - 1, spec.fusion.followers) {
    const MatMulGeometry& g = product_.shape;
    tile_ = tile_rows(g.m, kMaxTileRows);
    tiles_ = (g.m + tile_ - 1) / tile_;
    blocking_ = GemmBlocking(g.k, g.n, share_columns(tiles_ * g.batch_count(), g.n));
    const std::size_t packed_bytes =
        blocking_.packed_floats() * sizeof(float) * static_cast<std::size_t>(product_.b_matrices);
    if (const Tensor* b = spec.constant(1)) {
      HostBuffer packed(packed_bytes);
      constant_b_ = true;
      for (std::int64_t task = 0; task < packing_tasks(); ++task) {
        pack(b->values<float>().data(), task, reinterpret_cast<float*>(packed.data()));
      }
      packed_ = SharedBuffer(std::move(packed));
    } else {
      workspace_offset_ = packed_bytes;
    }
    const std::size_t worker_bytes = blocking_.workspace_floats(tile_) * sizeof(float);
    scratch_bytes_ = workspace_offset_ + worker_bytes * static_cast<std::size_t>(spec.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* a = inputs[0].as<float>();
    const float* c = optional_data<float>(inputs, 2);
    const Shape c_shape = c != nullptr ? inputs[2].desc.shape : Shape();
    float* y = outputs[0].as<float>();
    const float* packed = reinterpret_cast<const float*>(packed_.data());
    if (!constant_b_) {
      float* target = reinterpret_cast<float*>(context.scratch);
      const float* b = inputs[1].as<float>();
      context.pool.parallel_for(packing_tasks(), [&](std::int64_t task, int) { pack(b, task, target); });
      packed = target;
    }
    float* workspaces = reinterpret_cast<float*>(context.scratch + workspace_offset_);
    const std::int64_t blocks = blocking_.n_blocks();
    context.pool.parallel_for(product_.shape.batch_count() * tiles_ * blocks, [&](std::int64_t task,
                                                                                  int worker) {
      const Tile tile{task / (tiles_ * blocks), task / blocks % tiles_ * tile_, task % blocks};
      float* workspace = workspaces + static_cast<std::size_t>(worker) * blocking_.workspace_floats(tile_);
      compute(tile, a, packed, c, c_shape, y, workspace);
    });
  }

 private:
  struct Tile {
    std::int64_t batch;
    std::int64_t row;
    std::int64_t block;
  };

  std::int64_t packing_tasks() const { return product_.b_matrices * blocking_.n_blocks(); }

  // Task: one block column of one matrix.
  void pack(const float* b, std::int64_t task, float* packed) const {
    const MatMulGeometry& g = product_.shape;
    const std::int64_t matrix = task / blocking_.n_blocks();
    pack_block_column(
        blocking_, {b + matrix * g.k * g.n, product_.transpose_b ? g.k : g.n, product_.transpose_b},
        task % blocking_.n_blocks(), packed + static_cast<std::size_t>(matrix) * blocking_.packed_floats());
  }

  void compute(const Tile& tile, const float* a, const float* packed, const float* c, const Shape& c_shape,
               float* y, float* workspace) const {
    const MatMulGeometry& g = product_.shape;
    const MatMulGeometry::Offsets at = g.offsets(tile.batch);
    const std::int64_t column = tile.block * blocking_.n_block;
    const Rows rows{y + (tile.batch * g.m + tile.row) * g.n + column, g.n, std::min(tile_, g.m - tile.row),
                    blocking_.width(tile.block)};
    start(rows, tile.row, column, c, c_shape);
    const MatrixView view{a + at.a, product_.transpose_a ? g.m : g.k, product_.transpose_a};
    const std::int64_t matrix = at.b / std::max<std::int64_t>(1, g.k * g.n);
    multiply_block_column(blocking_, packed + static_cast<std::size_t>(matrix) * blocking_.packed_floats(),
                          tile.block, rows.count, product_.alpha, view.from(tile.row, 0), rows.data,
                          rows.stride, workspace);
    clamp_rows(rows, product_.activation);
    if (epilogue_.empty()) return;
    epilogue_.apply(rows.data, column, {rows.channels, rows.count, rows.stride});
  }

  // y = beta * C, broadcast.
  void start(const Rows& y, std::int64_t row, std::int64_t column, const float* c, const Shape& shape) const {
    if (c == nullptr) return start_rows(y, nullptr, nullptr, 0);
    const int rank = shape.rank();
    const std::int64_t column_step = rank > 0 && shape[rank - 1] != 1 ? 1 : 0;
    const std::int64_t row_step = rank > 1 && shape[rank - 2] != 1 ? shape[rank - 1] : 0;
    for (std::int64_t r = 0; r < y.count; ++r) {
      simd<scale_row>(c + (row + r) * row_step + column * column_step, column_step, product_.beta,
                      y.data + r * y.stride, y.channels);
    }
  }

  Product product_;
  Epilogue epilogue_;
  std::int64_t tile_ = 0;
  std::int64_t tiles_ = 0;
  GemmBlocking blocking_;
  bool constant_b_ = false;
  SharedBuffer packed_;
  // Scratch: the packed B where it is not constant, then one workspace per worker.
  std::size_t workspace_offset_ = 0;
  std::size_t scratch_bytes_ = 0;
};

Refusal refuse_linear(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  return refuse_unless_row_major(spec);
}

template <typename L>
void add(Registry& registry) {
  Candidate gemm{"gemm", refuse_linear, [](const NodeSpec& spec) {
                   return std::make_unique<Linear>(product_of(spec, layer_as<L>(spec.layer)), spec);
                 }};
  gemm.fusions.epilogue = fuses_matrix_epilogue;
  registry.add(L::kType, DeviceKind::cpu, std::move(gemm));
}

}  // namespace

void register_cpu_linear(Registry& registry) {
  add<Gemm>(registry);
  add<MatMul>(registry);
}

}  // namespace pipit::internal
