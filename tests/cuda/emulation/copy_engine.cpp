#include "tests/cuda/emulation/copy_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda/emulation/barriers.h"
#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace pipit::internal::test::emulation {

namespace {

constexpr std::size_t kMaxParts = 4;

std::size_t first_copy() {
  const auto& copies = machine->copies;
  const auto due = [](const auto& a, const auto& b) { return a->due < b->due; };
  return static_cast<std::size_t>(std::min_element(copies.begin(), copies.end(), due) - copies.begin());
}

void run_part(std::size_t i) {
  Copy& c = *machine->copies[i];
  const auto [end, bytes] = c.parts[c.part++];
  for (; c.piece < end; ++c.piece) {
    const Piece& p = c.pieces[c.piece];
    if (p.from == nullptr) {
      std::memset(p.to, 0, p.bytes);
    } else {
      std::memcpy(p.to, p.from, p.bytes);
    }
  }
  complete(*c.barrier, bytes);
  if (c.part < c.parts.size()) {
    c.due = draw_due();
    return;
  }
  ++machine->outcome.copies;
  std::swap(machine->copies[i], machine->copies.back());
  machine->copies.pop_back();
}

}  // namespace

std::uint64_t draw_due() {
  if (machine->how.lateness <= 0 || (chance() & 1) == 0) return machine->tick;
  return machine->tick +
         static_cast<std::uint64_t>(static_cast<double>(1U << (chance() % 9)) * machine->how.lateness);
}

std::uint32_t swizzled(std::uint32_t address, int bytes) {
  const std::uint32_t rows = bytes == 128 ? 0x70 : bytes == 64 ? 0x30 : bytes == 32 ? 0x10 : 0;
  return address ^ (address >> 3 & rows);
}

void begin_copy(std::unique_ptr<Copy> copy, std::uint32_t bytes) {
  for (const Piece& p : copy->pieces) std::memset(p.to, 0xFF, p.bytes);
  const std::size_t n = copy->pieces.size(), parts = std::min(n, 1 + chance() % kMaxParts);
  std::size_t at = 0;
  for (std::size_t k = 1; k <= parts; ++k) {
    std::uint32_t part = 0;
    for (; at < k * n / parts; ++at) part += copy->pieces[at].bytes;
    copy->parts.emplace_back(at, part);
    bytes -= part;
  }
  if (bytes != 0) fail("the emulator's copy leaves out {} bytes", bytes);
  copy->due = draw_due();
  copy->where = running->where;
  machine->copies.push_back(std::move(copy));
}

std::uint64_t first_copy_due() {
  return machine->copies.empty() ? kNothingDue : machine->copies[first_copy()]->due;
}
void run_first_copy() {
  run_part(first_copy());
}
bool run_copy_if_due(std::size_t i) {
  if (machine->copies[i]->due > machine->tick) return false;
  run_part(i);
  return true;
}

// ---- "cp.async.bulk", "st.async" ----

void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  PIPIT_EMULATES("cp.async.bulk");
  perhaps_fall_behind(8);
  if (bytes % 16 != 0 || bytes == 0) fail("cp.async.bulk of {} bytes, which are no multiple of 16", bytes);
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    fail("cp.async.bulk from {}, which is not aligned to 16 bytes", from);
  check_global(from, bytes, "cp.async.bulk");
  Block& b = block_of(to);
  std::byte* target = checked(b, to, bytes, "cp.async.bulk", 16);
  Mbarrier& counts = mbarrier_at(barrier, "cp.async.bulk");
  if (&block_of(barrier) != &b) fail("cp.async.bulk counts on the mbarrier of another block than it goes to");
  engine_writes(b, to, bytes, counts, "the copy");
  auto c = std::make_unique<Copy>();
  c->block = &b;
  c->barrier = &counts;
  const std::uint32_t step = std::max<std::uint32_t>(16, bytes / 8 / 16 * 16);
  for (std::uint32_t i = 0; i < bytes; i += step)
    c->pieces.push_back({target + i, static_cast<const std::byte*>(from) + i, std::min(step, bytes - i)});
  begin_copy(std::move(c), bytes);
}

void copy_bulk_to_all(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                      std::uint32_t ranks) {
  PIPIT_EMULATES("cp.async.bulk.multicast");
  if (ranks == 0 || ranks >> machine->how.cluster != 0)
    fail("cp.async.bulk.multicast to the blocks {:#x} of a cluster of {}", ranks, machine->how.cluster);
  const void* const where = running->where;
  for (std::uint32_t rank = 0; rank < machine->how.cluster; ++rank) {
    if ((ranks >> rank & 1) != 0) copy_bulk(mapa(to, rank), from, bytes, mapa(barrier, rank));
    running->where = where;
  }
}

void st_async(std::uint32_t to, const std::uint32_t* words, int count, std::uint32_t barrier) {
  PIPIT_EMULATES("st.async");
  perhaps_fall_behind(64);
  Block& b = block_of(to);
  const auto bytes = static_cast<std::uint32_t>(count * 4);
  std::byte* target = checked(b, to, bytes, "st.async", bytes);
  Mbarrier& counts = mbarrier_at(barrier, "st.async");
  if (&block_of(barrier) != &b) fail("st.async counts on the mbarrier of another block than it goes to");
  engine_writes(b, to, bytes, counts, "st.async", true);
  auto c = std::make_unique<Copy>();
  c->block = &b;
  c->barrier = &counts;
  c->words.resize(bytes);
  std::memcpy(c->words.data(), words, bytes);
  c->pieces.push_back({target, c->words.data(), bytes});
  begin_copy(std::move(c), bytes);
}

}  // namespace pipit::internal::test::emulation
