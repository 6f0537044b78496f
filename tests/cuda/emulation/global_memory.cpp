#include "tests/cuda/emulation/global_memory.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <new>

#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/report.h"

namespace pipit::internal::test::emulation {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::array<int, 3> kFaults{SIGSEGV, SIGBUS, SIGFPE};

struct Allocation {
  std::size_t bytes;
  void* mapping;
  std::size_t mapped;
};
std::map<std::uintptr_t, Allocation> allocations;

// The last one that begins at the address or below.
const std::pair<const std::uintptr_t, Allocation>* below(std::uintptr_t address) {
  const auto it = allocations.upper_bound(address);
  return it == allocations.begin() ? nullptr : &*std::prev(it);
}

// A signal handler may not throw: it has the thread go on here, on this stack, since the thread's own may be full.
alignas(16) std::byte stack_of_faults[256 << 10], stack_of_handler[64 << 10];
std::uintptr_t fault_address = 0;

void on_fault() {
  const auto* near = below(fault_address);
  const auto stack = reinterpret_cast<std::uintptr_t>(running->stack);
  char text[200];
  if (fault_address < stack && fault_address + kPage >= stack) {
    std::snprintf(text, sizeof text, "the thread's stack overflows");
  } else if (near != nullptr && fault_address - near->first < near->second.mapped) {
    std::snprintf(text, sizeof text, "a fault at byte %zu of %zu of global memory",
                  static_cast<std::size_t>(fault_address - near->first), near->second.bytes);
  } else {
    std::snprintf(text, sizeof text, "a fault at address %#zx", static_cast<std::size_t>(fault_address));
  }
  abandon(text);
}

void handle(int signal, siginfo_t* info, void* context) {
  if (running == nullptr) {
    // Not a kernel's: as if there were no handler, when the instruction is repeated.
    std::signal(signal, SIG_DFL);
    return;
  }
  fault_address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  running->where = std::bit_cast<const void*>(registers[REG_RIP] + 1);  // a return address, as elsewhere
  registers[REG_RIP] = reinterpret_cast<greg_t>(&on_fault);
  registers[REG_RSP] = reinterpret_cast<greg_t>(stack_of_faults + sizeof stack_of_faults - 64 - 8);
}

}  // namespace

void check_global(const void* p, std::size_t bytes, const char* what) {
  const auto a = reinterpret_cast<std::uintptr_t>(p);
  const auto* found = below(a);
  if (found == nullptr || a + bytes > found->first + found->second.bytes)
    fail("{}: {} bytes of global memory at {} lie in no allocation", what, bytes, p);
}

void* allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + 15) / 16 * 16, pages = (rounded + kPage - 1) / kPage * kPage;
  void* mapping =
      mmap(nullptr, pages + 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(mapping);
  mprotect(first, kPage, PROT_NONE);
  mprotect(first + kPage + pages, kPage, PROT_NONE);
  std::byte* data = first + kPage + pages - rounded;
  allocations[reinterpret_cast<std::uintptr_t>(data)] = {bytes, mapping, pages + 2 * kPage};
  return data;
}

void release(void* data) {
  const auto it = allocations.find(reinterpret_cast<std::uintptr_t>(data));
  munmap(it->second.mapping, it->second.mapped);
  allocations.erase(it);
}

FaultsAreErrors::FaultsAreErrors() {
  stack_t stack{};
  stack.ss_sp = stack_of_handler;
  stack.ss_size = sizeof stack_of_handler;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < kFaults.size(); ++i) sigaction(kFaults[i], &action, &before_[i]);
}
FaultsAreErrors::~FaultsAreErrors() {
  for (std::size_t i = 0; i < kFaults.size(); ++i) sigaction(kFaults[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

}  // namespace pipit::internal::test::emulation
