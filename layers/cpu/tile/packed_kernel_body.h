// The body of PackedKernels, included by tile_<isa>.cpp after its f32 traits T, which besides those of
// tile_kernel_body.h provide
//   Words                 kLanes words of 32 bits, as a vector type that can be shifted
//   kPackedRows           most rows of a call
//   integers(bytes)       kLanes signed bytes as floats
//   half_byte(words, j)   half-byte j of every word, signed, as floats
//   halves(bytes), bfloats(bytes)
//                         kLanes halves or bfloat16, aligned to half a vector, as floats

// Weights are prefetched this many bytes before their use, since each is used once.
constexpr std::int64_t kPackedAhead = 4096;

// What a weight is stored as.
enum class Packed { int8, int4, f16, bf16 };
constexpr bool is_float(Packed form) {
  return form == Packed::f16 || form == Packed::bf16;
}
constexpr int bits_of(Packed form) {
  return form == Packed::int4 ? 4 : form == Packed::int8 ? 8 : 16;
}

template <typename T, Packed Form, int Vectors>
inline constexpr std::int64_t kBlockBytes = kPackedBlock* bits_of(Form) * Vectors* T::kLanes / 8;

// The weights of one block, decoded step by step.
template <typename T, Packed Form, int Vectors>
struct PackedBlock {
  const std::byte* data;
  typename T::Words words[Form == Packed::int4 ? Vectors : 1];

  PIPIT_TILE_INLINE PackedBlock at(const std::byte* block) {
    PackedBlock result;
    result.data = block;
    if constexpr (Form == Packed::int4) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        std::memcpy(&result.words[v], block + v * kVectorBytes<T>, sizeof(typename T::Words));
    }
    return result;
  }
  __attribute__((always_inline)) inline typename T::Vector weight(int j, int v) const {
    if constexpr (Form == Packed::int4) {
      return T::half_byte(words[v], j);
    } else if constexpr (Form == Packed::f16) {
      return T::halves(data + 2 * (j * Vectors + v) * T::kLanes);
    } else if constexpr (Form == Packed::bf16) {
      return T::bfloats(data + 2 * (j * Vectors + v) * T::kLanes);
    } else {
      return T::integers(data + (j * Vectors + v) * T::kLanes);
    }
  }
};

template <typename T, Packed Form, int Rows, int Vectors, int Parts>
PIPIT_TILE_INLINE void add_block(typename T::Vector* sums, const std::byte* data, const float* x,
                                 std::int64_t stride) {
  const auto block = PackedBlock<T, Form, Vectors>::at(data);
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
template <typename T, Packed Form, int Vectors>
PIPIT_TILE_ONCE void add_part(typename T::Vector* sums, const std::byte* data, const float* x,
                              std::int64_t stride, std::int64_t rest, int rows, int parts) {
  const auto block = PackedBlock<T, Form, Vectors>::at(data);
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

template <typename T, Packed Form, int Rows, int Vectors>
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
      for (std::int64_t line = 0; line < kBlockBytes<T, Form, Vectors>; line += kLine)
        __builtin_prefetch(block + kPackedAhead + line, 0, 3);
      add_block<T, Form, Rows, Vectors, Parts>(sums, block, x + k, call.x_stride);
      block += kBlockBytes<T, Form, Vectors>;
    }
    if (const std::int64_t rest = count % kPackedBlock; rest != 0) {
      typename T::Vector stored[Parts * kSums];
#pragma GCC unroll 16
      for (int i = 0; i < Parts * kSums; ++i) stored[i] = sums[i];
      add_part<T, Form, Vectors>(stored, block, x + count - rest, call.x_stride, rest, Rows, Parts);
#pragma GCC unroll 16
      for (int i = 0; i < Parts * kSums; ++i) sums[i] = stored[i];
      block += kBlockBytes<T, Form, Vectors>;
    }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      typename T::Vector scale{};
      if constexpr (!is_float(Form)) std::memcpy(&scale, scales + v * T::kLanes, sizeof scale);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        typename T::Vector sum = sums[r * Vectors + v];
#pragma GCC unroll 4
        for (int p = 1; p < Parts; ++p) sum = sum + sums[(p * Rows + r) * Vectors + v];
        if constexpr (is_float(Form)) {
          total[r * Vectors + v] = total[r * Vectors + v] + sum;
        } else {
          total[r * Vectors + v] = T::multiply_add(total[r * Vectors + v], sum, scale);
        }
      }
    }
    if constexpr (!is_float(Form)) scales += Vectors * T::kLanes;
  }
  typename T::Vector stored[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) stored[i] = total[i];
  finish_packed<T, Vectors>(call, stored, Rows);
}

template <typename T, Packed Form, int Vectors>
void widen_packed(const PackedCall& call, float* to) {
  const std::byte* data = call.weights;
  const float* scales = call.scales;
  for (std::int64_t begin = 0; begin < call.depth; begin += call.group) {
    typename T::Vector scale[Vectors];
    for (int v = 0; v < Vectors; ++v) std::memcpy(&scale[v], scales + v * T::kLanes, sizeof scale[v]);
    scales += Vectors * T::kLanes;
    const std::int64_t end = begin + call.group < call.depth ? begin + call.group : call.depth;
    for (std::int64_t k = begin; k < end; k += kPackedBlock) {
      const auto block = PackedBlock<T, Form, Vectors>::at(data);
      data += kBlockBytes<T, Form, Vectors>;
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

template <typename T, Packed Form, int Rows, int Vectors>
constexpr PackedKernels::Multiply packed_instance() {
  if constexpr (Rows <= T::kPackedRows) {
    return multiply_packed<T, Form, Rows, Vectors>;
  } else {
    return nullptr;
  }
}

#define PIPIT_PACKED_ROWS(T, form, rows) \
  { packed_instance<T, form, rows, 1>(), packed_instance<T, form, rows, 2>() }
#define PIPIT_PACKED_FORM(T, form)                                                                   \
  {                                                                                                  \
    PIPIT_PACKED_ROWS(T, form, 1), PIPIT_PACKED_ROWS(T, form, 2), PIPIT_PACKED_ROWS(T, form, 3),     \
        PIPIT_PACKED_ROWS(T, form, 4), PIPIT_PACKED_ROWS(T, form, 5), PIPIT_PACKED_ROWS(T, form, 6), \
        PIPIT_PACKED_ROWS(T, form, 7), PIPIT_PACKED_ROWS(T, form, 8)                                 \
  }
#define PIPIT_PACKED_KERNELS(T, isa)                                                               \
  {                                                                                                \
    isa, T::kPackedRows, {PIPIT_PACKED_FORM(T, Packed::int8), PIPIT_PACKED_FORM(T, Packed::int4)}, \
        {PIPIT_PACKED_FORM(T, Packed::f16), PIPIT_PACKED_FORM(T, Packed::bf16)}, {                 \
      {widen_packed<T, Packed::int8, 1>, widen_packed<T, Packed::int8, 2>}, {                      \
        widen_packed<T, Packed::int4, 1>, widen_packed<T, Packed::int4, 2>                         \
      }                                                                                            \
    }                                                                                              \
  }
