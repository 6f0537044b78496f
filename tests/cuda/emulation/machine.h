// The state of a run. The files beside this one each do a part of what a GPU does with it:
//   fibers         threads as fibers, in an order of chance
//   report         errors, with places in the kernel and in shared memory
//   order          which access comes before which in shared memory
//   shared_memory  addresses, loads and stores, atomics; cp.async
//   barriers       mbarriers, barriers of blocks and clusters, registers of warps
//   copy_engine    bulk copies while threads go on; tensor_copies: of boxes
//   matrix_unit    products while threads go on; wgmma: as threads see them
//   warps          what the lanes of a warp do together
//   launch         blocks and clusters, from the first to the last
//   global_memory  guarded allocations, faults
//   driver         tensor maps as the driver makes them
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda/emulation/emulation.h"

namespace pipit::internal::test::emulation {

// A block's shared memory begins at kWindow with static variables, for which kStatics bytes are set aside. With as much
// dynamic memory as there may be it ends below 2^18: descriptors of wgmma have no more bits.
constexpr std::uint32_t kWindow = 0x400;
constexpr std::uint32_t kStatics = 25 << 10;
constexpr std::uint32_t kMaxShared = 227 << 10;
constexpr int kRankBit = 24;

inline std::uint32_t local(std::uint32_t address) {
  return address & ((1U << kRankBit) - 1);
}

/// What each actor has done at the latest: an actor is a warp, or an mbarrier for the copies that count on it.
class Clocks {
 public:
  std::uint32_t of(std::uint32_t actor) const { return actor < values_.size() ? values_[actor] : 0; }
  void raise(std::uint32_t actor, std::uint32_t to) {
    if (actor >= values_.size()) values_.resize(actor + 1);
    if (values_[actor] < to) values_[actor] = to;
  }
  void join(const Clocks& other) {
    if (other.values_.size() > values_.size()) values_.resize(other.values_.size());
    for (std::size_t i = 0; i < other.values_.size(); ++i)
      values_[i] = values_[i] < other.values_[i] ? other.values_[i] : values_[i];
  }

