// wgmma as threads see it: accumulators and left operands in registers belong to the matrix unit from the
// product on until wgmma.wait_group, operands in shared memory must be there and stay.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/cuda/emulation/copy_engine.h"
#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/matrix_unit.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace pipit::internal::test::emulation {

namespace {

// In accumulators that products are in flight for: a NaN, and an integer that no sum here reaches.
constexpr std::uint32_t kPoison = 0x7FE5A7E5;

void check_descriptor(std::uint64_t descriptor) {
  if ((descriptor >> 49 & 7) != 0)
    fail("wgmma: the base offset {} of a descriptor is not emulated", descriptor >> 49 & 7);
  constexpr std::uint64_t kZeros = 0xC000ULL | 3ULL << 30 | 7ULL << 46 | 0x3FFULL << 52;
  if ((descriptor & kZeros) != 0) fail("wgmma: the descriptor {:#x} has bits that must be zero", descriptor);
  const Matrix m = matrix_of(descriptor);
  // Rows begin where the swizzle's pattern does; k goes on within a row.
  const auto row = static_cast<std::uint32_t>(m.swizzle);
  if (m.swizzle != 0 && (m.start & (row * 8 - 1) & ~(row - 1)) != 0)
    fail("wgmma: the matrix at {} does not begin on a multiple of {}, as its swizzle wants it",
         place(m.start), row * 8);
}

Warpgroup& group_of(const Thread& t) {
  Warpgroup& g = *t.warp->block->warpgroups[t.at.thread.x / 128];
  if (g.first + 128 > static_cast<int>(t.warp->block->threads.size()))
    fail("wgmma in a warpgroup of fewer than 128 threads");
  return g;
}

Product& product_of(Warpgroup& g, int number) {
  return *g.products[static_cast<std::size_t>(number - g.base)];
}

// Takes the accumulators from the thread, unless products have them already.
template <typename T>
Sums& take_sums(int n, T* const* d) {
  Thread& t = *running;
  const int count = n / 2;
  for (int i = 1; i < count; ++i) {
    if (d[i] != d[0] + i) fail("wgmma: accumulators that are no array are not emulated");
  }
  for (const auto& s : t.sums) {
    const auto* begin = static_cast<const std::byte*>(s->registers);
    const auto* mine = reinterpret_cast<const std::byte*>(d[0]);
    if (s->registers == d[0] && s->count == count && s->integers == std::is_same_v<T, int>) {
      for (int i = 0; i < count; ++i) {
        if (as<std::uint32_t>(*d[i]) != kPoison)
          fail("wgmma: accumulator {} was changed while products are in flight for it", i);
      }
      return *s;
    }
    if (mine < begin + s->count * 4 && begin < mine + count * 4)
      fail("wgmma: accumulators are part of others that products are in flight for");
  }
  auto s = std::make_unique<Sums>();
  s->registers = d[0];
  s->count = count;
  s->integers = std::is_same_v<T, int>;
  std::memcpy(s->values.data(), d[0], static_cast<std::size_t>(count) * 4);
  for (int i = 0; i < count; ++i) std::memcpy(d[i], &kPoison, 4);
  t.sums.push_back(std::move(s));
  return *t.sums.back();
}

void check_operands(Block& b, const Warp& w, const Product& p, const char* what, Proxy proxy,
                    std::uint64_t fenced_at) {
  for_chunks(p, [&](std::uint32_t address) {
    for (std::uint32_t i = 0; i < 4; ++i) check_read(b, w, word_of(address) + i, what, proxy, fenced_at);
  });
}

template <typename T>
void issue(int n, T* const* d, const std::uint32_t* const* a, std::uint64_t left, std::uint64_t right,
           bool accumulate) {
  Thread& t = *running;
  Block& b = *t.warp->block;
  if (!t.products_fenced) fail("wgmma without wgmma.fence after the last use of registers");
  Warpgroup& g = group_of(t);
  const auto mine = static_cast<std::size_t>(t.at.thread.x % 128);
  const int number = t.issued++;
  if (number - g.base == static_cast<int>(g.products.size())) {
    auto p = std::make_unique<Product>();
    p->integers = std::is_same_v<T, int>;
    p->n = n;
    p->left_in_registers = a != nullptr;
    p->accumulate = accumulate;
    p->left = left, p->right = right;
    p->where = t.where;
    if (a == nullptr) check_descriptor(left);
    check_descriptor(right);
    for_chunks(*p, [&](std::uint32_t address) { checked(b, address, 16, "an operand of wgmma", 16); });
    g.products.push_back(std::move(p));
  }
  Product& p = product_of(g, number);
  if (p.integers != std::is_same_v<T, int> || p.n != n || p.left_in_registers != (a != nullptr) ||
      p.left != left || p.right != right || p.accumulate != accumulate)
    fail(
        "threads of a warpgroup issue different products: {} columns of {:#x} and {:#x}{}, others {} columns "
        "of {:#x} and {:#x}{}",
        n, left, right, accumulate ? " that are added" : "", p.n, p.left, p.right,
        p.accumulate ? " that are added" : "");
  if (a != nullptr) {
    for (std::size_t i = 0; i < 4; ++i) p.left_registers[mine][i] = *a[i];
    t.left_registers.push_back({number, {a[0], a[1], a[2], a[3]}});
  }
  Sums& sums = take_sums(n, d);
  sums.last = number;
  p.sums[mine] = &sums;
  if (++p.threads_of_warp[mine / 32] == 32) {
    std::uint64_t fenced_at = 0;
    for (const Thread* other : t.warp->lanes) fenced_at = std::max(fenced_at, other->fenced_at);
    // Whatever zeros are multiplied by: kernels may let an operand's last columns be what they are.
    if (p.warps++ == 0) p.right_unread = left_is_zero(b, p);
    check_operands(b, *t.warp, p, "the product's read", Proxy::async, fenced_at);
  }
  if (++p.threads == 128) {
    p.due = draw_due();
    if (!g.listed) machine->multiplying.push_back(&g);
    g.listed = true;
  }
}

// Products before `until` read nothing any more, as far as the warp knows.
void record_reads(Warp& w, Warpgroup& g, int until) {
  Block& b = *w.block;
  for (; w.recorded < until; ++w.recorded) {
    const Product& p = product_of(g, w.recorded);
    running->where = p.where;
    check_operands(b, w, p, "a product's read, which may last until wgmma.wait_group,", Proxy::generic, 0);
    for_chunks(p, [&](std::uint32_t address) {
      for (std::uint32_t i = 0; i < 4; ++i) record_read(b, w, word_of(address) + i, p.where, Proxy::async);
    });
  }
}

void return_registers(Thread& t, Warpgroup& g, int until) {
  const std::size_t mine = t.at.thread.x % 128;
  std::erase_if(t.left_registers, [&](const auto& left) {
    if (left.first >= until) return false;
    for (std::size_t i = 0; i < 4; ++i) {
      if (*left.second[i] != product_of(g, left.first).left_registers[mine][i])
        fail("wgmma: left operand {} in registers was changed while its product was in flight", i);
    }
    return true;
  });
  std::erase_if(t.sums, [&](const auto& s) {
    if (s->last >= until) return false;
    for (int i = 0; i < s->count; ++i) {
      if (std::memcmp(static_cast<const std::byte*>(s->registers) + i * 4, &kPoison, 4) != 0)
        fail("wgmma: accumulator {} was changed while products were in flight for it", i);
    }
    std::memcpy(s->registers, s->values.data(), static_cast<std::size_t>(s->count) * 4);
    return true;
  });
}

}  // namespace

