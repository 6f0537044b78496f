// Activations over contiguous elements, included once per instruction set after Lanes. The arithmetic is that of
// layers/cpu/vector/vector_math.h with fused multiply-add, and so are the error bounds.

PIPIT_LANES Lanes::Vector polynomial(Lanes::Vector x, const float* highest_first, int terms) {
  Lanes::Vector p = Lanes::broadcast(highest_first[0]);
#pragma GCC unroll 8
  for (int i = 1; i < terms; ++i) p = Lanes::multiply_add(Lanes::broadcast(highest_first[i]), p, x);
  return p;
}

/// The integer nearest to x * factor.
PIPIT_LANES Lanes::Vector rounded(Lanes::Vector x, float factor) {
  const Lanes::Vector round = Lanes::broadcast(0x1.8p23F);
  return Lanes::add(Lanes::multiply_add(round, x, Lanes::broadcast(factor)), Lanes::broadcast(-0x1.8p23F));
}

/// e^x = 2^n (1 + fraction).
struct ReducedExponential {
  Lanes::Vector n, fraction;
  PIPIT_LANES explicit ReducedExponential(Lanes::Vector x) {
    constexpr float kTaylor[] = {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F};
    n = rounded(x, 1.44269504F);
    Lanes::Vector r = Lanes::multiply_add(x, n, Lanes::broadcast(-0.693359375F));
    r = Lanes::multiply_add(r, n, Lanes::broadcast(2.12194440e-4F));
    fraction = Lanes::multiply_add(r, Lanes::multiply(polynomial(r, kTaylor, 6), r), r);
  }
};

/// e^x for |x| <= 88 or NaN.
PIPIT_LANES Lanes::Vector exponential(Lanes::Vector x) {
  const ReducedExponential e(x);
  return Lanes::scale(Lanes::add(Lanes::broadcast(1), e.fraction), e.n);
}

struct Sigmoid {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) {
    const Lanes::Vector bounded = Lanes::clamp(x, Lanes::broadcast(-88), Lanes::broadcast(88));
    const Lanes::Vector d =
        Lanes::add(Lanes::broadcast(1), exponential(Lanes::multiply(bounded, Lanes::broadcast(-1))));
    // Beyond 2^126 the result is 0 (or NaN for NaN).
    return Lanes::if_less(d, Lanes::broadcast(0x1p126F), Lanes::reciprocal(d),
                          Lanes::multiply(d, Lanes::zero()));
  }
};

/// e^x for all x: 2^n in two factors, for n may leave the range of exponents.
struct Exp {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) {
    const Lanes::Vector bounded = Lanes::clamp(x, Lanes::broadcast(-104), Lanes::broadcast(89));
    const ReducedExponential e(bounded);
    const Lanes::Vector half = rounded(e.n, 0.5F);
    const Lanes::Vector once = Lanes::scale(Lanes::add(Lanes::broadcast(1), e.fraction), half);
    return Lanes::scale(once, Lanes::multiply_add(e.n, half, Lanes::broadcast(-1)));
  }
};

/// Two polynomials as vector_math::erf has them: of e^tail - 1 and of x near zero.
struct Erf {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) {
    constexpr float kNear[] = {7.87587123e-05F, -8.01686314e-04F, 5.18908724e-03F, -2.68542115e-02F,
                               1.12835944e-01F, -3.76126260e-01F, 1.12837911F};
    constexpr float kFar[] = {-1.32723617e-05F, 3.16937017e-04F,  -3.43235140e-03F, 2.26047728e-02F,
                              -1.03281118e-01F, -6.39141262e-01F, -1.12589359e+00F, -7.65897799e-04F};
    const Lanes::Vector magnitude = Lanes::copy_sign(x, Lanes::zero());
    const Lanes::Vector near = Lanes::multiply(x, polynomial(Lanes::multiply(x, x), kNear, 7));
    const Lanes::Vector bounded = Lanes::clamp(magnitude, Lanes::zero(), Lanes::broadcast(4));
    const Lanes::Vector tail = exponential(polynomial(bounded, kFar, 8));
    const Lanes::Vector far =
        Lanes::copy_sign(Lanes::multiply_add(Lanes::broadcast(1), tail, Lanes::broadcast(-1)), x);
    return Lanes::if_less(Lanes::broadcast(1), magnitude, far, near);
  }
};

