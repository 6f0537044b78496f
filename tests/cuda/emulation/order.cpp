#include "tests/cuda/emulation/order.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda/emulation/report.h"

namespace pipit::internal::test::emulation {

namespace {

[[noreturn]] void race(const Block& b, std::uint32_t word, const char* what, const char* before,
                       std::uint32_t actor, std::uint32_t where) {
  fail("race in the shared memory of block {} at {}: nothing orders {} after the {} by {} at\n{}", b.index.x,
       place(word * 4 + kWindow), what, before, machine->actors[actor], lines_of(code_at(where)));
}

const char* name_of(const Written& last) {
  return last.clock == kNotYet ? "copy (cp.async) that was not waited for" : "write";
}

// The copy engine may overwrite what threads have read only after a fence: of a lane of the warp that has read, or of
// the thread that asks for the copy.
void check_fences(const Block& b, std::uint32_t word, const char* what) {
  const std::size_t n = b.warps.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t time = b.read_time[word * n + i];
    if (time == 0 || running->fenced_at >= time) continue;
    const Warp& reader = *b.warps[i];
    const auto fenced = [&](const Thread* lane) { return lane != nullptr && lane->fenced_at >= time; };
    if (std::any_of(reader.lanes.begin(), reader.lanes.end(), fenced)) continue;
    fail("{} to {}: no fence.proxy.async after the read by {} at\n{}", what, place(word * 4 + kWindow),
         machine->actors[reader.actor], lines_of(code_at(b.read_where[word * n + i])));
  }
}

}  // namespace

std::uint32_t new_actor(std::string name) {
  machine->actors.push_back(std::move(name));
  return static_cast<std::uint32_t>(machine->actors.size() - 1);
}

void release_to(Clocks& to) {
  Warp& w = *running->warp;
  to.join(w.clocks);
  w.clocks.raise(w.actor, w.clocks.of(w.actor) + 1);
}
void acquire_from(const Clocks& from) {
  running->warp->clocks.join(from);
}

std::uint32_t word_of(std::uint32_t address) {
  return (local(address) - kWindow) / 4;
}

void check_read(Block& b, const Warp& w, std::uint32_t word, const char* what, Proxy proxy,
                std::uint64_t fenced_at) {
  const Written& last = b.written[word];
  if (last.clock > w.clocks.of(last.actor)) race(b, word, what, name_of(last), last.actor, last.where);
  if (proxy == Proxy::generic || last.time == 0) return;
  const Block& writers = *b.cluster->blocks[last.thread >> 16];
  const Thread& writer = *writers.threads[last.thread & 0xFFFF];
  if (writer.fenced_at >= last.time || fenced_at >= last.time) return;
  fail("{} of {}: no fence.proxy.async after the store of block {} thread {} at\n{}", what,
       place(word * 4 + kWindow), writers.index.x, last.thread & 0xFFFF, lines_of(code_at(last.where)));
}

void record_read(Block& b, const Warp& w, std::uint32_t word, const void* where, Proxy proxy) {
  const std::size_t i = word * b.warps.size() + static_cast<std::size_t>(w.index);
  b.read[i] = w.clocks.of(w.actor);
  b.read_time[i] = proxy == Proxy::generic ? machine->stores : 0;
  b.read_where[i] = code_offset(where);
}

void check_write(Block& b, const Warp& w, std::uint32_t word, const char* what) {
  const Written& last = b.written[word];
  if (last.clock > w.clocks.of(last.actor)) race(b, word, what, name_of(last), last.actor, last.where);
  const std::size_t n = b.warps.size();
  const std::uint32_t* read = b.read.data() + word * n;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t reader = b.warps[i]->actor;
    if (read[i] > w.clocks.of(reader)) race(b, word, what, "read", reader, b.read_where[word * n + i]);
  }
}

void record_write(Block& b, std::uint32_t word, std::uint32_t actor, std::uint32_t clock, const void* where,
                  const Thread* thread) {
  Written& last = b.written[word];
  last = {actor, clock, code_offset(where), 0, 0};
  if (thread == nullptr) return;
  last.time = machine->stores;
  last.thread = static_cast<std::uint32_t>(thread->warp->block->rank) << 16 | thread->at.thread.x;
}

void thread_reads(Block& b, std::uint32_t address, std::uint32_t bytes) {
  ++machine->stores;
  for (std::uint32_t i = word_of(address); i <= word_of(address + bytes - 1); ++i) {
    check_read(b, *running->warp, i, "the read", Proxy::generic, 0);
    record_read(b, *running->warp, i, running->where, Proxy::generic);
  }
}

void thread_writes(Block& b, std::uint32_t address, std::uint32_t bytes, const void* from) {
  // Bytes of a word that several warps write are not told apart: only whole words are looked at.
  if (bytes < 4) return;
  ++machine->stores;
  const Warp& w = *running->warp;
  const std::uint32_t first = word_of(address);
  for (std::uint32_t i = 0; i < bytes / 4; ++i) {
    // Two threads may store the same value without an order between them: it cannot be seen whose it is.
    const bool same =
        b.written[first + i].time != 0 &&
        std::memcmp(b.memory + (first + i) * 4, static_cast<const std::byte*>(from) + i * 4, 4) == 0;
    if (!same) check_write(b, w, first + i, "the write");
    record_write(b, first + i, w.actor, w.clocks.of(w.actor), running->where, running);
  }
}

void engine_writes(Block& b, std::uint32_t address, std::uint32_t bytes, Mbarrier& m, const char* what,
                   bool sent) {
  const Warp& w = *running->warp;
  for (std::uint32_t i = word_of(address); i <= word_of(address + bytes - 1); ++i) {
    check_write(b, w, i, what);
    if (!sent) check_fences(b, i, what);
    record_write(b, i, m.actor, static_cast<std::uint32_t>(m.phase + 1), running->where, nullptr);
  }
  release_to(m.arriving);
}

}  // namespace pipit::internal::test::emulation
