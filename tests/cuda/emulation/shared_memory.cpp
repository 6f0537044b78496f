#include "tests/cuda/emulation/shared_memory.h"

#include <cstring>

#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"

namespace pipit::internal::test::emulation {

Block& block_of(std::uint32_t address) {
  Block& own = *running->warp->block;
  const std::uint32_t rank = address >> kRankBit;
  if (rank == 0) return own;
  if (rank > own.cluster->blocks.size())
    fail("the shared address {:#x} is of block {} of a cluster of {}", address, rank - 1,
         own.cluster->blocks.size());
  Block& other = *own.cluster->blocks[rank - 1];
  if (&other != &own && other.live == 0)
    fail("access to the shared memory of block {}, which has ended", other.index.x);
  return other;
}

std::byte* checked(Block& b, std::uint32_t address, std::uint32_t bytes, const char* what,
                   std::uint32_t alignment) {
  const std::uint32_t at = local(address);
  const bool dynamic = at >= b.dynamic && at + bytes <= b.dynamic + b.dynamic_bytes;
  const bool fixed = at >= kWindow && at + bytes <= kWindow + machine->statics_bytes;
  if (!dynamic && !fixed)
    fail(
        "{} of {} bytes of shared memory out of range at {}; there are {} static bytes at {:#x} and {} "
        "dynamic ones at {:#x}",
        what, bytes, place(address), machine->statics_bytes, kWindow, b.dynamic_bytes, b.dynamic);
  if (at % alignment != 0) fail("{} at {} is not aligned to {} bytes", what, place(address), alignment);
  return b.memory + (at - kWindow);
}

namespace {

// The second look at the same place waits until something has changed: a loop that polls would never let others run.
void poll(const void* at) {
  Thread& t = *running;
  if (t.polled == at && t.polled_change == machine->changes) wait_for_change();
  t.polled = at;
  t.polled_change = machine->changes;
}

void acquire_at(const std::unordered_map<std::uint32_t, Clocks>& released, std::uint32_t address) {
  const auto found = released.find(address);
  if (found != released.end()) acquire_from(found->second);
}

}  // namespace

void* dynamic_shared(std::size_t alignment) {
  Block& b = *running->warp->block;
  b.dynamic = static_cast<std::uint32_t>((kWindow + kStatics + alignment - 1) / alignment * alignment);
  // What is aligned by a few bytes only may lie anywhere: a kernel that wants more has to see to it.
  if (alignment <= 16) b.dynamic += 16;
  return b.memory + (b.dynamic - kWindow);
}

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const char* name) {
  auto it = machine->statics.find(key);
  if (it == machine->statics.end()) {
    const std::size_t at = (machine->statics_bytes + alignment - 1) / alignment * alignment;
    if (at + bytes > kStatics)
      fail("{}: {} bytes of static shared memory; {} are emulated", name, at + bytes, kStatics);
    it = machine->statics.emplace(key, StaticVariable{static_cast<std::uint32_t>(at), bytes, name}).first;
    machine->statics_bytes = static_cast<std::uint32_t>(at + bytes);
  }
  return running->warp->block->memory + it->second.offset;
}

std::uint32_t shared_address(const void* p) {
  const Block& b = *running->warp->block;
  const auto* q = static_cast<const std::byte*>(p);
  if (q < b.memory || q >= b.memory + b.bytes)
    fail("{} is no address in the shared memory of block {}", p, b.index.x);
  return kWindow + static_cast<std::uint32_t>(q - b.memory);
}

void* shared_of_block(const void* p, std::uint32_t rank) {
  const std::uint32_t there = mapa(shared_address(p), rank);
  return block_of(there).memory + (local(there) - kWindow);
}

