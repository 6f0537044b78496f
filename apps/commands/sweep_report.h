// What the sweeps say.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/display/terminal.h"
#include "pipit/sweep.h"

namespace pipit::internal::apps {

/// Summaries, means by extents, then the `top` rows whose speed-ups over the first base have the highest lower ends.
/// Tables drop low-ranked columns to fit `width` characters; 0: no limit.
std::string conv_table(const tools::ConvSweep& sweep, std::size_t top, int width);
/// Geometric means of speed-ups, input channels over image sizes, a map for each summary. Empty where nothing was
/// measured.
std::string conv_svg(const tools::ConvSweep& sweep);

std::string sparsity_table(const tools::SparsitySweep& sweep, int width);
/// Time against what is left of the output (1 - relative error) of all rows of one layer and precision; the fitted
/// weights' error where there is one. Empty where nothing was measured.
std::string sparsity_svg(const tools::SparsitySweep& sweep);

/// The exit code of a sweep. Where none of the rows was measured it says on stderr why the first was not. `failed`: as
/// ConvSweep::failed.
template <typename Row>
int exit_of_rows(const std::vector<Row>& rows, bool failed) {
  const bool measured = std::ranges::any_of(rows, [](const Row& row) { return row.problem.empty(); });
  if (measured || rows.empty()) return kExitOk;
  std::fflush(stdout);
  print_error("nothing was measured: " + rows[0].problem.substr(0, rows[0].problem.find('\n')));
  return failed ? kExitRuntime : kExitUnsupported;
}

}  // namespace pipit::internal::apps
