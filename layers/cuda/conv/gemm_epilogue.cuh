// The epilogues of matrix products, from sums to y: in fp16 and bf16 (bias, residual, clamp and a function in
// float, one rounding) and in INT8.
#pragma once

#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// v clamped and rounded once to an element of 16 bits.
template <typename Element>
__device__ __forceinline__ Element finish_value(const ConvGemmArgs& args, float v) {
  return store<Element>(clamp_value(v, args.low, args.high));
}

/// In fp16 and bf16. Function: ConvGemmArgs::function is computed, in kernels of its own: nothing but the size of what
/// they do not run makes kernels that compute little slower.
template <typename T, bool Function>
struct HalfEpilogue {
  static constexpr bool kAverages = false;
  using F = ConvGemmFragments<T>;
  using Element = typename T::Element;
  using Two = TwoOf<Element>;
  using Sum = typename T::Sum;
  using Eight = uint4;  // neighbouring channels of residual or y
  /// What belongs to the tile's columns, in shared memory.
  struct Columns {
    float bias[T::kColumns];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads)
      columns.bias[c] = static_cast<const float*>(args.bias)[first_column + c];
  }
  /// The sums' first values, before any product.
  static __device__ __forceinline__ void start(const ConvGemmArgs&, F&, int, int) {}
  static __device__ __forceinline__ float first_sum(const Columns& columns, int column) {
    return columns.bias[column];
  }
  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs& args) {
    return args.residual != nullptr && args.splits == 1 && args.shape.out_c % T::kGroup == 0;
  }

  /// Eight neighbouring channels: sum (bias included) + residual, clamped. `held` is the residual where out_c is a
  /// multiple of 8.
  static __device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const Columns&,
                                                         const Sum (&sum)[8], uint4 held, int row,
                                                         int first_column, int tile_column) {
    const int out_c = args.shape.out_c;
    const int column = first_column + tile_column;
    const std::int64_t at = output_offset(args, row, column);
    const auto* residual = reinterpret_cast<const Element*>(args.residual);
    auto* y = reinterpret_cast<Element*>(args.y);
    if constexpr (Function) return finish_function(args, sum, held, at, out_c - column);
    if (out_c % 8 == 0) {
      __align__(16) Element r[8];
      *reinterpret_cast<uint4*>(r) = held;
#pragma unroll
      for (int j = 0; j < 8; ++j) r[j] = finish_value<Element>(args, sum[j] + cuda::load(r[j]));
      *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<const uint4*>(r);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (column + j >= out_c) break;
        y[at + j] =
            finish_value<Element>(args, sum[j] + (residual != nullptr ? cuda::load(residual[at + j]) : 0.0F));
      }
    }
  }

  /// Writes the tile when its block has the whole depth: through `tile` in shared memory, which holds the residual
  /// where `staged`, so that the stores are whole rows of 16 bytes.
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    std::uint8_t* tile, const Columns& columns, bool staged,
                                                    int first_row, int first_column) {
    const int out_c = args.shape.out_c;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* residual = reinterpret_cast<const Element*>(args.residual);
    const auto row_of = [&](int i, int h) { return F::first_row(warp) + i * F::kRowStep + lane / 4 + h * 8; };
    const auto column_of = [&](int j) { return F::first_column(warp) + j * 8 + lane % 4 * 2; };
    const auto place_of = [&](int row, int column) {
      return reinterpret_cast<Two*>(tile + T::tile_chunk(row, column / 8) * 16 + lane % 4 * 4);
    };
    const auto with_residual = [&](float2 v, const Two* at, int row, int column) {
      if (staged) {
        const float2 r = to_floats(*at);
        v.x += r.x, v.y += r.y;
      } else if (residual != nullptr && first_row + row < args.rows) {
        const std::int64_t from = output_offset(args, first_row + row, first_column + column);
        if (first_column + column < out_c) v.x += cuda::load(residual[from]);
        if (first_column + column + 1 < out_c) v.y += cuda::load(residual[from + 1]);
      }
      return v;
    };
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
      float values[2][F::kN * 2];  // of the function
#pragma unroll
      for (int j = 0; j < F::kN; ++j) {
        const int column = column_of(j);
        const float2 b = *reinterpret_cast<const float2*>(columns.bias + column);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = row_of(i, h);
          Two* at = place_of(row, column);
          const Sum(&sums)[4] = fragments.sums[i][j];
          const float2 v =
              with_residual(make_float2(sums[h * 2] + b.x, sums[h * 2 + 1] + b.y), at, row, column);
          if constexpr (Function) {
            values[h][j * 2] = v.x, values[h][j * 2 + 1] = v.y;
          } else {
            *at =
                to_two<Element>(clamp_value(v.x, args.low, args.high), clamp_value(v.y, args.low, args.high));
          }
        }
      }
      if constexpr (Function) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          apply_clamped(args.function, args.low, args.high, values[h]);