/// (e^2x - 1) / (e^2x + 1), from e^2x - 1 = 2^n fraction + (2^n - 1); bounded where the result rounds to 1.
struct Tanh {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) {
    const Lanes::Vector bounded = Lanes::clamp(x, Lanes::broadcast(-10), Lanes::broadcast(10));
    const ReducedExponential twice(Lanes::add(bounded, bounded));
    const Lanes::Vector scale = Lanes::scale(Lanes::broadcast(1), twice.n);
    const Lanes::Vector e =
        Lanes::multiply_add(Lanes::add(scale, Lanes::broadcast(-1)), scale, twice.fraction);
    return Lanes::multiply(e, Lanes::reciprocal(Lanes::add(e, Lanes::broadcast(2))));
  }
};

struct Silu {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) { return Lanes::multiply(x, Sigmoid::of(x)); }
};

struct HardSwish {
  PIPIT_LANES static Lanes::Vector of(Lanes::Vector x) {
    const Lanes::Vector ramp = Lanes::multiply_add(Lanes::broadcast(0.5F), x, Lanes::broadcast(1.0F / 6));
    return Lanes::multiply(x, Lanes::clamp(ramp, Lanes::zero(), Lanes::broadcast(1)));
  }
};

// Where a register of floats is a table: erf(a / sqrt(2)) / 2 for a in [i / 2, (i + 1) / 2) is the polynomial of degree
// 5 in 2a - i with these coefficients, from Chebyshev interpolation; from 5.5 on it rounds to 1/2. The result is
// v / 2 + |v| times that, within 1e-7 |v|.
struct GeluTable {
  static constexpr int kDegree = 5;
  static constexpr float kHighestFirst[kDegree + 1][16] = {
      {0.000274970283F, -3.43762554e-06F, -0.000184332297F, -0.000134080969F, -1.53245364e-05F,
       3.44706677e-05F, 2.69993798e-05F, 1.07887072e-05F, 2.80304107e-06F, 5.10054576e-07F, 6.72774831e-08F,
       0.0F, 0.0F, 0.0F, 0.0F, 0.0F},
      {4.24608079e-05F, 0.00142454379F, 0.00131210941F, 0.000318225735F, -0.000339465507F, -0.000382581435F,
       -0.000198481372F, -6.58395657e-05F, -1.52295406e-05F, -2.55099599e-06F, -3.15816919e-07F, 0.0F, 0.0F,
       0.0F, 0.0F, 0.0F},
      {-0.00832826179F, -0.0055853799F, -2.33142946e-05F, 0.00340589928F, 0.00340365223F, 0.00192232372F,
       0.000733695051F, 0.000200648341F, 4.04066777e-05F, 6.08411437e-06F, 6.91519517e-07F, 0.0F, 0.0F, 0.0F,
       0.0F, 0.0F},
      {2.25279996e-06F, -0.0219844282F, -0.0302413777F, -0.0242924597F, -0.0135044446F, -0.005478682F,
       -0.00166076655F, -0.00038090552F, -6.65949556e-05F, -8.91797936e-06F, -9.17733928e-07F, 0.0F, 0.0F,
       0.0F, 0.0F, 0.0F},
      {0.199471086F, 0.176030993F, 0.120984964F, 0.0647594854F, 0.02699605F, 0.00876423623F, 0.00221582246F,
       0.000436265807F, 6.68883149e-05F, 7.98581823e-06F, 7.42414102e-07F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F},
      {0.0F, 0.191462487F, 0.341344744F, 0.43319279F, 0.477249861F, 0.493790329F, 0.498650104F, 0.499767363F,
       0.49996832F, 0.499996603F, 0.499999702F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F}};

  template <typename L>
  PIPIT_LANES static typename L::Vector of(typename L::Vector v) {
    const auto magnitude = L::copy_sign(v, L::zero());
    const auto twice = L::clamp(L::add(magnitude, magnitude), L::zero(), L::broadcast(0x1.fffffep3F));
    const auto i = L::truncate(twice);
    const auto u = L::multiply_add(twice, i, L::broadcast(-1));
    auto p = L::look_up(kHighestFirst[0], i);
#pragma GCC unroll 8
    for (int d = 1; d <= kDegree; ++d) p = L::multiply_add(L::look_up(kHighestFirst[d], i), p, u);
    return L::multiply_add(L::multiply(v, L::broadcast(0.5F)), magnitude, p);
  }
};

