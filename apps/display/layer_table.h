// What `profile` and `classify --profile` found, as tables.
#pragma once

#include <string>
#include <vector>

#include "pipit/profile.h"

namespace pipit::internal::apps {

enum class LayerOrder { order, ms, macs, name };

/// What of a table is shown.
struct TableView {
  LayerOrder sort = LayerOrder::order;  ///< the longest, the most work, or the first letter come first
  int top = 0;                          ///< this many rows, and a line about the others; 0: all
  int width = 0;                        ///< Table::str()
  bool memory = false;                  ///< also what each layer's weights and workspace take
};

/// Where layers have floors, also those, and what binds them.
std::string layer_table(const tools::ModelProfile& profile, const TableView& view = {});
/// The same of ModelProfile::groups.
std::string group_table(const tools::ModelProfile& profile, tools::GroupBy by, const TableView& view);
/// The same layers in several settings: their times, and how many times as fast as in the first the others are, for
/// one sample. Sums and whole runs are the last rows.
std::string joined_table(const tools::ProfileResult& result, const TableView& view);
/// Memory of the model and of the process; explanations are broken between words at `width` (0: whole).
std::string memory_table(const tools::ModelProfile& profile, int width);

/// Where in profile_summary() what explains a number begins.
inline constexpr std::size_t kSummaryIndent = 30;
/// What follows the table: sums, what no layer explains, the floor.
std::string profile_summary(const tools::ModelProfile& profile);

}  // namespace pipit::internal::apps
