// A run from the first block to the last.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"

namespace pipit::internal::test::emulation {

namespace {

unsigned count(const dim3& extent) {
  return extent.x * extent.y * extent.z;
}
Index index_in(unsigned i, const dim3& extent) {
  return {i % extent.x, i / extent.x % extent.y, i / extent.x / extent.y};
}

void add_thread(Block& b, unsigned number) {
  const Launch& how = machine->how;
  auto thread = std::make_unique<Thread>();
  Warp& warp = *b.warps[number / 32];
  thread->warp = &warp;
  thread->lane = static_cast<int>(number % 32);
  thread->at = {index_in(number, how.block),
                b.index,
                {how.block.x, how.block.y, how.block.z},
                {how.grid.x, how.grid.y, how.grid.z}};
  begin_fiber(*thread);
  warp.lanes[number % 32] = thread.get();
  warp.ready |= 1U << number % 32;
  warp.all |= 1U << number % 32;
  b.threads.push_back(std::move(thread));
}

std::unique_ptr<Block> make_block(Cluster& cluster, unsigned rank) {
  const Launch& how = machine->how;
  const unsigned threads = count(how.block);
  auto b = std::make_unique<Block>();
  b->cluster = &cluster;
  b->rank = static_cast<int>(rank);
  b->index =
      how.cluster_along_y ? Index{cluster.id, rank, 0} : index_in(cluster.id * how.cluster + rank, how.grid);
  b->dynamic = kWindow + kStatics + 16;
  b->dynamic_bytes = static_cast<std::uint32_t>(how.shared);
  // After the statics there is room for an alignment of 1024, and for the 16 bytes by which less is spoilt.
  b->bytes = (kStatics + 2048 + b->dynamic_bytes + 1023) / 1024 * 1024;
  b->memory = static_cast<std::byte*>(std::aligned_alloc(1024, b->bytes));
  if (b->memory == nullptr) throw std::bad_alloc();
  // What was there before: halves that are NaN, or large numbers of all kinds.
  const bool same = (chance() & 1) == 0;
  for (std::uint32_t i = 0; i < b->bytes; i += 4) {
    const std::uint32_t v = same ? 0xFFFFFFFFU : chance() | 0x40004000U;
    std::memcpy(b->memory + i, &v, 4);
  }
  b->live = static_cast<int>(threads);
  for (unsigned w = 0; w < (threads + 31) / 32; ++w) {
    auto warp = std::make_unique<Warp>();
    warp->block = b.get();
    warp->index = static_cast<int>(w);
    warp->actor = new_actor(fmt::format("block {} warp {}", b->index.x, w));
    warp->clocks.raise(warp->actor, 1);
    warp->registers = registers_of_thread(how);
    b->warps.push_back(std::move(warp));
  }
  b->written.resize(b->bytes / 4);
  b->read.resize(b->written.size() * b->warps.size());
  b->read_where.resize(b->read.size());
  b->read_time.resize(b->read.size());
  for (unsigned g = 0; g < (threads + 127) / 128; ++g) {
    auto group = std::make_unique<Warpgroup>();
    group->block = b.get();
    group->first = static_cast<int>(g) * 128;
    b->warpgroups.push_back(std::move(group));
  }
  for (unsigned t = 0; t < threads; ++t) add_thread(*b, t);
  return b;
}

void begin_cluster(unsigned id) {
  machine->clusters.push_back(std::make_unique<Cluster>());
  Cluster& c = *machine->clusters.back();
  c.id = id;
  for (unsigned rank = 0; rank < machine->how.cluster; ++rank) {
    c.blocks.push_back(make_block(c, rank));
    c.live += c.blocks.back()->live;
    for (const auto& w : c.blocks.back()->warps) machine->warps.push_back(w.get());
  }
  c.threads = c.live;
}

// Nothing of what was begun may be in flight still: the next block has the same shared memory.
void check_end(const Cluster& c) {
  for (const auto& b : c.blocks) {
    for (const auto& copy : machine->copies) {
      if (copy->block == b.get())
        fail("block {} ends while a copy to its shared memory is in flight, which was asked for at\n{}",
             b->index.x, lines_of(copy->where));
    }
    for (const auto& m : b->barriers) {
      if (m->bytes != 0)
        fail("block {} ends while the mbarrier at {} expects {} bytes", b->index.x, place(m->address),
             m->bytes);
    }
  }
}

void free_cluster(const Cluster& c) {
  std::erase_if(machine->warps, [&](const Warp* w) { return w->block->cluster == &c; });
  std::erase_if(machine->multiplying, [&](const Warpgroup* g) { return g->block->cluster == &c; });
  for (const auto& b : c.blocks) {
    for (const auto& t : b->threads) end_fiber(*t);
    std::free(b->memory);
  }
}

void run_all() {
  const Launch& how = machine->how;
  if (how.cluster == 0 || (how.cluster_along_y ? how.grid.y != how.cluster : how.grid.x % how.cluster != 0))
    fail("a grid of {} blocks is not made of clusters of {}", how.grid.x, how.cluster);
  if (count(how.block) == 0 || count(how.block) > 1024)
    fail("{} threads a block; 1 to 1024 are possible", count(how.block));
  const unsigned clusters = count(how.grid) / how.cluster;
  const unsigned most =
      how.resident <= 0 ? clusters : std::min(clusters, static_cast<unsigned>(how.resident));
  std::vector<unsigned> order(clusters);
  for (unsigned i = 0; i < clusters; ++i) order[i] = i;
  if ((chance() & 1) != 0) {
    for (unsigned i = clusters; i > 1; --i) std::swap(order[i - 1], order[chance() % i]);
  }
  unsigned begun = 0;
  while (begun < clusters || !machine->clusters.empty()) {
    if (machine->clusters.empty()) {
      // No thread is left to which their past could matter.
      machine->actors.resize(1);
      machine->released.clear();
    }
    while (begun < clusters && machine->clusters.size() < most) begin_cluster(order[begun++]);
    schedule();
    const auto ended = [](const auto& c) { return c->live == 0; };
    for (const auto& c : machine->clusters) {
      if (ended(c)) check_end(*c), free_cluster(*c);
    }
    std::erase_if(machine->clusters, ended);
  }
  if (machine->statics_bytes + how.shared > kMaxShared)
    fail("{} static and {} dynamic bytes of shared memory; a block may have {}", machine->statics_bytes,
         how.shared, kMaxShared);
}

}  // namespace

Outcome run_grid(const Launch& how, const std::function<void()>& body) {
  Machine state;
  state.how = how;
  state.body = &body;
  state.random =
      how.seed * 0x9E3779B97F4A7C15ULL + 0x1234567;  // neighbouring seeds far apart, and none is zero
  machine = &state;
  for (int i = 0; i < 8; ++i) chance();
  const FaultsAreErrors faults;
  try {
    run_all();
  } catch (const Error& e) {
    state.outcome.error = e.what();
    running = nullptr;
    for (const auto& c : state.clusters) free_cluster(*c);
  }
  machine = nullptr;
  return state.outcome;
}

void unknown_ptx(const char* what) {
  PIPIT_EMULATES("asm");
  fail("PTX that is not emulated: {}", what);
}

}  // namespace pipit::internal::test::emulation
