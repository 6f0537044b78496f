// The body of TileKernels, included by tile_<isa>.cpp once per traits class T inside a namespace of its own and
// under the instruction set's target pragma. T provides
//   Vector, kLanes, kStrip, kStep    sums of kLanes outputs; most pixels in a strip; elements of A in a step
//   zero(), broadcast(a), load(b)    4 bytes of A to all lanes; one step of the panel
//   multiply_add(sum, a, b)
//   start(call, vector)              what the sums of vector number `vector` start from: the bias, or zero
//   finish<Whole>(sum, call, vector, residual, c, scale)
//                                    epilogue and store of vector number `vector`, of which all lanes are stored if
//                                    Whole; scale is the pixel's, or null
// and where sums are added up apart from the registers, in f32
//   kStretch                         after this many steps
//   add_stretch<Vectors, First>(sums, totals)
//                                    a pixel's sums to its totals [Vectors * kLanes], which the first stretch sets;
//                                    makes the sums 0
// whose sum in finish() is then a pointer to totals. T may also provide
//   pick(a, b)                       of kLanes elements from `a` on, for each lane the one that the last bits of b say
//   packs_bytes(call), finish_bytes<Strips, Pixels, Vectors>(sums, call)
//                                    the epilogue and stores of a whole tile, where packs_bytes() says so
//   kLastSteps, Shared, finishes_inside(call), shared_of(call), finish_pair<Pixels, Pair>(sums, shared, call)
//                                    where finishes_inside() says so (there is a residual then): the same for pixels
//                                    2 Pair and 2 Pair + 1 of two strips, while others lack this many steps of K

// How far ahead of their use weights are called into the first-level cache: about 220 cycles. Beyond the panel this is
// what follows in memory, the next one as a rule; a prefetch of nothing does no harm.
constexpr std::int64_t kStepsAhead = 16;

// Byte offset of pixel I from the first: multiples that an address can hold, so that a strip costs three registers.
template <int I>
PIPIT_TILE_INLINE std::int64_t pixel_offset(std::int64_t stride, std::int64_t stride3, std::int64_t stride5) {
  return I == 3 ? stride3 : I == 5 ? stride5 : I == 6 ? 2 * stride3 : I * stride;
}

// One step of K for pixel I of a strip, and of those after it.
template <typename T, int I, int Pixels, int Vectors>
PIPIT_TILE_INLINE void step_pixels(typename T::Vector* sums, const typename T::Vector* b, const std::byte* a,
                                   std::int64_t stride, std::int64_t stride3, std::int64_t stride5) {
  if constexpr (I < Pixels) {
    const typename T::Vector value = T::broadcast(a + pixel_offset<I>(stride, stride3, stride5));
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      sums[I * Vectors + v] = T::multiply_add(sums[I * Vectors + v], value, b[v]);
    }
    step_pixels<T, I + 1, Pixels, Vectors>(sums, b, a, stride, stride3, stride5);
  }
}

// Where a tile stands in its operands.
struct TileCursor {
  const std::byte* a0;
  const std::byte* a1;
  const std::byte* weights;
  const std::byte* prefetch;
};

// One step of the panel to registers, and what it takes with it into the caches.
template <typename T, int Vectors>
PIPIT_TILE_INLINE void load_weights(typename T::Vector* b, TileCursor& at, std::int64_t prefetch_step) {
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) b[v] = T::load(at.weights + v * kVectorBytes<T>);
#pragma GCC unroll 2
  for (std::int64_t line = 0; line < Vectors * kVectorBytes<T>; line += 64) {
    __builtin_prefetch(at.weights + kStepsAhead * Vectors * kVectorBytes<T> + line, 0, 3);
  }
  at.weights += Vectors * kVectorBytes<T>;
  __builtin_prefetch(at.prefetch, 0, 2);
  at.prefetch += prefetch_step;
}