struct Gelu {
  template <typename L = Lanes>
  PIPIT_LANES static typename L::Vector of(typename L::Vector v) {
    if constexpr (L::kLooksUp) return GeluTable::of<L>(v);
    constexpr float kNear[] = {7.87587123e-05F, -8.01686314e-04F, 5.18908724e-03F, -2.68542115e-02F,
                               1.12835944e-01F, -3.76126260e-01F, 1.12837911F};
    constexpr float kFar[] = {-1.32723617e-05F, 3.16937017e-04F,  -3.43235140e-03F, 2.26047728e-02F,
                              -1.03281118e-01F, -6.39141262e-01F, -1.12589359e+00F, -7.65897799e-04F};
    const Lanes::Vector x = Lanes::multiply(v, Lanes::broadcast(0.707106781F));
    const Lanes::Vector magnitude = Lanes::copy_sign(x, Lanes::zero());
    const Lanes::Vector near = Lanes::multiply(x, polynomial(Lanes::multiply(x, x), kNear, 7));
    const Lanes::Vector bounded = Lanes::clamp(magnitude, Lanes::zero(), Lanes::broadcast(4));
    const Lanes::Vector tail = exponential(polynomial(bounded, kFar, 8));
    const Lanes::Vector far =
        Lanes::copy_sign(Lanes::multiply_add(Lanes::broadcast(1), tail, Lanes::broadcast(-1)), x);
    const Lanes::Vector erf = Lanes::if_less(magnitude, Lanes::broadcast(1), near, far);
    const Lanes::Vector half = Lanes::multiply(v, Lanes::broadcast(0.5F));
    return Lanes::multiply_add(half, half, erf);
  }
};

// Calls body.whole(at, column) for all registers of the rows and body.rest(at, column, count) for what is left of each:
// register by register through rows of few registers, so that the loop is long, else row by row.
template <typename Body>
PIPIT_LANES void for_each_register(const SpanRows& span, const Body& body) {
  constexpr std::int64_t kMaxShortRow = 4;  // registers
  const std::int64_t rows = span.rows;
  const std::int64_t step = span.step;
  const std::int64_t whole = span.count / Lanes::kCount * Lanes::kCount;
  const int rest = static_cast<int>(span.count - whole);
  if (whole <= kMaxShortRow * Lanes::kCount) {
    for (std::int64_t i = 0; i < whole; i += Lanes::kCount) {
      for (std::int64_t r = 0; r < rows; ++r) body.whole(r * step + i, i);
    }
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < whole; i += Lanes::kCount) body.whole(r * step + i, i);
    }
  }
  if (rest == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) body.rest(r * step + whole, whole, rest);
}

template <typename Function, typename T>
struct ActivationBody {
  const T* x;
  T* y;
  PIPIT_LANES void whole(std::int64_t at, std::int64_t /*column*/) const {
    Lanes::store(y + at, Function::of(Lanes::load(x + at)));
  }
  PIPIT_LANES void rest(std::int64_t at, std::int64_t /*column*/, int count) const {
    Lanes::store(y + at, Function::of(Lanes::load(x + at, count)), count);
  }
};

template <typename Function, typename T>
void activation_span(const T* x, T* y, const SpanRows& span) {
  for_each_register(span, ActivationBody<Function, T>{x, y});
}

struct AffineBody {
  const float* x;
  const float* factors;
  const float* shifts;
  float* y;
  PIPIT_LANES void whole(std::int64_t at, std::int64_t column) const {
    Lanes::store(y + at, Lanes::multiply_add(Lanes::load(shifts + column), Lanes::load(x + at),
                                             Lanes::load(factors + column)));
  }
  PIPIT_LANES void rest(std::int64_t at, std::int64_t column, int count) const {
    Lanes::store(y + at,
                 Lanes::multiply_add(Lanes::load(shifts + column, count), Lanes::load(x + at, count),
                                     Lanes::load(factors + column, count)),
                 count);
  }
};

void affine_span(const float* x, const float* factors, const float* shifts, float* y, const SpanRows& span) {
  for_each_register(span, AffineBody{x, factors, shifts, y});
}

template <typename T>
constexpr ActivationSpans<T> activation_spans() {
  return {activation_span<Sigmoid, T>, activation_span<Silu, T>, activation_span<HardSwish, T>,
          activation_span<Gelu, T>,    activation_span<Exp, T>,  activation_span<Tanh, T>,
          activation_span<Erf, T>};
}
