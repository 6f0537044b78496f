// Combinations of --precision, --batch, --threads and --streams, for commands that take lists of them.
#pragma once

#include "apps/options/options.h"
#include "pipit/timing.h"

namespace pipit::internal::apps {

struct SettingLists {
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::int64_t> batches;
  std::vector<int> threads = {0};
  std::vector<int> streams;  ///< empty: one run after the other

  void add_to(CLI::App& command);
  void add_streams_to(CLI::App& command);
  /// CommonOptions::check_precision() for each precision; an option of one is for that one only. Throws
  /// CLI::ValidationError.
  void check(const CommonOptions& common) const;
  /// All but streams; the options of each precision are those of `common`.
  void add_to(tools::TimingOptions& options, const CommonOptions& common) const;
  /// Of combinations, without streams.
  std::size_t count() const;
};

}  // namespace pipit::internal::apps
