// The per-layer timing tables of `profile` and `classify --profile`.
#pragma once

#include "apps/display/layer_rows.h"

namespace pipit::internal::apps {

enum class LayerOrder { order, ms, macs, name };

/// What of a table is shown.
struct TableView {
  LayerOrder sort = LayerOrder::order;  ///< the longest, the most work, or the first letter come first
  int top = 0;                          ///< this many rows, and a line about the others; 0: all
  int width = 0;                        ///< Table::str()
  bool memory = false;                  ///< also what each layer's weights and workspace take
};

/// Where rows have floors, also those, and what binds them.
std::string layer_table(const std::vector<LayerRow>& rows, const Profile& profile,
                        const TableView& view = {});
std::string group_table(const std::vector<LayerRow>& rows, const Profile& profile, GroupBy by,
                        const TableView& view);

/// Where in profile_summary() what explains a number begins.
inline constexpr std::size_t kSummaryIndent = 30;
/// What follows the table: sums, what no layer explains, the floor.
std::string profile_summary(const std::vector<LayerRow>& rows, const ExecutionPlan& plan,
                            const Profile& profile, const Ceilings& ceilings = {});
/// For users, where reference kernels, which are plain loops, take more than a hundredth of the layers' time: how much,
/// and which; else empty.
std::string reference_note(const std::vector<LayerRow>& rows, const Profile& profile);

/// "4 of 32 samples at a time: ...", or why all go together.
std::string describe(const MicroBatches& batches);

struct SortKey {
  std::string name;
  double ms = 0;
  std::int64_t macs = 0;
};
/// The positions of the rows that are shown, in their order.
std::vector<std::size_t> shown_rows(const std::vector<SortKey>& rows, const TableView& view);

}  // namespace pipit::internal::apps
