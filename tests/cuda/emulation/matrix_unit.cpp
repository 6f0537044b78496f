#include "tests/cuda/emulation/matrix_unit.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/graph/half.h"
#include "tests/cuda/emulation/copy_engine.h"

namespace pipit::internal::test::emulation {

namespace {

constexpr int kMaxColumns = 256;

// sums += v * row, the loop that takes most of the time: with the instructions of wider vectors where there are some.
__attribute__((target_clones("avx2", "default"))) void add_scaled(float* __restrict sums,
                                                                  const float* __restrict row, float v,
                                                                  int n) {
  for (int i = 0; i < n; ++i) sums[i] += v * row[i];
}
__attribute__((target_clones("avx2", "default"))) void add_scaled(int* __restrict sums,
                                                                  const int* __restrict row, int v, int n) {
  for (int i = 0; i < n; ++i) sums[i] += v * row[i];
}

const float* all_halves() {
  static const std::vector<float> values = [] {
    std::vector<float> v(1 << 16);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = to_float(Half{static_cast<std::uint16_t>(i)});
    return v;
  }();
  return values.data();
}

// Elements of 32 bytes of depth.
template <typename T>
constexpr int kDepth = std::is_same_v<T, float> ? 16 : 32;

template <typename T>
T element(const std::byte* from) {
  if constexpr (std::is_same_v<T, float>) {
    static const float* const halves = all_halves();
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, 2);
    return halves[bits];
  } else {
    return static_cast<T>(static_cast<std::int8_t>(*from));
  }
}

template <typename T>
struct Operands {
  T left[kProductRows][kDepth<T>];
  T right[kDepth<T>][kMaxColumns];
};

// to[k * step] for the elements of count bytes.
template <typename T>
void read(const std::byte* from, int count, T* to, int step) {
  constexpr int kBytes = 32 / kDepth<T>;
  for (int i = 0; i < count; i += kBytes, to += step) *to = element<T>(from + i);
}

template <typename T>
void read_operands(const Block& b, const Product& p, Operands<T>& to) {
  constexpr int kHalf = kDepth<T> / 2, kOfWord = kDepth<T> / 8;
  const auto at = [&](std::uint32_t address) { return b.memory + (address - kWindow); };
  if (p.left_in_registers) {
    // "Register Fragments": a thread has 4 bytes of two rows, and the same 16 bytes further on.
    for (int t = 0; t < 128; ++t) {
      for (int i = 0; i < 4; ++i) {
        std::byte word[4];
        std::memcpy(word, &p.left_registers[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)], 4);
        const int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8;
        read(word, 4, to.left[row] + t % 4 * kOfWord + i / 2 * kHalf, 1);
      }
    }
  } else {
    const Matrix m = matrix_of(p.left);
    for (int r = 0; r < kProductRows; ++r) {
      for (int h = 0; h < 2; ++h) read(at(chunk_address(m, r, h)), 16, to.left[r] + h * kHalf, 1);
    }
  }
  const Matrix m = matrix_of(p.right);
  for (int r = 0; r < p.n; ++r) {
    for (int h = 0; h < 2; ++h) read(at(chunk_address(m, r, h)), 16, &to.right[h * kHalf][r], kMaxColumns);
  }
}

// Sums of floats in the order of k; hardware adds 16 products at once and cuts off what is small beside the largest.
template <typename T>
void execute(const Block& b, Product& p) {
  static Operands<T> operands;
  static T product[kProductRows][kMaxColumns];
  read_operands(b, p, operands);
  for (int r = 0; r < kProductRows; ++r) {
    std::fill_n(product[r], p.n, T{});
    for (int k = 0; k < kDepth<T>; ++k) add_scaled(product[r], operands.right[k], operands.left[r][k], p.n);
  }
  // "Register Fragments": accumulators of a thread are pairs of columns, of two rows.
  for (int t = 0; t < 128; ++t) {
    auto& values = p.sums[static_cast<std::size_t>(t)]->values;
    for (int i = 0; i < p.n / 2; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
      T sum{};
      if (p.accumulate) std::memcpy(&sum, &values[static_cast<std::size_t>(i)], sizeof sum);
      sum += product[row][column];
      std::memcpy(&values[static_cast<std::size_t>(i)], &sum, sizeof sum);
    }
  }
}

Product* next_of(const Warpgroup& g) {
  const auto i = static_cast<std::size_t>(g.done - g.base);
  return i < g.products.size() && g.products[i]->threads == 128 ? g.products[i].get() : nullptr;
}

void run_next(Warpgroup& g) {
  Product& p = *next_of(g);
  if (p.integers) {
    execute<int>(*g.block, p);
  } else {
    execute<float>(*g.block, p);
  }
  ++g.done;
  ++machine->outcome.products;
  ++machine->changes;
}

std::uint64_t due(const Warpgroup& g) {
  const Product* p = next_of(g);
  return p == nullptr ? kNothingDue : p->due;
}

auto first_group() {
  auto& groups = machine->multiplying;
  return std::min_element(groups.begin(), groups.end(),
                          [](const Warpgroup* a, const Warpgroup* b) { return due(*a) < due(*b); });
}

}  // namespace

Matrix matrix_of(std::uint64_t descriptor) {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3FFF) << 4; };
  constexpr int kSwizzles[] = {0, 128, 64, 32};
  return {field(0), field(16), field(32), kSwizzles[descriptor >> 62]};
}

std::uint32_t chunk_address(const Matrix& m, int row, int half) {
  const auto group = static_cast<std::uint32_t>(row / 8), in_group = static_cast<std::uint32_t>(row % 8);
  const auto second = static_cast<std::uint32_t>(half);
  const std::uint32_t at = m.start + group * m.stride;
  if (m.swizzle == 0) return at + in_group * 16 + second * m.leading;
  return swizzled(at + in_group * static_cast<std::uint32_t>(m.swizzle) + second * 16, m.swizzle);
}

bool left_is_zero(const Block& b, const Product& p) {
  if (p.left_in_registers || !p.integers) return false;
  const Matrix m = matrix_of(p.left);
  static constexpr std::byte kZeros[16]{};
  for (int r = 0; r < kProductRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      if (std::memcmp(b.memory + (chunk_address(m, r, h) - kWindow), kZeros, 16) != 0) return false;
    }
  }
  return true;
}

std::uint64_t first_product_due() {
  const auto first = first_group();
  return first == machine->multiplying.end() ? kNothingDue : due(**first);
}
void run_first_product() {
  run_next(**first_group());
}

bool run_products_if_due(std::size_t i) {
  Warpgroup& g = *machine->multiplying[i];
  if (due(g) > machine->tick) {
    if (static_cast<std::size_t>(g.done - g.base) == g.products.size()) {
      g.listed = false;
      machine->multiplying.erase(machine->multiplying.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return false;
  }
  do {
    run_next(g);
  } while (due(g) <= machine->tick && (chance() & 7) != 0);
  return true;
}

}  // namespace pipit::internal::test::emulation
