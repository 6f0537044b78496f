#include "tests/cuda/emulation/report.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <set>
#include <tuple>

namespace pipit::internal::test::emulation {

namespace {

// How far the program lies from where its file says.
std::uintptr_t load_offset() {
  static const std::uintptr_t offset = [] {
    std::uintptr_t found = 0;
    const auto first = [](dl_phdr_info* info, std::size_t, void* to) {
      *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
      return 1;  // the program comes first
    };
    dl_iterate_phdr(first, &found);
    return found;
  }();
  return offset;
}

// "function(parameters...) at file:line" of addr2line without what says nothing.
std::string shortened(const std::string& line) {
  const std::size_t at = line.rfind(" at ");
  if (at == std::string::npos) return "        " + line;
  std::string name = line.substr(0, std::min(line.find('('), at));
  const std::size_t scope = name.rfind("::");
  if (name.size() > 70 && scope != std::string::npos) name = "..." + name.substr(name.size() - 60);
  return "        " + name + line.substr(at);
}

std::string mbarrier_wait(const Thread& t, const Mbarrier& m) {
  return fmt::format(
      "waits for parity {} of the mbarrier at {}, which is in phase {}, {} of {} arrivals and {} bytes away "
      "from the next",
      t.parity, place(m.address), m.phase, m.pending, m.count, m.bytes);
}

std::string state_of(const Thread& t) {
  const Block& b = *t.warp->block;
  switch (t.wait) {
    case Wait::mbarrier:
      return mbarrier_wait(t, *b.barriers[t.until]);
    case Wait::named: {
      const NamedBarrier& n = b.named[t.address];
      return fmt::format("waits at barrier {}, where {} of {} threads are", t.address, n.arrived,
                         n.all ? b.live : n.expected);
    }
    case Wait::cluster:
      return fmt::format("waits at the cluster's barrier, where {} of {} threads are", b.cluster->arrived,
                         b.cluster->live);
    case Wait::products: {
      const Warpgroup& g = *b.warpgroups[t.at.thread.x / 128];
      const auto next = static_cast<std::size_t>(g.done - g.base);
      return fmt::format(
          "waits for products before number {}; {} are done, 128 threads issue the next, {} have", t.until,
          g.done, next < g.products.size() ? g.products[next]->threads : 0);
    }
    case Wait::warp:
      for (const Meeting& m : t.warp->meetings) {
        if ((m.arrived >> t.lane & 1) != 0)
          return fmt::format("{}: lanes {:#x} are there of {:#x}", m.what, m.arrived, m.mask);
      }
      return t.what;
    case Wait::change:
      return fmt::format("polls ({} {:#x})", t.what, t.address);
    default:
      return fmt::format("runs (last in {})", t.what);
  }
}

}  // namespace

std::uint32_t code_offset(const void* code) {
  return code == nullptr ? 0
                         : static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(code) - load_offset());
}
const void* code_at(std::uint32_t offset) {
  return offset == 0 ? nullptr : std::bit_cast<const void*>(load_offset() + offset);
}

std::string lines_of(const void* code) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (code == nullptr || length <= 0) return {};
  program[length] = 0;
  // A return address lies after the call.
  const std::string command =
      fmt::format("addr2line -Cfipse '{}' {:#x} 2>/dev/null", program, code_offset(code) - 1);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[2000];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    const std::string line(buffer);
    const bool ours = line.find("tests/cuda/emulation/") != std::string::npos &&
                      line.find("kernels.cuh") == std::string::npos;
    if (!ours && line.find("std::function") == std::string::npos) text += shortened(line);
  }
  pclose(pipe);
  return text;
}

std::string place(std::uint32_t address) {
  const std::uint32_t at = local(address);
  if (running != nullptr) {
    const Block& b = *running->warp->block;
    if (at >= b.dynamic && at < b.dynamic + b.dynamic_bytes) {
      const std::uint32_t aligned = (b.dynamic + 1023) & ~1023U;  // where kernels begin that want it so
      return fmt::format("{:#x} (dynamic + {}, or {} from the next multiple of 1024 on)", address,
                         at - b.dynamic, static_cast<int>(at - aligned));
    }
  }
  for (const auto& [key, variable] : machine->statics) {
    if (at >= kWindow + variable.offset && at < kWindow + variable.offset + variable.bytes)
      return fmt::format("{:#x} ({} + {})", address, variable.name, at - kWindow - variable.offset);
  }
  return fmt::format("{:#x} (no variable)", address);
}

std::string states() {
  using Line = std::pair<std::string, const void*>;
  std::map<Line, std::map<std::pair<unsigned, int>, std::uint32_t>> lines;  // block and warp: lanes
  Thread* const before = running;
  for (const Warp* w : machine->warps) {
    for (Thread* t : w->lanes) {
      if (t == nullptr || t->finished) continue;
      running = t;  // whose block's memory place() means
      lines[{state_of(*t), t->where}][{w->block->index.x, w->index}] |= 1U << t->lane;
    }
  }
  running = before;
  std::string text;
  int shown = 0;
  for (const auto& [line, warps] : lines) {
    if (++shown > 20) break;
    std::string who;
    for (const auto& [warp, lanes] : warps) {
      if (who.size() > 300) {
        who += " ...";
        break;
      }
      who += fmt::format(" block {} warp {}{};", warp.first, warp.second,
                         lanes == ~0U ? "" : fmt::format(" lanes {:#x}", lanes));
    }
    text += fmt::format("  {}\n   {}\n{}", line.first, who, lines_of(line.second));
  }
  return text + fmt::format("  {} copies are in flight\n", machine->copies.size());
}

void stop(const std::string& message) {
  std::string text = fmt::format("{}\n  seed {}", message, machine->how.seed);
  if (running != nullptr) {
    text += fmt::format(", block {} thread {} (warp {} lane {}), in {}\n{}", running->at.block.x,
                        running->at.thread.x, running->warp->index, running->lane, running->what,
                        lines_of(running->where));
  }
  throw Error(text);
}

}  // namespace pipit::internal::test::emulation
