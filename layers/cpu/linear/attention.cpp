// Attention in one kernel: some queries at a time, so that their scores stay in a cache.
#include <algorithm>
#include <limits>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/attention_chain.h"
#include "layers/cpu/linear/gemm.h"
#include "layers/cpu/vector/fold.h"
#include "layers/cpu/vector/reductions.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/vector/transpose.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/binary.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reshaping.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxQueries = 64;
// Scores that are computed together: at most this many, or those of kMinQueries queries.
constexpr std::int64_t kScoreFloats = 1 << 17;
constexpr std::int64_t kMinQueries = 8;
// Columns that one task packs.
constexpr std::int64_t kPackedKeys = 192;
// Up to this many queries are multiplied with keys and values as they lie in memory: packing those would take longer.
constexpr std::int64_t kMaxQueriesUnpacked = 32;
// Keys that are multiplied with such queries at a time.
constexpr std::int64_t kKeyRows = 64;

// x minus the largest element.
template <typename V>
PIPIT_INLINE inline void below_largest(float* x, std::int64_t count, float& highest) {
  highest = fold<LargerOf, V>(x, count);
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) x[i] -= highest;
}
PIPIT_INLINE inline void add_all(const float* x, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] += x[i];
}
PIPIT_INLINE inline void scale_all(float* x, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

class Attention final : public Kernel {
 public:
  explicit Attention(const NodeSpec& spec)
      : chain_(AttentionChain::of(spec, spec.fusion.chain).value()), threads_(spec.threads) {
    const int rank = chain_.query.shape.rank();
    queries_ = chain_.query.shape[rank - 2];
    keys_ = chain_.key.shape[rank - 1];
    size_ = chain_.query.shape[rank - 1];
    results_ = chain_.value.shape[rank - 1];
    for (int d = 0; d + 2 < rank; ++d) matrices_ *= chain_.query.shape[d];
    const std::int64_t together = std::clamp(kScoreFloats / keys_, kMinQueries, kMaxQueries);
    tile_ = std::min(tile_rows(queries_, together), queries_);
    tiles_ = ceil_div(queries_, tile_);
    key_blocks_ = GemmBlocking(size_, keys_, kPackedKeys);
    value_blocks_ = GemmBlocking(keys_, results_, kPackedKeys);
    const bool few = queries_ <= kMaxQueriesUnpacked && queries_ == tile_;
    keys_in_rows_ = few && lies_in_rows(chain_.key);
    key_rows_ = few && !keys_in_rows_;
    keys_in_rows_ = keys_in_rows_ && keys_ % kGemmPadding == 0;
    values_in_rows_ = few && lies_in_rows(chain_.value) && results_ % kGemmPadding == 0;
    key_floats_ = packed_key_blocks() == 0 ? 0 : key_blocks_.packed_floats();
    packed_floats_ = key_floats_ + (packed_value_blocks() == 0 ? 0 : value_blocks_.packed_floats());
    query_step_ = round_up(tile_, kGemmPadding);
    score_step_ = round_up(keys_, kGemmPadding) + kGemmPadding;
    if (chain_.bias && chain_.bias->constant != nullptr) {
      const std::span<const float> values = chain_.bias->constant->values<float>();
      bias_.assign(values.begin(), values.end());
    }
  }

  std::size_t scratch_bytes() const override {
    return packed_bytes_of_run() + worker_bytes() * static_cast<std::size_t>(threads_);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    auto* packed = reinterpret_cast<float*>(context.scratch);
    const std::int64_t blocks = packed_key_blocks() + packed_value_blocks();
    context.pool.parallel_for(matrices_ * blocks, [&](std::int64_t task, int) {
      pack(inputs, task / blocks, task % blocks,
           packed + static_cast<std::size_t>(task / blocks) * packed_floats_);
    });
    context.pool.parallel_for(matrices_ * tiles_, [&](std::int64_t task, int worker) {
      auto* memory = reinterpret_cast<float*>(context.scratch + packed_bytes_of_run() +
                                              static_cast<std::size_t>(worker) * worker_bytes());
      const Rows rows{task / tiles_, task % tiles_ * tile_,
                      std::min(tile_, queries_ - task % tiles_ * tile_)};
      attend(rows, inputs, outputs[0].as<float>(),
             packed + static_cast<std::size_t>(rows.matrix) * packed_floats_, memory);
    });
  }

 private:
  struct Rows {
    std::int64_t matrix, first, count;
  };

  std::size_t packed_bytes_of_run() const {
    return round_up(
        static_cast<std::int64_t>(static_cast<std::size_t>(matrices_) * packed_floats_ * sizeof(float)),
        static_cast<std::int64_t>(HostBuffer::kAlignment));
  }
  // Rows of the matrix that products read, [size, keys] and [keys, size of results].
  static bool lies_in_rows(const AttentionOperand& x) {
    return x.strides[static_cast<std::size_t>(x.shape.rank()) - 1] == 1;
  }
  std::int64_t packed_key_blocks() const { return key_rows_ || keys_in_rows_ ? 0 : key_blocks_.n_blocks(); }
  std::int64_t packed_value_blocks() const { return values_in_rows_ ? 0 : value_blocks_.n_blocks(); }

  std::size_t workspace_floats() const {
    std::int64_t unpacked = keys_in_rows_ ? tile_ * size_ : 0;
    if (key_rows_) unpacked = kKeyRows * size_;
    if (values_in_rows_) unpacked = std::max(unpacked, tile_ * keys_);
    return std::max({key_blocks_.workspace_floats(tile_), value_blocks_.workspace_floats(tile_),
                     static_cast<std::size_t>(round_up(unpacked, kGemmPadding))});
  }
  // Queries packed, and their products with the keys before they are turned.
  std::size_t turned_floats() const {
    return key_rows_ ? static_cast<std::size_t>((size_ + keys_) * query_step_) : 0;
  }
  std::size_t worker_bytes() const {
    return worker_stride(
        (workspace_floats() + turned_floats() + static_cast<std::size_t>(tile_ * score_step_)) *
        sizeof(float));
  }

  // Where matrix `index` begins; dimensions are those of the query.
  std::int64_t offset_of(std::int64_t index, const Strides& strides) const {
    std::int64_t offset = 0;
    for (int d = chain_.query.shape.rank() - 3; d >= 0; --d) {
      offset += index % chain_.query.shape[d] * strides[static_cast<std::size_t>(d)];
      index /= chain_.query.shape[d];
    }
    return offset;
  }
  MatrixView view(std::span<const ConstTensorView> inputs, const AttentionOperand& x,
                  std::int64_t index) const {
    const auto rank = static_cast<std::size_t>(x.shape.rank());
    const float* data = inputs[static_cast<std::size_t>(x.input)].as<float>() + offset_of(index, x.strides);
    const bool by_rows = x.strides[rank - 1] == 1;
    return {data, by_rows ? x.strides[rank - 2] : x.strides[rank - 1], !by_rows};
  }

  void pack(std::span<const ConstTensorView> inputs, std::int64_t matrix, std::int64_t block,
            float* packed) const {
    if (block < packed_key_blocks())
      return pack_block_column(key_blocks_, view(inputs, chain_.key, matrix), block, packed);
    pack_block_column(value_blocks_, view(inputs, chain_.value, matrix), block - packed_key_blocks(),
                      packed + key_floats_);
  }

  // The first bias of a row, and how far apart those of its keys are.
  struct BiasRow {
    const float* data;
    std::int64_t step;
  };
  BiasRow bias_row(std::span<const ConstTensorView> inputs, std::int64_t matrix, std::int64_t query) const {
    const AttentionOperand& bias = *chain_.bias;
    const int rank = chain_.query.shape.rank();
    const int missing = rank - bias.shape.rank();
    std::int64_t offset = 0;
    const auto step = [&](int d) {
      const bool repeated = d < missing || bias.shape[d - missing] == 1;
      return repeated ? 0 : bias.strides[static_cast<std::size_t>(d - missing)];
    };
    offset += query * step(rank - 2);
    for (int d = rank - 3; d >= 0; --d) {
      offset += matrix % chain_.query.shape[d] * step(d);
      matrix /= chain_.query.shape[d];
    }
    const float* data =
        bias.constant != nullptr ? bias_.data() : inputs[static_cast<std::size_t>(bias.input)].as<float>();
    return {data + offset, step(rank - 1)};
  }

  void attend(const Rows& rows, std::span<const ConstTensorView> inputs, float* y, const float* packed,
              float* memory) const {
    float* workspace = memory;
    float* scores = memory + workspace_floats() + turned_floats();
    if (key_rows_) {
      multiply_key_rows(rows, inputs, scores, memory);
    } else {
      multiply_keys(rows, inputs, packed, scores, workspace);
    }
    float factors[kMaxQueries];
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float highest = 0;
      simd<below_largest<ShortVector>, below_largest<Vector>>(scores + r * score_step_, keys_, highest);
      factors[r] = highest;
    }
    row_kernels().f32.activations.exp(scores, scores, SpanRows{keys_, rows.count, score_step_});
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* row = scores + r * score_step_;
      const bool none = chain_.zero_without_keys && factors[r] == -std::numeric_limits<float>::infinity() &&
                        is_without_keys(inputs, rows.matrix, rows.first + r);
      factors[r] = none ? 0 : 1.0F / sum_of(row, keys_);
      if (none) std::fill_n(row, keys_, 0.0F);
    }
    const auto rank = static_cast<std::size_t>(chain_.query.shape.rank());
    const std::int64_t step = chain_.result_strides[rank - 2];
    y += offset_of(rows.matrix, chain_.result_strides) + rows.first * step;
    for (std::int64_t r = 0; r < rows.count; ++r) std::fill_n(y + r * step, results_, 0.0F);
    if (values_in_rows_) {
      const MatrixView value = view(inputs, chain_.value, rows.matrix);
      gemm_isa().accumulate_unpacked(rows.count, results_, keys_, 1, {scores, score_step_, false}, value.data,
                                     value.stride, y, step, workspace);
    }
    for (std::int64_t n = 0; n < packed_value_blocks(); ++n)
      multiply_block_column(value_blocks_, packed + key_floats_, n, rows.count, 1,
                            {scores, score_step_, false}, y + n * value_blocks_.n_block, step, workspace);
    for (std::int64_t r = 0; r < rows.count; ++r) simd<scale_all>(y + r * step, results_, factors[r]);
  }

  void multiply_keys(const Rows& rows, std::span<const ConstTensorView> inputs, const float* packed,
                     float* scores, float* workspace) const {
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* row = scores + r * score_step_;
      std::fill_n(row, keys_, 0.0F);
      if (!chain_.bias) continue;
      const BiasRow bias = bias_row(inputs, rows.matrix, rows.first + r);
      for (std::int64_t k = 0; k < keys_ && bias.step != 1; ++k) row[k] = bias.data[k * bias.step];
      if (bias.step == 1) std::copy_n(bias.data, keys_, row);
    }
    const MatrixView query = view(inputs, chain_.query, rows.matrix).from(rows.first, 0);
    const float alpha = chain_.query.scale * chain_.key.scale;
    if (keys_in_rows_) {
      const MatrixView key = view(inputs, chain_.key, rows.matrix);
      gemm_isa().accumulate_unpacked(rows.count, keys_, size_, alpha, query, key.data, key.stride, scores,
                                     score_step_, workspace);
      return;
    }
    for (std::int64_t n = 0; n < key_blocks_.n_blocks(); ++n)
      multiply_block_column(key_blocks_, packed, n, rows.count, alpha, query,
                            scores + n * key_blocks_.n_block, score_step_, workspace);
  }

  // Rows of keys times the packed queries, turned into rows of scores.
  void multiply_key_rows(const Rows& rows, std::span<const ConstTensorView> inputs, float* scores,
                         float* memory) const {
    float* const packed = memory + workspace_floats();
    float* const turned = packed + size_ * query_step_;
    const MatrixView query = view(inputs, chain_.query, rows.matrix).from(rows.first, 0);
    const MatrixView key = view(inputs, chain_.key, rows.matrix);
    gemm_isa().pack({query.data, query.stride, !query.transposed}, size_, rows.count, packed);
    std::fill_n(turned, keys_ * query_step_, 0.0F);
    const float alpha = chain_.query.scale * chain_.key.scale;
    constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
    for (std::int64_t k = 0; k < keys_; k += kKeyRows) {
      const std::int64_t count = std::min(kKeyRows, keys_ - k);
      float* const products = turned + k * query_step_;
      gemm_isa().accumulate(count, rows.count, size_, alpha, {key.data + k * key.stride, key.stride, false},
                            packed, products, query_step_, memory);
      transpose_of(sizeof(float))({reinterpret_cast<std::byte*>(scores + k),
                                   reinterpret_cast<const std::byte*>(products), score_step_ * kFloat,
                                   query_step_ * kFloat, rows.count, count});
    }
    for (std::int64_t r = 0; r < rows.count && chain_.bias; ++r) {
      float* const row = scores + r * score_step_;
      const BiasRow bias = bias_row(inputs, rows.matrix, rows.first + r);
      for (std::int64_t k = 0; k < keys_ && bias.step != 1; ++k) row[k] += bias.data[k * bias.step];
      if (bias.step == 1) simd<add_all>(bias.data, row, keys_);
    }
  }

  bool is_without_keys(std::span<const ConstTensorView> inputs, std::int64_t matrix,
                       std::int64_t query) const {
    const BiasRow bias = bias_row(inputs, matrix, query);
    for (std::int64_t k = 0; k < keys_; ++k) {
      if (bias.data[k * bias.step] != -std::numeric_limits<float>::infinity()) return false;
    }
    return true;
  }

  AttentionChain chain_;
  int threads_;
  std::vector<float> bias_;  // of a constant
  std::int64_t matrices_ = 1, queries_ = 0, keys_ = 0, size_ = 0, results_ = 0;
  std::int64_t tile_ = 0, tiles_ = 0;
  GemmBlocking key_blocks_, value_blocks_;
  std::size_t key_floats_ = 0, packed_floats_ = 0;  // of one matrix
  std::int64_t score_step_ = 0;
  bool key_rows_ = false;        // few queries: products of rows of keys with them
  bool keys_in_rows_ = false;    // or with the keys as they lie
  bool values_in_rows_ = false;  // values as they lie
  std::int64_t query_step_ = 0;
};

bool takes_attention(const NodeSpec& first, std::span<const ChainLink> links) {
  return links.empty() ? AttentionChain::may_begin(first) : AttentionChain::of(first, links).has_value();
}

}  // namespace

void register_cpu_attention(Registry& registry) {
  for (const std::string_view type : {Transpose::kType, Binary::kType, MatMul::kType}) {
    Candidate candidate{"attention",
                        [](const NodeSpec&) { return Refusal("runs several layers together only"); },
                        [](const NodeSpec& spec) { return std::make_unique<Attention>(spec); }};
    candidate.fusions.chain = takes_attention;
    candidate.fusions.chain_reads_outside = true;
    registry.add(type, DeviceKind::cpu, std::move(candidate));
  }
}

}  // namespace pipit::internal
