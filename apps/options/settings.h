// Combinations of --precision, --batch, --threads and --streams, for commands that take lists of them.
#pragma once

#include "apps/options/options.h"

namespace pipit::internal::apps {

struct Setting {
  std::string precision;              ///< a key of precisions()
  std::optional<std::int64_t> batch;  ///< unset: 1, or what the file fixes
  int threads = 0;                    ///< not 0; of all streams together
  int streams = 1;                    ///< sessions of one plan that run at once
};

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
  /// Precisions outermost, then batches, threads and streams.
  std::vector<Setting> all() const;
};

/// `common` with precision and threads of the setting, of a stream those that it has at most, without what is for other
/// precisions.
CommonOptions common_options(const CommonOptions& common, const Setting& setting);

/// "fp32, batch 8, 2 threads", "fp32, batch 8, 2 threads, 2 streams".
std::string setting_text(const Setting& setting);

}  // namespace pipit::internal::apps
