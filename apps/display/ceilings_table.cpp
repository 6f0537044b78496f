#include "apps/display/ceilings_table.h"

#include <fmt/format.h>

#include "apps/display/table.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

// 1e9 a second; nothing for what was not measured.
std::string giga(double rate) {
  return rate > 0 ? fmt::format("{:.4g}", 1e-9 * rate) : "";
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

std::string start_line(const char* what, const tools::Rate& rate) {
  return fmt::format("{:<14} {:9.2f} us   median {:.2f}, nine of ten within {:.2f}\n", what, 1e6 / rate.best,
                     1e6 / rate.median, 1e6 / rate.p10);
}

}  // namespace

std::string ceilings_table(const tools::MachineCeilings& ceilings, int width) {
  using enum Table::Align;
  Table arithmetic({{"products"},
                    {"unit"},
                    {"GFLOP/s", right},
                    {"median", right, 2},
                    {"spread", right, 3},
                    {"rounds", right, 4},
                    {"tile GFLOP/s", right, 1}});
  for (const tools::ArithmeticCeiling& a : ceilings.arithmetic) {
    arithmetic.add({a.products, a.unit, giga(a.flops.best), giga(a.flops.median), percent(a.flops.spread()),
                    fmt::format("{}", a.flops.rounds), giga(a.tile.best)});
  }
  Table memory({{"memory"},
                {"holds", right},
                {"read GB/s", right},
                {"median", right, 2},
                {"spread", right, 3},
                {"write GB/s", right},
                {"copy GB/s", right, 4},
                {"add GB/s", right, 5}});
  for (const tools::MemoryCeiling& m : ceilings.memory) {
    memory.add({m.name, m.bytes > 0 ? mebibytes(static_cast<std::size_t>(m.bytes)) : "", giga(m.read.best),
                giga(m.read.median), percent(m.read.spread()), giga(m.write.best), giga(m.copy.best),
                giga(m.add.best)});
  }
  std::string text = arithmetic.str(0, width) + "\n" + memory.str(0, width) + "\n";
  if (ceilings.launches.best > 0) text += start_line("launch", ceilings.launches);
  if (ceilings.synchronizations.best > 0) text += start_line("synchronize", ceilings.synchronizations);
  return text;
}

}  // namespace pipit::internal::apps