// `count` neighbouring steps of K.
template <typename T, int Strips, int Pixels, int Vectors>
PIPIT_TILE_INLINE void add_steps(typename T::Vector* sums, TileCursor& at, std::int64_t prefetch_step,
                                 std::int64_t stride, std::int64_t stride3, std::int64_t stride5,
                                 std::int32_t count) {
  for (std::int32_t k = count; k > 0; --k) {
    typename T::Vector b[Vectors];
    load_weights<T, Vectors>(b, at, prefetch_step);
    step_pixels<T, 0, Pixels, Vectors>(sums, b, at.a0, stride, stride3, stride5);
    at.a0 += 4;
    if constexpr (Strips > 1) {
      step_pixels<T, 0, Pixels, Vectors>(sums + Pixels * Vectors, b, at.a1, stride, stride3, stride5);
      at.a1 += 4;
    }
  }
}

// `count` steps of K that are segments of their own, at `offsets` from where the cursor stands in A and remains.
template <typename T, int Strips, int Pixels, int Vectors>
PIPIT_TILE_INLINE void add_lone_steps(typename T::Vector* sums, TileCursor& at, const std::int32_t* offsets,
                                      std::int64_t prefetch_step, std::int64_t stride, std::int64_t stride3,
                                      std::int64_t stride5, std::int32_t count) {
  for (const std::int32_t* const end = offsets + count; offsets != end; ++offsets) {
    const std::int64_t offset = *offsets;
    typename T::Vector b[Vectors];
    load_weights<T, Vectors>(b, at, prefetch_step);
    step_pixels<T, 0, Pixels, Vectors>(sums, b, at.a0 + offset, stride, stride3, stride5);
    if constexpr (Strips > 1) {
      step_pixels<T, 0, Pixels, Vectors>(sums + Pixels * Vectors, b, at.a1 + offset, stride, stride3,
                                         stride5);
    }
  }
}

template <typename T>
concept Picks = requires(const std::byte* a, typename T::Vector b) {
  T::pick(a, b);
};

// One picked step of K, with one vector of weights, for pixel I of a strip, and of those after it.
template <typename T, int I, int Pixels, int Vectors>
PIPIT_TILE_INLINE void pick_pixels(typename T::Vector* sums, typename T::Vector b, const std::byte* a,
                                   std::int64_t stride, std::int64_t stride3, std::int64_t stride5) {
  if constexpr (I < Pixels) {
    const typename T::Vector value = T::pick(a + pixel_offset<I>(stride, stride3, stride5), b);
    sums[I * Vectors] = T::multiply_add(sums[I * Vectors], value, b);
    pick_pixels<T, I + 1, Pixels, Vectors>(sums, b, a, stride, stride3, stride5);
  }
}

// Like add_lone_steps(), with picked steps.
template <typename T, int Strips, int Pixels, int Vectors>
PIPIT_TILE_INLINE void add_picked_steps(typename T::Vector* sums, TileCursor& at, const std::int32_t* offsets,
                                        std::int64_t prefetch_step, std::int64_t stride, std::int64_t stride3,
                                        std::int64_t stride5, std::int32_t count) {
  for (const std::int32_t* const end = offsets + count; offsets != end; ++offsets) {
    const std::int64_t offset = *offsets;
    typename T::Vector b[Vectors];
    load_weights<T, Vectors>(b, at, prefetch_step);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      pick_pixels<T, 0, Pixels, Vectors>(sums + v, b[v], at.a0 + offset, stride, stride3, stride5);
      if constexpr (Strips > 1) {
        pick_pixels<T, 0, Pixels, Vectors>(sums + Pixels * Vectors + v, b[v], at.a1 + offset, stride, stride3,
                                           stride5);
      }
    }
  }
}

template <typename T>
concept SumsInStretches = requires {
  T::kStretch;
};

template <typename T>
constexpr int stretch_of() {
  if constexpr (SumsInStretches<T>) {
    return T::kStretch;
  } else {
    return 0;
  }
}

// The sums of all pixels to their totals.
template <typename T, int Pixels, int Vectors>
PIPIT_TILE_INLINE void add_stretches(typename T::Vector* sums, float* totals, bool first) {
  if (first) {
#pragma GCC unroll 14
    for (int i = 0; i < Pixels; ++i) {
      T::template add_stretch<Vectors, true>(sums + i * Vectors, totals + i * Vectors * T::kLanes);
    }
  } else {
#pragma GCC unroll 14
    for (int i = 0; i < Pixels; ++i) {
      T::template add_stretch<Vectors, false>(sums + i * Vectors, totals + i * Vectors * T::kLanes);
    }
  }
}

