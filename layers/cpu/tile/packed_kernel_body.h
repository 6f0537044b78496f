// The body of PackedKernels, included by tile_<isa>.cpp after its f32 traits T, which besides those of
// tile_kernel_body.h provide
//   Words                 kLanes words of 32 bits, as a vector type that can be shifted
//   kPackedRows           most rows of a call
//   integers(bytes)       kLanes signed bytes as floats
//   half_byte(words, j)   half-byte j of every word, signed, as floats
//   halves(bytes)         kLanes halves, a vector's size aligned, as floats

// Weights are prefetched this many bytes before their use, since each is used once.
constexpr std::int64_t kPackedAhead = 4096;

template <typename T, int Bits, int Vectors>
inline constexpr std::int64_t kBlockBytes = kPackedBlock* Bits* Vectors* T::kLanes / 8;

// The weights of one block, decoded step by step.
template <typename T, int Bits, int Vectors>
struct PackedBlock {
  const std::byte* data;
  typename T::Words words[Bits == 4 ? Vectors : 1];

  PIPIT_TILE_INLINE PackedBlock at(const std::byte* block) {
    PackedBlock result;
    result.data = block;
    if constexpr (Bits == 4) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        std::memcpy(&result.words[v], block + v * kVectorBytes<T>, sizeof(typename T::Words));
    }
    return result;
  }
  __attribute__((always_inline)) inline typename T::Vector weight(int j, int v) const {
    if constexpr (Bits == 4) {
      return T::half_byte(words[v], j);
    } else if constexpr (Bits == 16) {
      return T::halves(data + 2 * (j * Vectors + v) * T::kLanes);
    } else {
      return T::integers(data + (j * Vectors + v) * T::kLanes);
    }
  }
};

template <typename T, int Bits, int Rows, int Vectors, int Parts>
PIPIT_TILE_INLINE void add_block(typename T::Vector* sums, const std::byte* data, const float* x,
                                 std::int64_t stride) {
  const auto block = PackedBlock<T, Bits, Vectors>::at(data);
#pragma GCC unroll 8
  for (int j = 0; j < kPackedBlock; ++j) {
    typename T::Vector w[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) w[v] = block.weight(j, v);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const typename T::Vector a = T::broadcast(reinterpret_cast<const std::byte*>(x + r * stride + j));
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        typename T::Vector& sum = sums[(j % Parts * Rows + r) * Vectors + v];
        sum = T::multiply_add(sum, a, w[v]);
      }
    }
  }
}

// The last block of a group, of which `rest` inputs exist; zeros are after them. One function for any number of rows.
template <typename T, int Bits, int Vectors>
PIPIT_TILE_ONCE void add_part(typename T::Vector* sums, const std::byte* data, const float* x,
                              std::int64_t stride, std::int64_t rest, int rows, int parts) {
  const auto block = PackedBlock<T, Bits, Vectors>::at(data);
  for (int j = 0; j < kPackedBlock; ++j) {
    for (int r = 0; r < rows; ++r) {
      const float value = j < rest ? x[r * stride + j] : 0;
      const typename T::Vector a = T::broadcast(reinterpret_cast<const std::byte*>(&value));
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        typename T::Vector& sum = sums[(j % parts * rows + r) * Vectors + v];
        sum = T::multiply_add(sum, a, block.weight(j, v));
      }
    }
  }
}

template <typename T, int Vectors>
PIPIT_TILE_ONCE void finish_packed(const PackedCall& call, const typename T::Vector* total, int rows) {
  for (int r = 0; r < rows; ++r) {
    const auto* residual = call.residual != nullptr
                               ? reinterpret_cast<const std::byte*>(call.residual + r * call.y_stride)
                               : nullptr;
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      T::template finish<false>(total[r * Vectors + v] + T::start(call.finish, v), call.finish, v, residual,
                                reinterpret_cast<std::byte*>(call.y + r * call.y_stride), nullptr);
  }
}