void load_shared(std::uint32_t address, void* to, std::size_t bytes, bool acquires) {
  PIPIT_EMULATES(acquires ? "ld.acquire.shared" : "ld.shared");
  Block& b = block_of(address);
  const auto size = static_cast<std::uint32_t>(bytes);
  const std::byte* from = checked(b, address, size, "a load", size);
  if (acquires) {
    running->address = address;
    poll(from);
    acquire_at(b.released, local(address));
  } else {
    perhaps_fall_behind(256);
    thread_reads(b, address, size);
  }
  std::memcpy(to, from, bytes);
}

void store_shared(std::uint32_t address, const void* from, std::size_t bytes) {
  PIPIT_EMULATES("st.shared");
  Block& b = block_of(address);
  const auto size = static_cast<std::uint32_t>(bytes);
  std::byte* to = checked(b, address, size, "a store", size);
  perhaps_fall_behind(256);
  thread_writes(b, address, size, from);
  std::memcpy(to, from, bytes);
}

void fence_proxy_async() {
  running->fenced_at = ++machine->stores;
}

void load_global(const void* address, void* to, std::size_t bytes, bool acquires) {
  PIPIT_EMULATES("ld.global");
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    fail("ld.global at {} is not aligned to {} bytes", address, bytes);
  if (acquires) {
    poll(address);
    const auto found = machine->released.find(address);
    if (found != machine->released.end()) acquire_from(found->second);
  }
  std::memcpy(to, address, bytes);
}

void* begin_add_shared(std::uint32_t address, std::size_t bytes) {
  PIPIT_EMULATES("red.shared");
  perhaps_fall_behind(16);
  Block& b = block_of(address);
  const auto size = static_cast<std::uint32_t>(bytes);
  void* at = checked(b, address, size, "an atomic operation", size);
  release_to(b.released[local(address)]);
  return at;
}
void begin_add_global(void* address, std::size_t bytes) {
  PIPIT_EMULATES("red.global");
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    fail("red.global at {} is not aligned to {} bytes", address, bytes);
  perhaps_fall_behind(16);
  release_to(machine->released[address]);
}
void end_add() {
  ++machine->changes;
}

// ---- cp.async (PTX ISA, "Data Movement and Conversion Instructions: cp.async"): done when they are waited for ----

void cp_async(std::uint32_t to, const void* from, int bytes, int bytes_there) {
  PIPIT_EMULATES("cp.async");
  Block& b = *running->warp->block;
  const auto size = static_cast<std::uint32_t>(bytes);
  std::byte* target = checked(b, to, size, "cp.async", size);
  if (bytes_there > 0 && reinterpret_cast<std::uintptr_t>(from) % size != 0)
    fail("cp.async from {}, which is not aligned to {} bytes", from, bytes);
  for (std::uint32_t i = word_of(to); i <= word_of(to + size - 1); ++i) {
    check_write(b, *running->warp, i, "the copy (cp.async)");
    record_write(b, i, running->warp->actor, kNotYet, running->where, nullptr);
  }
  std::memset(target, 0xFF, size);
  running->open_copies.push_back({to, from, bytes, bytes_there, running->where});
}
void cp_async_commit() {
  running->copy_groups.push_back(std::move(running->open_copies));
  running->open_copies.clear();
}
void cp_async_wait(int pending) {
  PIPIT_EMULATES("cp.async.wait_group");
  perhaps_fall_behind(4);
  Thread& t = *running;
  const Warp& w = *t.warp;
  Block& b = *w.block;
  for (; static_cast<int>(t.copy_groups.size()) > pending; t.copy_groups.pop_front()) {
    ++machine->stores;
    for (const CpAsync& c : t.copy_groups.front()) {
      std::byte* to = b.memory + (c.to - kWindow);
      std::memcpy(to, c.from, static_cast<std::size_t>(c.bytes_there));
      std::memset(to + c.bytes_there, 0, static_cast<std::size_t>(c.bytes - c.bytes_there));
      for (std::uint32_t i = word_of(c.to); i <= word_of(c.to + static_cast<std::uint32_t>(c.bytes) - 1); ++i)
        record_write(b, i, w.actor, w.clocks.of(w.actor), c.where, &t);
    }
  }
}

}  // namespace pipit::internal::test::emulation