#pragma unroll
          for (int j = 0; j < F::kN; ++j) {
            *place_of(row_of(i, h), column_of(j)) = to_two<Element>(values[h][j * 2], values[h][j * 2 + 1]);
          }
        }
      }
    }
    __syncthreads();
    auto* y = reinterpret_cast<Element*>(args.y);
    const int group = static_cast<int>(threadIdx.x) % T::kGroups;
    const int column = first_column + group * 8;
    if (column >= out_c) return;
#pragma unroll
    for (int i = 0; i < T::kRows / T::kPass; ++i) {
      const int row = static_cast<int>(threadIdx.x) / T::kGroups + i * T::kPass;
      if (first_row + row >= args.rows) break;
      const uint4 chunk = *reinterpret_cast<const uint4*>(tile + T::tile_chunk(row, group) * 16);
      Element* to = y + output_offset(args, first_row + row, column);
      if (out_c % 8 == 0) {
        *reinterpret_cast<uint4*>(to) = chunk;
      } else {
        const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          if (column + c < out_c)
            to[c] = of_bits<Element>(static_cast<unsigned short>(words[c / 2] >> c % 2 * 16));
        }
      }
    }
  }

 private:
  /// finish_channels() with the function. left: channels from the first of the eight on.
  static __device__ __forceinline__ void finish_function(const ConvGemmArgs& args, const Sum (&sum)[8],
                                                         uint4 held, std::int64_t at, int left) {
    const auto* residual = reinterpret_cast<const Element*>(args.residual);
    auto* y = reinterpret_cast<Element*>(args.y);
    const bool whole = args.shape.out_c % 8 == 0;
    __align__(16) Element r[8];
    *reinterpret_cast<uint4*>(r) = held;
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = sum[j];
      if (whole) {
        v[j] += cuda::load(r[j]);
      } else if (residual != nullptr && j < left) {
        v[j] += cuda::load(residual[at + j]);
      }
    }
    apply_clamped(args.function, args.low, args.high, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) r[j] = store<Element>(v[j]);
    if (whole) {
      *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<const uint4*>(r);
      return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j < left) y[at + j] = r[j];
    }
  }
};

/// What y is: i8, i8 that went through a table (ConvGemmArgs::table), or f16, bf16 or f32 (`stored`). One kernel for
/// all would be up to a fifth slower where it writes i8.
enum class Int8Result : std::uint8_t { bytes, looked_up, real };

