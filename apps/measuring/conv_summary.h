// What the rows of `pipit sweep conv` come to: geometric means, tables and pictures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/measuring/conv_rows.h"

namespace pipit::internal::apps {

/// The mean of the speed-ups of some rows.
struct GeometricMean {
  std::size_t rows = 0;
  double mean = 0;  ///< 0 without rows
  /// At 95 %, of all layers of which these are taken for a sample (Student's, of logarithms). 0 with fewer than two.
  double low = 0, high = 0;
};

/// The summary of the rows of one precision and backend against one base.
struct ConvSummary {
  std::string precision, backend, base;
  std::size_t problems = 0;  ///< rows where either did not run
  GeometricMean all;
  GeometricMean cached;          ///< on a GPU, operands in its second-level cache
  GeometricMean share_of_limit;  ///< of floors in times, where there are floors
  std::size_t faster = 0;        ///< of which the whole interval is more than kPlaceEffect above 1
  std::size_t slower = 0;        ///< or below
  struct Part {
    std::string extent;  ///< as the row's JSON names it: "in"
    std::int64_t value;
    GeometricMean mean;
  };
  std::vector<Part> parts;    ///< by each extent that has more than one value, in its order
  std::vector<ConvRow> best;  ///< by image size, the one whose speed-up is the largest at its lower end

  /// "int8 against cudnn".
  std::string title() const;
};
/// A precision by the fastest of its kernels is held against all of `bases` but itself.
std::vector<ConvSummary> summaries(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases);

/// Summaries, means by extents, then the `top` rows whose speed-ups over the first of `bases` have the highest lower
/// ends.
std::string conv_table(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases,
                       std::size_t top, int width);
nlohmann::ordered_json summaries_json(const std::vector<ConvRow>& rows,
                                      const std::vector<std::string>& bases);
/// Geometric means of speed-ups, input channels over image sizes, a map for each summary. Empty where nothing was
/// measured.
std::string conv_svg(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases);

}  // namespace pipit::internal::apps
