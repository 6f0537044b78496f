// The ceilings of this machine, and the file in the user's cache folder that keeps them.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/platform/ceilings.h"
#include "pipit/detail/bf16_gain.h"

namespace pipit::internal::detail {

/// Kept ceilings are used for this many days: microcode, cooling and neighbours change.
inline constexpr int kMaxDays = 30;

struct KeptCeilings {
  Ceilings ceilings;    ///< known() where some fit
  std::string problem;  ///< else why not, for a note
  double days = 0;      ///< how old they are
};

/// ceilings.json in cache_folder(); empty where there is no such folder.
std::filesystem::path ceilings_file();

/// What the file holds for this device. Ceilings of other devices, threads or instruction sets, those older than
/// kMaxDays and those from the future are not used. Throws nothing for what a file may hold.
KeptCeilings kept_ceilings(const std::filesystem::path& file, DeviceKind device, int gpu, int threads);

/// Measures them. Throws Error where the device cannot be used.
Ceilings measure_ceilings(DeviceKind device, int gpu, int threads, const CeilingsProgress& progress = {});

/// Makes the file's folder, before anything is measured for it. Throws Error, beginning with the path, where the file
/// could not be written.
void prepare_ceilings_file(const std::filesystem::path& file);

/// Puts them into the file, beside those of others; of this device they replace what is there. What is no file of
/// ceilings is replaced. Returns why other processes may have changed it at the same time (FileLock), or nothing.
/// Throws Error, beginning with the path.
std::string keep_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

/// bf16_gain() on this machine, by `measured` ceilings; if they are not known by kept ones, where there are
/// some.
std::optional<Bf16Gain> bf16_gain_here(const ExecutionPlan& plan, const Ceilings& measured = {});

/// Kept ones, or measured ones, which are not kept; before that `note`, unless it is empty, is told why.
Ceilings machine_ceilings(DeviceKind device, int gpu, int threads,
                          const std::function<void(const std::string&)>& note);

}  // namespace pipit::internal::detail