void wgmma_fence() {
  running->products_fenced = true;
}
void wgmma_commit() {
  running->commits.push_back(running->issued);
}

void wgmma(int n, float* const* d, const std::uint32_t* const* a, std::uint64_t left, std::uint64_t right,
           bool accumulate) {
  PIPIT_EMULATES("wgmma of halves");
  issue(n, d, a, left, right, accumulate);
}
void wgmma(int n, int* const* d, const std::uint32_t* const* a, std::uint64_t left, std::uint64_t right,
           bool accumulate) {
  PIPIT_EMULATES("wgmma of bytes");
  issue(n, d, a, left, right, accumulate);
}

void wgmma_wait(int pending) {
  PIPIT_EMULATES("wgmma.wait_group");
  Thread& t = *running;
  Block& b = *t.warp->block;
  t.products_fenced = false;
  const std::ptrdiff_t over = static_cast<std::ptrdiff_t>(t.commits.size()) - pending;
  if (over <= 0) return;
  const int until = t.commits[static_cast<std::size_t>(over - 1)];
  t.commits.erase(t.commits.begin(), t.commits.begin() + over);
  if (until <= t.awaited) return;
  Warpgroup& g = group_of(t);
  t.until = static_cast<std::uint64_t>(until);
  wait_for(Wait::products);
  t.awaited = until;
  record_reads(*t.warp, g, until);
  return_registers(t, g, until);
  // Products that all have waited for are forgotten.
  int least = until;
  for (int i = 0; i < 128; ++i)
    least = std::min(least, b.threads[static_cast<std::size_t>(g.first + i)]->awaited);
  for (int i = 0; i < 4; ++i)
    least = std::min(least, b.warps[static_cast<std::size_t>(g.first / 32 + i)]->recorded);
  for (; g.base < least; ++g.base) g.products.pop_front();
  perhaps_fall_behind(64);
}

}  // namespace pipit::internal::test::emulation
