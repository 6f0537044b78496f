#include "tests/cuda/emulation/barriers.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace pipit::internal::test::emulation {

namespace {

// An mbarrier's eight bytes: its number in the block, and what says that they are one.
constexpr std::uint32_t kIsMbarrier = 0xB4221E40;
// PTX ISA, "mbarrier", "Contents of the mbarrier object".
constexpr std::int64_t kMaxBytes = (1 << 20) - 1;
constexpr std::uint32_t kMaxArrivals = (1 << 20) - 1;

Mbarrier* find(Block& b, std::uint32_t address, const std::byte* at) {
  std::uint32_t words[2];
  std::memcpy(words, at, 8);
  if (words[1] != kIsMbarrier || words[0] >= b.barriers.size()) return nullptr;
  Mbarrier* m = b.barriers[words[0]].get();
  return m->address == local(address) ? m : nullptr;
}

void end_phase_if_due(Mbarrier& m) {
  if (m.pending != 0 || m.bytes != 0) return;
  m.pending = m.count;
  ++m.phase;
  m.ended.join(m.arriving);
  m.ended.raise(m.actor, static_cast<std::uint32_t>(m.phase));
  ++machine->changes;
}

void arrive(Mbarrier& m, std::uint32_t count) {
  if (m.pending < count)
    fail("{} arrivals at the mbarrier at {}, where {} of {} are pending", count, place(m.address), m.pending,
         m.count);
  release_to(m.arriving);
  m.pending -= count;
  end_phase_if_due(m);
}

void end_if_due(const Block& b, NamedBarrier& n) {
  if (n.arrived == 0 || n.arrived != (n.all ? b.live : n.expected)) return;
  n.arrived = 0;
  ++n.generation;
  n.ended.join(n.arriving);
  ++machine->changes;
}

void end_if_due(Cluster& c) {
  if (c.arrived == 0 || c.arrived != c.live) return;
  c.arrived = 0;
  ++c.generation;
  c.ended.join(c.arriving);
  ++machine->changes;
}

std::uint64_t arrive_named(int barrier, int threads) {
  Block& b = *running->warp->block;
  if (barrier < 0 || barrier > 15) fail("there is no barrier {}; they are 0 to 15", barrier);
  const bool all = threads < 0;
  if (all) threads = static_cast<int>(b.threads.size());
  if (!all && threads % 32 != 0)
    fail("barrier {} for {} threads, which are no whole warps", barrier, threads);
  NamedBarrier& n = b.named[static_cast<std::size_t>(barrier)];
  if (n.arrived == 0) n.expected = threads, n.all = all;
  if (n.expected != threads)
    fail("barrier {} is used with {} and with {} threads at a time", barrier, n.expected, threads);
  release_to(n.arriving);
  const std::uint64_t generation = n.generation;
  ++n.arrived;
  end_if_due(b, n);
  return generation;
}

}  // namespace

Mbarrier& mbarrier_at(std::uint32_t address, const char* what) {
  Block& b = block_of(address);
  Mbarrier* m = find(b, address, checked(b, address, 8, what, 8));
  if (m == nullptr) fail("{}: there is no initialized mbarrier at {}", what, place(address));
  if (m->made_at > running->warp->clocks.of(m->made_by))
    fail("{}: nothing orders it after the initialization of the mbarrier at {} by {}", what, place(address),
         machine->actors[m->made_by]);
  return *m;
}

void complete(Mbarrier& m, std::uint32_t bytes) {
  // Bytes may come before they are expected.
  m.bytes -= bytes;
  if (m.bytes < -kMaxBytes)
    fail("{} bytes more than expected come to the mbarrier at {}", -m.bytes, place(m.address));
  end_phase_if_due(m);
}

void leave_barriers(Block& b) {
  for (NamedBarrier& n : b.named) {
    if (n.all) end_if_due(b, n);
  }
  end_if_due(*b.cluster);
}

// ---- mbarrier (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier") ----

void mbarrier_init(std::uint32_t address, std::uint32_t count) {
  PIPIT_EMULATES("mbarrier.init");
  Block& b = block_of(address);
  std::byte* at = checked(b, address, 8, "mbarrier.init", 8);
  if (count == 0 || count > kMaxArrivals)
    fail("mbarrier.init for {} arrivals; 1 to {} are possible", count, kMaxArrivals);
  if (find(b, address, at) != nullptr)
    fail("mbarrier.init of the mbarrier at {}, which is in use", place(address));
  auto m = std::make_unique<Mbarrier>();
  m->address = local(address);
  m->count = m->pending = count;
  m->actor =
      new_actor(fmt::format("a copy that counts on the mbarrier {} of block {}", place(address), b.index.x));
  m->made_by = running->warp->actor;
  m->made_at = running->warp->clocks.of(m->made_by);
  const std::uint32_t words[2] = {static_cast<std::uint32_t>(b.barriers.size()), kIsMbarrier};
  std::memcpy(at, words, 8);
  b.barriers.push_back(std::move(m));
}