 private:
  std::vector<std::uint32_t> values_;
};

/// The latest store to a word of shared memory.
struct Written {
  std::uint32_t actor = 0, clock = 0;
  std::uint32_t where = 0;   ///< in the code
  std::uint32_t thread = 0;  ///< rank << 16 | thread; of st.async rank + 1 << 16
  std::uint64_t time = 0;    ///< of a thread's store, 0: of the copy engine's
};

enum class Wait { none, mbarrier, named, cluster, products, change, sleep, warp };

struct Warp;
struct Block;
struct Cluster;

struct CpAsync {
  std::uint32_t to;
  const void* from;
  int bytes, bytes_there;
  const void* where;
};

/// Accumulators of a thread that products are in flight for.
struct Sums {
  void* registers;
  int count;
  bool integers;
  int last;  ///< the latest product's number
  std::array<float, 128> values;
};

struct Thread {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;
  Warp* warp = nullptr;
  int lane = 0;
  bool finished = false;
  Coordinates at;
  // The emulated instruction, and where in the code it stands.
  const char* what = "start";
  const void* where = nullptr;
  // What it waits for: a barrier's generation, a tick, a number of products, a change.
  Wait wait = Wait::none;
  std::uint64_t until = 0;
  std::uint32_t address = 0, parity = 0;
  const void* polled = nullptr;
  std::uint64_t polled_change = 0;
  std::uint64_t fenced_at = 0;
  std::vector<CpAsync> open_copies;
  std::deque<std::vector<CpAsync>> copy_groups;
  // Products: numbers issued and waited for, and after which number each group ends.
  int issued = 0, awaited = 0;
  std::vector<int> commits;
  std::vector<std::unique_ptr<Sums>> sums;
  bool products_fenced = false;
  std::vector<std::pair<int, std::array<const std::uint32_t*, 4>>> left_registers;
  bool cluster_arrived = false;
  std::uint64_t cluster_generation = 0;
};

/// An instruction that lanes of a warp meet in.
struct Meeting {
  std::uint32_t mask = 0, arrived = 0;
  int kind = 0;
  const char* what = "";
  std::array<void*, 32> payloads{};
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  std::array<Thread*, 32> lanes{};
  std::uint32_t ready = 0, waiting = 0, finished = 0, all = 0;  // lanes
  std::uint64_t seen = 0, asleep = 0;
  std::uint32_t actor = 0;
  Clocks clocks;
  Clocks initialized;  ///< of the latest fence.mbarrier_init
  std::vector<Meeting> meetings;
  int registers = 0, sleepers = 0;
  int recorded = 0;  ///< products whose reads count as over
};

struct Product {
  bool integers;
  int n;
  bool left_in_registers, accumulate;
  bool right_unread = false;
  std::uint64_t left, right;  ///< descriptors
  int threads = 0, warps = 0;
  std::array<int, 4> threads_of_warp{};
  std::uint64_t due = 0;
  std::array<std::array<std::uint32_t, 4>, 128> left_registers;
  std::array<Sums*, 128> sums{};
  const void* where = nullptr;
};

struct Warpgroup {
  Block* block = nullptr;
  int first = 0;           ///< thread
  int base = 0, done = 0;  ///< number of products.front(), and how many are done
  std::deque<std::unique_ptr<Product>> products;
  bool listed = false;
};

struct Mbarrier {
  std::uint32_t address = 0;
  std::uint32_t count = 0, pending = 0;
  std::int64_t bytes = 0;
  std::uint64_t phase = 0;
  std::uint32_t actor = 0;
  Clocks arriving, ended;
  std::uint32_t made_by = 0, made_at = 0;  ///< actor, clock
};

struct NamedBarrier {
  int expected = 0, arrived = 0;
  bool all = false;  ///< of the block's threads that have not ended
  std::uint64_t generation = 0;
  Clocks arriving, ended;
};

struct Block {
  Cluster* cluster = nullptr;
  int rank = 0;
  Index index;
  std::byte* memory = nullptr;  ///< from kWindow on
  std::uint32_t dynamic = 0, dynamic_bytes = 0, bytes = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  std::vector<std::unique_ptr<Mbarrier>> barriers;
  std::unordered_map<std::uint32_t, Clocks> released;  ///< by atomics, at an address
  std::array<NamedBarrier, 16> named;
  int live = 0;
  // The latest accesses of every word; reads by warp.
  std::vector<Written> written;
  std::vector<std::uint32_t> read, read_where;
  std::vector<std::uint64_t> read_time;  ///< by threads; 0: by the matrix unit
};

struct Cluster {
  unsigned id = 0;
  std::vector<std::unique_ptr<Block>> blocks;
  int live = 0, arrived = 0, threads = 0;
  std::uint64_t generation = 0;
  Clocks arriving, ended;
};

struct Piece {
  std::byte* to;
  const std::byte* from;  ///< null: zeros
  std::uint32_t bytes;
};
/// A copy arrives in parts, each of which counts on the barrier.
struct Copy {
  std::vector<Piece> pieces;
  std::vector<std::pair<std::size_t, std::uint32_t>> parts;  ///< the piece after each, bytes
  std::size_t part = 0, piece = 0;
  Block* block = nullptr;  ///< that it goes to
  Mbarrier* barrier = nullptr;
  std::uint64_t due = 0;
  const void* where = nullptr;
  std::vector<std::byte> words;  ///< of st.async
};

struct StaticVariable {
  std::uint32_t offset;
  std::size_t bytes;
  std::string name;
};

struct Machine {
  Launch how;
  const std::function<void()>* body = nullptr;
  Outcome outcome;
  std::uint64_t random = 1;
  void* scheduler = nullptr;  ///< its stack pointer while a thread runs
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<Warp*> warps;
  std::vector<std::unique_ptr<Copy>> copies;
  std::vector<Warpgroup*> multiplying;
  std::vector<std::string> actors{"nobody"};
  std::unordered_map<const void*, Clocks> released;  ///< by atomics in global memory
  std::map<const void*, StaticVariable> statics;
  std::uint32_t statics_bytes = 0;
  std::uint64_t tick = 0;     ///< turns of the scheduler
  std::uint64_t changes = 1;  ///< of anything that others may wait for
  std::uint64_t stores = 1;   ///< and fences, in their order
};

/// The machine of the run in progress, and the thread that runs; null while the scheduler does.
extern Machine* machine;
extern Thread* running;

inline std::uint32_t chance() {
  std::uint64_t& x = machine->random;  // xorshift64*
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return static_cast<std::uint32_t>(x * 0x2545F4914F6CDD1DULL >> 32);
}

/// That a thread has at first: as many as fit where the launch does not say (64 K a block, 255 a thread).
inline int registers_of_thread(const Launch& how) {
  const int threads = static_cast<int>(how.block.x * how.block.y * how.block.z);
  const int fit = (64 << 10) / threads / 8 * 8;
  return how.registers != 0 ? how.registers : fit < 255 ? fit : 255;
}

/// At the beginning of an emulated instruction: where the kernel calls it.
#define PIPIT_EMULATES(text) (running->where = __builtin_return_address(0), running->what = (text))

}  // namespace pipit::internal::test::emulation