template <typename T, int Bits, int Rows, int Vectors>
void multiply_packed(const PackedCall& call) {
  // Enough independent sums to hide the latency of an addition.
  constexpr int Parts = Rows * Vectors >= 8 ? 1 : Rows * Vectors >= 4 ? 2 : 4;
  constexpr int kSums = Rows * Vectors;
  typename T::Vector total[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) total[i] = T::zero();
  const std::byte* block = call.weights;
  const float* scales = call.scales;
  for (std::int64_t begin = 0; begin < call.depth; begin += call.group) {
    const std::int64_t left = call.depth - begin;
    const std::int64_t count = left < call.group ? left : call.group;
    typename T::Vector sums[Parts * kSums];
#pragma GCC unroll 16
    for (int i = 0; i < Parts * kSums; ++i) sums[i] = T::zero();
    const float* x = call.x + begin;
    for (std::int64_t k = 0; k + kPackedBlock <= count; k += kPackedBlock) {
      constexpr std::int64_t kLine = 64;
#pragma GCC unroll 8
      for (std::int64_t line = 0; line < kBlockBytes<T, Bits, Vectors>; line += kLine)
        __builtin_prefetch(block + kPackedAhead + line, 0, 3);
      add_block<T, Bits, Rows, Vectors, Parts>(sums, block, x + k, call.x_stride);
      block += kBlockBytes<T, Bits, Vectors>;
    }
    if (const std::int64_t rest = count % kPackedBlock; rest != 0) {
      typename T::Vector stored[Parts * kSums];
#pragma GCC unroll 16
      for (int i = 0; i < Parts * kSums; ++i) stored[i] = sums[i];
      add_part<T, Bits, Vectors>(stored, block, x + count - rest, call.x_stride, rest, Rows, Parts);
#pragma GCC unroll 16
      for (int i = 0; i < Parts * kSums; ++i) sums[i] = stored[i];
      block += kBlockBytes<T, Bits, Vectors>;
    }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      typename T::Vector scale{};
      if constexpr (Bits < 16) std::memcpy(&scale, scales + v * T::kLanes, sizeof scale);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        typename T::Vector sum = sums[r * Vectors + v];
#pragma GCC unroll 4
        for (int p = 1; p < Parts; ++p) sum = sum + sums[(p * Rows + r) * Vectors + v];
        if constexpr (Bits == 16) {
          total[r * Vectors + v] = total[r * Vectors + v] + sum;
        } else {
          total[r * Vectors + v] = T::multiply_add(total[r * Vectors + v], sum, scale);
        }
      }
    }
    if constexpr (Bits < 16) scales += Vectors * T::kLanes;
  }
  typename T::Vector stored[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) stored[i] = total[i];
  finish_packed<T, Vectors>(call, stored, Rows);
}

template <typename T, int Bits, int Vectors>
void widen_packed(const PackedCall& call, float* to) {
  const std::byte* data = call.weights;
  const float* scales = call.scales;
  for (std::int64_t begin = 0; begin < call.depth; begin += call.group) {
    typename T::Vector scale[Vectors];
    for (int v = 0; v < Vectors; ++v) std::memcpy(&scale[v], scales + v * T::kLanes, sizeof scale[v]);
    scales += Vectors * T::kLanes;
    const std::int64_t end = begin + call.group < call.depth ? begin + call.group : call.depth;
    for (std::int64_t k = begin; k < end; k += kPackedBlock) {
      const auto block = PackedBlock<T, Bits, Vectors>::at(data);
      data += kBlockBytes<T, Bits, Vectors>;
      const std::int64_t steps = end - k;
#pragma GCC unroll 8
      for (int j = 0; j < kPackedBlock; ++j) {
        if (j >= steps) break;
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v, to += T::kLanes) {
          const typename T::Vector w = block.weight(j, v) * scale[v];
          std::memcpy(to, &w, sizeof w);
        }
      }
    }
  }
}

template <typename T, int Bits, int Rows, int Vectors>
constexpr PackedKernels::Multiply packed_instance() {
  if constexpr (Rows <= T::kPackedRows) {
    return multiply_packed<T, Bits, Rows, Vectors>;
  } else {
    return nullptr;
  }
}

#define PIPIT_PACKED_ROWS(T, bits, rows) \
  { packed_instance<T, bits, rows, 1>(), packed_instance<T, bits, rows, 2>() }
#define PIPIT_PACKED_BITS(T, bits)                                                                   \
  {                                                                                                  \
    PIPIT_PACKED_ROWS(T, bits, 1), PIPIT_PACKED_ROWS(T, bits, 2), PIPIT_PACKED_ROWS(T, bits, 3),     \
        PIPIT_PACKED_ROWS(T, bits, 4), PIPIT_PACKED_ROWS(T, bits, 5), PIPIT_PACKED_ROWS(T, bits, 6), \
        PIPIT_PACKED_ROWS(T, bits, 7), PIPIT_PACKED_ROWS(T, bits, 8)                                 \
  }
#define PIPIT_PACKED_KERNELS(T, isa)                                                                     \
  {                                                                                                      \
    isa, T::kPackedRows, {PIPIT_PACKED_BITS(T, 8), PIPIT_PACKED_BITS(T, 4)}, PIPIT_PACKED_BITS(T, 16), { \
      {widen_packed<T, 8, 1>, widen_packed<T, 8, 2>}, {                                                  \
        widen_packed<T, 4, 1>, widen_packed<T, 4, 2>                                                     \
      }                                                                                                  \
    }                                                                                                    \
  }