void mbarrier_arrive(std::uint32_t address, std::uint32_t count) {
  PIPIT_EMULATES("mbarrier.arrive");
  perhaps_fall_behind(16);
  arrive(mbarrier_at(address, "mbarrier.arrive"), count);
  perhaps_fall_behind(16);
}

void mbarrier_arrive_expect(std::uint32_t address, std::uint32_t bytes) {
  PIPIT_EMULATES("mbarrier.arrive.expect_tx");
  perhaps_fall_behind(16);
  Mbarrier& m = mbarrier_at(address, "mbarrier.arrive.expect_tx");
  m.bytes += bytes;
  if (m.bytes > kMaxBytes)
    fail("the mbarrier at {} expects {} bytes; it counts up to {}", place(address), m.bytes, kMaxBytes);
  arrive(m, 1);
  perhaps_fall_behind(16);
}

bool mbarrier_wait(std::uint32_t address, std::uint32_t parity) {
  PIPIT_EMULATES("mbarrier.try_wait");
  const Mbarrier& m = mbarrier_at(address, "mbarrier.try_wait");
  Block& own = *running->warp->block;
  if (&block_of(address) != &own) fail("mbarrier.try_wait at another block's mbarrier {:#x}", address);
  if (parity > 1) fail("mbarrier.try_wait for parity {}", parity);
  std::uint32_t number = 0;
  std::memcpy(&number, own.memory + (m.address - kWindow), 4);
  running->until = number;
  running->parity = parity;
  wait_for(Wait::mbarrier);
  acquire_from(m.ended);
  perhaps_fall_behind(64);
  return true;
}

// ---- Barriers of a block and of a cluster ("bar", "barrier.cluster") ----

void bar_sync(int barrier, int threads) {
  PIPIT_EMULATES("bar.sync");
  perhaps_fall_behind(32);
  running->until = arrive_named(barrier, threads);
  running->address = static_cast<std::uint32_t>(barrier);
  wait_for(Wait::named);
  acquire_from(running->warp->block->named[static_cast<std::size_t>(barrier)].ended);
}
void bar_arrive(int barrier, int threads) {
  PIPIT_EMULATES("bar.arrive");
  perhaps_fall_behind(32);
  arrive_named(barrier, threads);
}

// Orders initializations, and nothing else, before a relaxed arrival after it; here all that came before it.
void fence_mbarrier_init() {
  PIPIT_EMULATES("fence.mbarrier_init");
  release_to(running->warp->initialized);
}

void cluster_arrive(bool releases) {
  PIPIT_EMULATES("barrier.cluster.arrive");
  Cluster& c = *running->warp->block->cluster;
  if (running->cluster_arrived) fail("barrier.cluster.arrive twice without a wait");
  running->cluster_arrived = true;
  running->cluster_generation = c.generation;
  if (releases) {
    release_to(c.arriving);
  } else {
    c.arriving.join(running->warp->initialized);
  }
  ++c.arrived;
  end_if_due(c);
}
void cluster_wait() {
  PIPIT_EMULATES("barrier.cluster.wait");
  if (!running->cluster_arrived) fail("barrier.cluster.wait without barrier.cluster.arrive");
  running->until = running->cluster_generation;
  wait_for(Wait::cluster);
  running->cluster_arrived = false;
  acquire_from(running->warp->block->cluster->ended);
}

std::uint32_t cluster_rank() {
  return static_cast<std::uint32_t>(running->warp->block->rank);
}
std::uint32_t mapa(std::uint32_t address, std::uint32_t rank) {
  PIPIT_EMULATES("mapa");
  if (rank >= machine->how.cluster)
    fail("mapa: there is no block {} in a cluster of {}", rank, machine->how.cluster);
  return local(address) | (rank + 1) << kRankBit;
}

// ---- Registers of warps ("setmaxnreg"): more than the launch has, warps only get when others leave them ----

void set_registers(int count, bool more) {
  PIPIT_EMULATES(more ? "setmaxnreg.inc" : "setmaxnreg.dec");
  if (count % 8 != 0 || count < 24 || count > 256)
    fail("setmaxnreg to {} registers; multiples of 8 from 24 to 256 are possible", count);
  Warp& w = *running->warp;
  Block& b = *w.block;
  const int all = registers_of_thread(machine->how) * static_cast<int>(b.threads.size());
  if (w.registers == count) return;
  if (more != (count > w.registers))
    fail("setmaxnreg.{} from {} to {} registers", more ? "inc" : "dec", w.registers, count);
  constexpr int kTries = 200;  // changes that may come between
  for (int tries = 0; more; ++tries) {
    int others = 0;
    for (const auto& v : b.warps) others += v.get() == &w ? 0 : v->registers * 32;
    if (w.registers == count || others + count * 32 <= all) break;
    if (tries > kTries)
      fail("setmaxnreg.inc to {} registers waits for ever: of the block's {} other warps hold {}", count, all,
           others);
    wait_for_change();
  }
  w.registers = count;
  ++machine->changes;
}

}  // namespace pipit::internal::test::emulation