// The epilogue of all pixels. `results`: their sums, or where these are apart from the registers their totals.
template <typename T, bool Whole, int Strips, int Pixels, int Vectors, typename Result>
PIPIT_TILE_INLINE void finish_pixels(const Result* results, const TileCall& call) {
  constexpr int kStep = SumsInStretches<T> ? T::kLanes : 1;
#pragma GCC unroll 2
  for (int g = 0; g < Strips; ++g) {
#pragma GCC unroll 7
    for (int i = 0; i < Pixels; ++i) {
      const std::byte* residual =
          call.residual[g] != nullptr ? call.residual[g] + i * call.residual_stride : nullptr;
      const float* scale =
          call.pixel_scale[g] != nullptr ? call.pixel_scale[g] + i * call.pixel_scale_step : nullptr;
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        const Result* result = results + ((g * Pixels + i) * Vectors + v) * kStep;
        std::byte* c = call.c[g] + i * call.c_stride;
        if constexpr (SumsInStretches<T>) {
          T::template finish<Whole>(result, call, v, residual, c, scale);
        } else {
          T::template finish<Whole>(*result, call, v, residual, c, scale);
        }
      }
    }
  }
}

template <typename T>
concept PacksBytes = requires(const TileCall& call) {
  T::packs_bytes(call);
};

template <typename T>
concept FinishesInside = requires {
  T::kLastSteps;
};

// The last steps of K for pixels 2 Pair and 2 Pair + 1 of two strips, counted through both.
template <typename T, int Pair, int Pixels>
PIPIT_TILE_INLINE void add_to_pair(typename T::Vector* sums, const TileCursor& at, std::int64_t stride) {
  const std::byte* weights = at.weights;
  // Or the compiler would keep weights for the next pair, in registers that it has not.
  __asm__("" : "+r"(weights));
#pragma GCC unroll 4
  for (int k = 0; k < T::kLastSteps; ++k) {
    const typename T::Vector b[2] = {T::load(weights + k * 2 * kVectorBytes<T>),
                                     T::load(weights + (k * 2 + 1) * kVectorBytes<T>)};
#pragma GCC unroll 2
    for (int i = 2 * Pair; i < 2 * Pair + 2; ++i) {
      const std::byte* a = (i < Pixels ? at.a0 : at.a1) + i % Pixels * stride;
      const typename T::Vector value = T::broadcast(a + 4 * k);
      sums[2 * i] = T::multiply_add(sums[2 * i], value, b[0]);
      sums[2 * i + 1] = T::multiply_add(sums[2 * i + 1], value, b[1]);
    }
  }
}

template <typename T, int Pair, int Pixels>
PIPIT_TILE_INLINE void finish_pairs(typename T::Vector* sums, const TileCursor& at, std::int64_t stride,
                                    const typename T::Shared& shared, const TileCall& call) {
  if constexpr (Pair < Pixels) {
    if constexpr (Pair + 1 < Pixels) add_to_pair<T, Pair + 1, Pixels>(sums, at, stride);
    T::template finish_pair<Pixels, Pair>(sums, shared, call);
    finish_pairs<T, Pair + 1, Pixels>(sums, at, stride, shared, call);
  }
}

