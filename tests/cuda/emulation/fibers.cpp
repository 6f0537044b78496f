#include "tests/cuda/emulation/fibers.h"

#include <sys/mman.h>

#include <exception>
#include <new>

#include "tests/cuda/emulation/barriers.h"
#include "tests/cuda/emulation/copy_engine.h"
#include "tests/cuda/emulation/matrix_unit.h"
#include "tests/cuda/emulation/report.h"

// Saves what the ABI wants saved on the stack that is left (System V AMD64 ABI, "Register Usage"), and goes on from
// what was saved on the other. No fiber changes the modes of floating-point arithmetic.
extern "C" void pipit_switch_stacks(void** save, void* to);
asm(R"(
.text
.globl pipit_switch_stacks
.type pipit_switch_stacks,@function
pipit_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pipit_switch_stacks,.-pipit_switch_stacks
)");

namespace pipit::internal::test::emulation {

Machine* machine = nullptr;
Thread* running = nullptr;
const Coordinates* coordinates = nullptr;

namespace {

constexpr std::size_t kStack = 128 << 10, kGuard = 4096;
// Rounds in which nothing happens but that threads look again.
constexpr int kIdleRounds = 300;

std::vector<std::byte*> free_stacks;

void set_running(Thread* thread) {
  running = thread;
  coordinates = &thread->at;
}

bool satisfied(const Thread& t) {
  const Block& b = *t.warp->block;
  switch (t.wait) {
    case Wait::mbarrier:
      return (b.barriers[t.until]->phase & 1) != t.parity;
    case Wait::named:
      return b.named[t.address].generation != t.until;
    case Wait::cluster:
      return b.cluster->generation != t.until;
    case Wait::products:
      return b.warpgroups[t.at.thread.x / 128]->done >= static_cast<int>(t.until);
    case Wait::change:
      return machine->changes > t.until;
    case Wait::sleep:
      return machine->tick >= t.until;
    default:
      return false;
  }
}

void make_ready(Warp& w, int lane) {
  w.waiting &= ~(1U << lane);
  w.ready |= 1U << lane;
  if (w.lanes[static_cast<std::size_t>(lane)]->wait == Wait::sleep) --w.sleepers;
}

template <typename F>
void for_lanes(std::uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

void refresh(Warp& w) {
  if (w.waiting == 0 || (w.seen == machine->changes && w.sleepers == 0)) return;
  w.seen = machine->changes;
  for_lanes(w.waiting, [&](int lane) {
    if (satisfied(*w.lanes[static_cast<std::size_t>(lane)])) make_ready(w, lane);
  });
}

Thread* any_of(const Warp& w, std::uint32_t lanes) {
  const int turn = static_cast<int>(chance() & 31);
  const std::uint32_t rotated = turn == 0 ? lanes : lanes >> turn | lanes << (32 - turn);
  return w.lanes[static_cast<std::size_t>((__builtin_ctz(rotated) + turn) & 31)];
}

void leave_for_scheduler() {
  ++machine->outcome.switches;
  pipit_switch_stacks(&running->stack_pointer, machine->scheduler);
}

// Other lanes of the warp go first where some can: on a GPU, too, they stay together mostly.
void leave() {
  Thread& t = *running;
  const std::uint32_t others = t.warp->ready & ~(1U << t.lane);
  if (others == 0 || (chance() & 63) == 0) {
    leave_for_scheduler();
    return;
  }
  ++machine->outcome.switches;
  Thread* next = any_of(*t.warp, others);
  set_running(next);
  pipit_switch_stacks(&t.stack_pointer, next->stack_pointer);
}

void leave_until_satisfied() {
  Warp& w = *running->warp;
  w.ready &= ~(1U << running->lane);
  w.waiting |= 1U << running->lane;
  leave();
}

void finish() {
  Thread& t = *running;
  t.where = nullptr;
  t.what = "its end";
  if (!t.sums.empty()) fail("a thread ends while products are in flight");
  t.finished = true;
  Warp& w = *t.warp;
  w.ready &= ~(1U << t.lane);
  w.finished |= 1U << t.lane;
  --w.block->live;
  --w.block->cluster->live;
  leave_barriers(*w.block);
  ++machine->changes;
}

// Where every fiber begins. Nothing may be thrown out of it: there is no caller.
[[noreturn]] void enter() {
  try {
    (*machine->body)();
    finish();
  } catch (const std::exception& e) {
    machine->outcome.error = e.what();
  }
  leave_for_scheduler();
  std::terminate();
}

Warp* any_warp() {
  const std::size_t n = machine->warps.size(), first = chance() % n;
  Warp* sleeper = nullptr;
  for (std::size_t k = 0; k < n; ++k) {
    Warp* w = machine->warps[(first + k) % n];
    if (w->finished == w->all) continue;
    refresh(*w);
    if (w->ready == 0) continue;
    if (w->asleep <= machine->tick) return w;
    if (sleeper == nullptr || w->asleep < sleeper->asleep) sleeper = w;
  }
  return sleeper;
}

bool wake(Wait kind) {
  bool any = false;
  for (Warp* w : machine->warps) {
    for_lanes(w->waiting, [&](int lane) {
      Thread& t = *w->lanes[static_cast<std::size_t>(lane)];
      if (t.wait != kind) return;
      make_ready(*w, lane);
      t.until = 0;  // satisfied
      any = true;
    });
  }
  return any;
}

// The copy or product that is due first: what is late becomes current only when no thread can go on, or by chance.
bool run_first_due() {
  const std::uint64_t copy = first_copy_due(), product = first_product_due();
  if (copy == kNothingDue && product == kNothingDue) return false;
  if (copy <= product) {
    run_first_copy();
  } else {
    run_first_product();
  }
  return true;
}

bool run_any_due() {
  const std::size_t copies = machine->copies.size(), n = copies + machine->multiplying.size();
  if (n == 0 || (chance() & 3) == 0) return false;
  const std::size_t i = chance() % n;
  return i < copies ? run_copy_if_due(i) : run_products_if_due(i - copies);
}

}  // namespace

void begin_fiber(Thread& thread) {
  if (free_stacks.empty()) {
    // MAP_NORESERVE: most of a stack is never touched.
    void* memory = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuard, PROT_NONE);
    free_stacks.push_back(static_cast<std::byte*>(memory) + kGuard);
  }
  thread.stack = free_stacks.back();
  free_stacks.pop_back();
  auto* top = reinterpret_cast<void**>(thread.stack + kStack);
  *--top = nullptr;  // instead of a return address, so that the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(&enter);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  thread.stack_pointer = top;
}

void end_fiber(Thread& thread) {
  if (thread.stack != nullptr) free_stacks.push_back(thread.stack);
  thread.stack = nullptr;
}

void perhaps_fall_behind(std::uint32_t one_of) {
  if (chance() % one_of != 0) return;
  if ((chance() & 3) != 0) {
    leave_for_scheduler();
    return;
  }
  Thread& t = *running;
  const std::uint64_t until = t.until;
  t.wait = Wait::sleep;
  t.until = machine->tick + (2U << (chance() & 7));
  ++t.warp->sleepers;
  leave_until_satisfied();
  t.wait = Wait::none;
  t.until = until;
}

void wait_for(Wait what) {
  Thread& t = *running;
  t.wait = what;
  while (!satisfied(t)) leave_until_satisfied();
  t.wait = Wait::none;
}

void wait_for_change() {
  running->until = machine->changes;
  wait_for(Wait::change);
}

void abandon(const char* error) {
  try {
    fail("{}", error);
  } catch (const std::exception& e) {
    machine->outcome.error = e.what();
  }
  leave_for_scheduler();
  std::terminate();
}

void meet(int kind, const char* what, std::uint32_t mask, void* payload, Together together) {
  perhaps_fall_behind(1024);
  Thread& t = *running;
  Warp& w = *t.warp;
  const std::uint32_t own = 1U << t.lane;
  if ((mask & own) == 0) fail("{}: lane {} is not in its own mask {:#x}", what, t.lane, mask);
  std::size_t i = 0;
  for (; i < w.meetings.size(); ++i) {
    const Meeting& m = w.meetings[i];
    if (m.mask == mask && m.kind == kind) break;
    if ((m.mask & mask) == 0) continue;
    const Thread& other = *w.lanes[static_cast<std::size_t>(__builtin_ctz(m.arrived))];
    fail(
        "lanes of a warp are in different instructions that they must execute together: {} (mask {:#x}) "
        "here, and {} "
        "(mask {:#x}) in lanes {:#x} at\n{}",
        what, mask, m.what, m.mask, m.arrived, lines_of(other.where));
  }
  if (i == w.meetings.size()) {
    w.meetings.emplace_back();
    w.meetings[i].mask = mask, w.meetings[i].kind = kind, w.meetings[i].what = what;
  }
  Meeting& m = w.meetings[i];
  m.arrived |= own;
  m.payloads[static_cast<std::size_t>(t.lane)] = payload;
  if (m.arrived == mask) {
    together(m.payloads.data(), mask);
    w.ready |= mask;
    w.meetings.erase(w.meetings.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  w.ready &= ~own;
  t.wait = Wait::warp;
  leave();
  t.wait = Wait::none;
}

void schedule() {
  std::uint64_t seen = machine->changes;
  int idle = 0;
  while (true) {
    ++machine->tick;
    run_any_due();
    Warp* w = any_warp();
    if (w == nullptr) {
      if ((chance() & 1) != 0 ? wake(Wait::sleep) || run_first_due() : run_first_due() || wake(Wait::sleep))
        continue;
      if (machine->changes != seen) idle = 0, seen = machine->changes;
      if (++idle < kIdleRounds && wake(Wait::change)) continue;
      fail("deadlock; threads wait:\n{}", states());
    }
    if ((chance() & 31) == 0) w->asleep = machine->tick + (1U << (chance() % 11));
    Thread* t = any_of(*w, w->ready);
    set_running(t);
    pipit_switch_stacks(&machine->scheduler, t->stack_pointer);
    // Another may have come back than the one that was begun with, of the same warp.
    running = nullptr;
    if (!machine->outcome.error.empty()) throw Error(machine->outcome.error);
    if (w->block->cluster->live == 0) return;
  }
}

}  // namespace pipit::internal::test::emulation