/// x, residual and, before the table, an INT8 y are i8 with zero point 0.
/// HoldsBounds: there are registers for the bounds of pairs.
template <typename T, Int8Result Result, bool HoldsBounds = true>
struct Int8Epilogue {
  static constexpr bool kAverages = false;
  static constexpr bool kReal = Result == Int8Result::real;
  static constexpr bool kLooksUp = Result == Int8Result::looked_up;
  using F = ConvGemmFragments<T>;
  using Eight = uint2;  // neighbouring channels of residual or y
  template <int Count>
  struct alignas(Count * 4) Words {
    std::uint32_t word[Count];
  };
  /// What belongs to the tile's columns, in shared memory.
  struct Columns {
    float multiplier[T::kColumns];
    alignas(4) std::uint8_t table[kLooksUp ? 256 : 4];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads)
      columns.multiplier[c] = args.multipliers[first_column + c];
    if constexpr (kLooksUp) copy_table(columns.table, args.table);
  }
  /// Sums begin with the bias; small ones with kMagicBits in addition, so that their bits are a float (stores.cuh).
  static __device__ __forceinline__ void start(const ConvGemmArgs& args, F& fragments, int first_column,
                                               int split) {
    if (split != 0) return;  // they are added up
    const int magic = args.small ? kMagicBits : 0;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int j = 0; j < F::kN; ++j) {
      const int column = first_column + F::first_column(warp) + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      const int2 bias = *reinterpret_cast<const int2*>(static_cast<const int*>(args.bias) + column);
#pragma unroll
      for (int i = 0; i < F::kM; ++i) {
        fragments.sums[i][j][0] = fragments.sums[i][j][2] = bias.x + magic;
        fragments.sums[i][j][1] = fragments.sums[i][j][3] = bias.y + magic;
      }
    }
  }
  static __device__ __forceinline__ int first_sum(const Columns&, int) {
    return 0;
  }
  /// Residuals go from memory to registers.
  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs&) {
    return false;
  }

  struct Bounds {
    float low, high;
  };

  /// One element whose residual, if any, is not at hand yet. Any: y is stored as args say.
  template <bool Any = false>
  static __device__ __forceinline__ void store_one(const ConvGemmArgs& args, const Columns& columns, float v,
                                                   std::int64_t at) {
    if (args.residual != nullptr)
      v = with_residual(v, static_cast<float>(static_cast<const signed char*>(args.residual)[at]),
                        args.residual_scale);
    if (kReal || (Any && args.stored != StoredType::i8)) {
      v = clamp_value(v, args.low, args.high);
      if (args.stored == StoredType::f16) {
        static_cast<__half*>(args.y)[at] = __float2half_rn(v);
      } else if (args.stored == StoredType::bf16) {
        static_cast<__nv_bfloat16*>(args.y)[at] = __float2bfloat16_rn(v);
      } else {
        static_cast<float*>(args.y)[at] = v;
      }
    } else {
      static_cast<std::uint8_t*>(args.y)[at] =
          static_cast<std::uint8_t>(byte_of<kLooksUp>(v, args.low, args.high, columns.table));
    }
  }

  /// Count neighbouring channels, 4 or 8; `at` is a multiple of Count. pairs: bytes are clamped two at a time.
  template <StoredType Stored, int Count>
  static __device__ __forceinline__ void store_run(const ConvGemmArgs& args, const Columns& columns,
                                                   const Bounds& bounds, const float (&v)[Count],
                                                   std::int64_t at, bool pairs) {
    void* y = args.y;
    if constexpr (Stored == StoredType::i8) {
      Words<Count / 4> run;
#pragma unroll
      for (int w = 0; w < Count / 4; ++w) {
        const float four[4] = {v[w * 4], v[w * 4 + 1], v[w * 4 + 2], v[w * 4 + 3]};
        run.word[w] = !kLooksUp && pairs ? requantize_four<false>(four, args.whole_bounds)
                                         : four_bytes<kLooksUp>(four, bounds.low, bounds.high, columns.table);
      }
      *reinterpret_cast<Words<Count / 4>*>(static_cast<std::uint8_t*>(y) + at) = run;
    } else {
      store_clamped(Stored, y, at, v, bounds.low, bounds.high);
    }
  }

  /// The column of the tile that has channel `channel` + k of it, channel being a multiple of 8 and k < 8.
  static __device__ __forceinline__ constexpr int column_of(int channel, int k) {
    return (channel & ~31) + k / 2 * 8 + (channel >> 3 & 3) * 2 + k % 2;
  }

  /// Eight neighbouring channels: sum + residual, clamped. `held` is the residual where out_c is a multiple of 8.
  static __device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const Columns& columns,
                                                         const int (&sum)[8], uint2 held, int row,
                                                         int first_column, int tile_channel) {
    const int out_c = args.shape.out_c;
    const std::int64_t at = output_offset(args, row, first_column + tile_channel);
    const Bounds bounds{args.low, args.high};
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
      v[j] = scaled(sum[j], columns.multiplier[column_of(tile_channel, j)], args.small);
    if (out_c % 8 == 0) {
      if (args.residual != nullptr) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const std::uint32_t word = j < 4 ? held.x : held.y;
          v[j] = with_residual(v[j], static_cast<float>(static_cast<signed char>(word >> j % 4 * 8)),
                               args.residual_scale);
        }
      }
      if constexpr (!kReal) {
        store_run<StoredType::i8>(args, columns, bounds, v, at, false);
      } else {
        store_clamped(args.stored, args.y, at, v, args.low, args.high);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (first_column + tile_channel + j >= out_c) break;
        store_one(args, columns, v[j], at + j);
      }
    }
  }

  static constexpr int kTogether =
      F::kN % 4 == 0 ? 4 : 2;  // fragments whose columns are a lane's neighbouring channels
  static constexpr int kRun = kTogether * 2;
  static constexpr int kRuns = F::kN / kTogether;  // of a row

  /// Writes the tile when its block has the whole depth: a lane has eight neighbouring channels of every 32.
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    std::uint8_t*, const Columns& columns, bool,
                                                    int first_row, int first_column) {
    if constexpr (!kReal) {
      // What nearly all tiles run lies next to the products, and what hardly any does is small: nothing but the size
      // of the rest made kernels that compute little up to a fifth slower.
      if (args.shape.out_c % 8 == 0 && first_column + T::kColumns <= args.shape.out_c) [[likely]] {
        write_runs<StoredType::i8, true>(args, fragments, columns, first_row, first_column);
      } else if (args.shape.out_c % 8 == 0) {
        write_rows<StoredType::i8, false>(args, fragments, columns, first_row, first_column,
                                          args.residual != nullptr, args.small);
      } else {
        write_elements(args, fragments, columns, first_row, first_column);
      }
    } else if (args.shape.out_c % 8 != 0) {
      write_elements(args, fragments, columns, first_row, first_column);
    } else if (args.stored == StoredType::f16) {
      write_runs<StoredType::f16>(args, fragments, columns, first_row, first_column);
    } else if (args.stored == StoredType::bf16) {
      write_runs<StoredType::bf16>(args, fragments, columns, first_row, first_column);
    } else {
      write_runs<StoredType::f32>(args, fragments, columns, first_row, first_column);
    }
  }

  /// The same of a tile whose columns are all y's, in i8. residual: where it lies in shared memory, rows of 128 bytes
  /// swizzled as by swizzled_chunk<8>.
  static __device__ __forceinline__ void add_and_write_tile(const ConvGemmArgs& args, const F& fragments,
                                                            const Columns& columns, std::uint32_t residual,
                                                            int first_row, int first_column) {
    static_assert(!kReal && T::kColumns == 128);
    const auto write = [&](bool small) {
      write_rows<StoredType::i8, true, true>(args, fragments, columns, first_row, first_column, true, small,
                                             residual);
    };
    args.small ? write(true) : write(false);
  }

 private:
  static constexpr int kStep = kTogether * 8;  // channels from a lane's run to its next

  // Where a lane's runs of a tile are.
  struct Lane {
    int first_row, column, channel;  // of the first of each; column: in the order of the packed weights

    __device__ __forceinline__ Lane(int tile_row, int tile_column) {
      const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
      first_row = tile_row + F::first_row(warp) + lane / 4;
      column = F::first_column(warp) + lane % 4 * 2;
      channel = tile_column + packed_channel(column);
    }
    __device__ __forceinline__ int row(int i, int h) const { return first_row + i * F::kRowStep + h * 8; }
  };
  // From memory. left: channels from the first run to y's end.
  template <bool Whole>
  static __device__ __forceinline__ void load_runs(const ConvGemmArgs& args, std::int64_t at, int left,
                                                   Words<kRun / 4> (&runs)[kRuns]) {
    const auto* from = static_cast<const std::uint8_t*>(args.residual) + at;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (Whole || run * kStep < left)
        runs[run] = *reinterpret_cast<const Words<kRun / 4>*>(from + run * kStep);
    }
  }

  // From shared memory; row, column: of the tile.
  static __device__ __forceinline__ void load_runs(std::uint32_t residual, int row, int column,
                                                   Words<kRun / 4> (&runs)[kRuns]) {
    static_assert(kRun == 8);
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int byte = packed_channel(column) + run * kStep;
      const std::uint32_t from = residual + row * 128 + swizzled_chunk<8>(row, byte / 16) * 16 + byte % 16;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n"
                   : "=r"(runs[run].word[0]), "=r"(runs[run].word[1])
                   : "r"(from)
                   : "memory");
    }
  }

  // Whole: the tile's columns are all y's, and need no tests.
  template <StoredType Stored, bool Whole = false>
  static __device__ __forceinline__ void write_runs(const ConvGemmArgs& args, const F& fragments,
                                                    const Columns& columns, int first_row, int first_column) {
    const auto write = [&](bool residual, bool small) {
      write_rows<Stored, Whole>(args, fragments, columns, first_row, first_column, residual, small);
    };
    // A loop for each, of constants.
    if (args.residual != nullptr) {
      args.small ? write(true, true) : write(true, false);
    } else {
      args.small ? write(false, true) : write(false, false);
    }
  }

  // Straight from registers, a lane's neighbouring channels at once.
  // InShared: the residual, at `shared`.
  template <StoredType Stored, bool Whole, bool InShared = false>
  static __device__ __forceinline__ void write_rows(const ConvGemmArgs& args, const F& fragments,
                                                    const Columns& columns, int first_row, int first_column,
                                                    bool residual, bool small, std::uint32_t shared = 0) {
    const Lane lane(first_row, first_column);
    const float* multipliers = columns.multiplier + lane.column;
    const int left = args.shape.out_c - lane.channel;
    const float residual_scale = args.residual_scale;
    const std::uint32_t base = InShared ? byte_base() : kByteBase;
    const bool pairs = small && (InShared || HoldsBounds);
    const Bounds bounds{args.low, args.high};
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = lane.row(i, h);
        if (row >= args.rows) continue;
        const std::int64_t at = output_offset(args, row, lane.channel);
        Words<kRun / 4> held[kRuns];
        if (residual) {
          if constexpr (InShared) {
            load_runs(shared, row - first_row, lane.column, held);
          } else {
            load_runs<Whole>(args, at, left, held);
          }
        }
#pragma unroll
        for (int block = 0; block < kRuns; ++block) {
          if (!Whole && block * kStep >= left) break;
          float v[kRun];
#pragma unroll
          for (int u = 0; u < kTogether; ++u) {
            const int j = block * kTogether + u;
            const float2 m = *reinterpret_cast<const float2*>(multipliers + j * 8);
            const int(&sums)[4] = fragments.sums[i][j];
            v[u * 2] = scaled(sums[h * 2], m.x, small);
            v[u * 2 + 1] = scaled(sums[h * 2 + 1], m.y, small);
            if (residual) {
              const float2 r =
                  bytes_to_float(static_cast<std::uint16_t>(held[block].word[u / 2] >> u % 2 * 16), base);
              v[u * 2] = with_residual(v[u * 2], r.x, residual_scale);
              v[u * 2 + 1] = with_residual(v[u * 2 + 1], r.y, residual_scale);
            }
          }
          store_run<Stored>(args, columns, bounds, v, at + block * kStep, pairs);
        }
      }
    }
  }

  // Rows of y that begin anywhere, one element after the other.
  static __device__ __forceinline__ void write_elements(const ConvGemmArgs& args, const F& fragments,
                                                        const Columns& columns, int first_row,
                                                        int first_column) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int j = 0; j < F::kN; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = first_row + F::first_row(warp) + i * F::kRowStep + lane / 4 + e / 2 * 8;
          const int column = F::first_column(warp) + j * 8 + lane % 4 * 2 + e % 2;
          const int channel = first_column + packed_channel(column);
          if (row >= args.rows || channel >= args.shape.out_c) continue;
          store_one(args, columns, scaled(fragments.sums[i][j][e], columns.multiplier[column], args.small),
                    output_offset(args, row, channel));
        }
      }
    }
  }
};

template <typename T>
using BytesEpilogue = Int8Epilogue<T, Int8Result::bytes>;
template <typename T>
using LookedUpEpilogue = Int8Epilogue<T, Int8Result::looked_up>;
template <typename T>
using RealEpilogue = Int8Epilogue<T, Int8Result::real>;

}  // namespace pipit::internal::cuda