// Two strips of two vectors. The last steps go pair by pair of pixels, so that pairs become results while others are
// still multiplied.
template <typename T, int Pixels>
__attribute__((noinline)) void tile_finishing_inside(const TileCall& call) {
  typename T::Vector sums[4 * Pixels];
#pragma GCC unroll 28
  for (int i = 0; i < 4 * Pixels; ++i) sums[i] = i < 2 ? T::start(call, i) : sums[i % 2];
#pragma GCC unroll 14
  for (int i = 0; i < 2 * Pixels; ++i)
    __builtin_prefetch(call.residual[i / Pixels] + i % Pixels * call.residual_stride, 0, 3);
  const std::int64_t stride = call.a_stride;
  TileCursor at{call.a[0], call.a[1], call.weights, call.prefetch};
  for (std::int32_t s = 0; s < call.segment_count; ++s) {
    at.a0 = call.a[0] + call.segments[s];
    at.a1 = call.a[1] + call.segments[s];
    const std::int32_t count = s + 1 < call.segment_count ? call.run : call.run - T::kLastSteps;
    add_steps<T, 2, Pixels, 2>(sums, at, call.prefetch_step, stride, 3 * stride, 5 * stride, count);
  }
#pragma GCC unroll 4
  for (int k = 0; k < T::kLastSteps; ++k) {
    const std::byte* ahead = at.weights + (kStepsAhead + k) * 2 * kVectorBytes<T>;
    __builtin_prefetch(ahead, 0, 3);
    __builtin_prefetch(ahead + kVectorBytes<T>, 0, 3);
    __builtin_prefetch(at.prefetch + k * call.prefetch_step, 0, 2);
  }
  const TileCall own = call;  // no store can change it, so that what all pixels share stays in registers
  add_to_pair<T, 0, Pixels>(sums, at, stride);
  finish_pairs<T, 0, Pixels>(sums, at, stride, T::shared_of(own), own);
}

template <typename T, int Strips, int Pixels, int Vectors>
void tile(const TileCall& call) {
  if constexpr (FinishesInside<T> && Strips == 2 && Vectors == 2) {
    if (call.run > T::kLastSteps && T::finishes_inside(call)) {
      tile_finishing_inside<T, Pixels>(call);
      return;
    }
  }
  typename T::Vector sums[Strips * Pixels * Vectors];
#pragma GCC unroll 28
  for (int i = 0; i < Strips * Pixels * Vectors; ++i) {
    sums[i] = i < Vectors ? T::start(call, i) : sums[i % Vectors];
  }
  // The residual is usually in no cache near by: ask for it before the sums.
  for (int g = 0; g < Strips; ++g) {
    if (call.residual[g] == nullptr) continue;
    for (int i = 0; i < Pixels; ++i) {
      for (int v = 0; v < Vectors; ++v) {
        __builtin_prefetch(call.residual[g] + i * call.residual_stride + v * kVectorBytes<T>, 0, 3);
      }
    }
  }
  const std::int64_t stride = call.a_stride;
  const std::int64_t stride3 = 3 * stride;
  const std::int64_t stride5 = 5 * stride;
  TileCursor at{call.a[0], call.a[1], call.weights, call.prefetch};
  alignas(64) float totals[SumsInStretches<T> ? Strips * Pixels * Vectors * T::kLanes : 1];
  std::int32_t stretch = stretch_of<T>();  // steps until its end
  bool first = true;
  // Calls add(done, count) for `steps` steps: at once, or where sums are added up apart up to each end of a stretch.
  const auto in_stretches = [&](std::int32_t steps, const auto& add) PIPIT_TILE_INLINE_LAMBDA {
    if constexpr (SumsInStretches<T>) {
      for (std::int32_t done = 0; done < steps;) {
        const std::int32_t count = steps - done < stretch ? steps - done : stretch;
        add(done, count);
        done += count;
        stretch -= count;
        if (stretch > 0) continue;
        add_stretches<T, Strips * Pixels, Vectors>(sums, totals, first);
        stretch = stretch_of<T>();
        first = false;
      }
    } else {
      add(0, steps);
    }
  };
  bool added = false;
  if constexpr (Picks<T>) {
    if (call.picks) {
      add_picked_steps<T, Strips, Pixels, Vectors>(sums, at, call.segments, call.prefetch_step, stride,
                                                   stride3, stride5, call.segment_count);
      added = true;
    }
  }
  if (added) {
  } else if (call.run == 1) {
    in_stretches(call.segment_count, [&](std::int32_t done, std::int32_t count) PIPIT_TILE_INLINE_LAMBDA {
      add_lone_steps<T, Strips, Pixels, Vectors>(sums, at, call.segments + done, call.prefetch_step, stride,
                                                 stride3, stride5, count);
    });
  } else {
    for (std::int32_t s = 0; s < call.segment_count; ++s) {
      at.a0 = call.a[0] + call.segments[s];
      at.a1 = Strips > 1 ? call.a[1] + call.segments[s] : nullptr;
      in_stretches(call.run, [&](std::int32_t /*done*/, std::int32_t count) PIPIT_TILE_INLINE_LAMBDA {
        add_steps<T, Strips, Pixels, Vectors>(sums, at, call.prefetch_step, stride, stride3, stride5, count);
      });
    }
  }
  if constexpr (SumsInStretches<T>) {
    if (first || stretch < T::kStretch) add_stretches<T, Strips * Pixels, Vectors>(sums, totals, first);
  }
  const auto finish = [&](const auto* results) {
    const TileCall own = call;  // no store can change it, so that what all pixels share stays in registers
    if constexpr (PacksBytes<T>) {
      if (T::packs_bytes(own)) {
        T::template finish_bytes<Strips, Pixels, Vectors>(results, own);
        return;
      }
    }
    if (own.columns == Vectors * T::kLanes) {
      finish_pixels<T, true, Strips, Pixels, Vectors>(results, own);
    } else {
      finish_pixels<T, false, Strips, Pixels, Vectors>(results, own);
    }
  };
  if constexpr (SumsInStretches<T>) {
    finish(totals);
  } else {
    finish(sums);
  }
}

template <typename T>
void spin(std::int64_t steps) {
  constexpr int kSums = 2 * T::kStrip * kMaxTileVectors;
  // What the compiler does not know it can neither merge nor compute before the loop.
  typename T::Vector sums[kSums];
#pragma GCC unroll 28
  for (int i = 0; i < kSums; ++i) {
    sums[i] = T::zero();
    PIPIT_TILE_OPAQUE(sums[i]);
  }
  typename T::Vector a = T::zero();
  typename T::Vector b[kMaxTileVectors] = {T::zero(), T::zero()};
  for (; steps > 0; --steps) {
    PIPIT_TILE_OPAQUE(b[0]);
    PIPIT_TILE_OPAQUE(b[1]);
#pragma GCC unroll 28
    for (int i = 0; i < kSums; i += kMaxTileVectors) {
      PIPIT_TILE_OPAQUE(a);  // another pixel
      sums[i] = T::multiply_add(sums[i], a, b[0]);
      sums[i + 1] = T::multiply_add(sums[i + 1], a, b[1]);
    }
  }
#pragma GCC unroll 28
  for (int i = 0; i < kSums; ++i) PIPIT_TILE_OPAQUE(sums[i]);
}

// Instances for strips of up to T::kStrip pixels; null beyond.
template <typename T, int Strips, int Pixels, int Vectors>
constexpr TileKernels::Function instance() {
  if constexpr (Pixels <= T::kStrip) {
    return tile<T, Strips, Pixels, Vectors>;
  } else {
    return nullptr;
  }
}

#define PIPIT_TILE_PIXELS(T, strips, pixels) \
  { instance<T, strips, pixels, 1>(), instance<T, strips, pixels, 2>() }
#define PIPIT_TILE_STRIPS(T, strips)                                                                       \
  {                                                                                                        \
    PIPIT_TILE_PIXELS(T, strips, 1), PIPIT_TILE_PIXELS(T, strips, 2), PIPIT_TILE_PIXELS(T, strips, 3),     \
        PIPIT_TILE_PIXELS(T, strips, 4), PIPIT_TILE_PIXELS(T, strips, 5), PIPIT_TILE_PIXELS(T, strips, 6), \
        PIPIT_TILE_PIXELS(T, strips, 7)                                                                    \
  }
#define PIPIT_TILE_KERNELS(T, isa)                                  \
  {                                                                 \
    isa, T::kLanes, T::kStrip, T::kStep, stretch_of<T>(), Picks<T>, \
        {PIPIT_TILE_STRIPS(T, 1), PIPIT_TILE_STRIPS(T, 2)}, spin<T> \
  }
