// Decisions of a Tuner in a JSON file, for later processes. One file may hold several devices.
//
//   {"format": "pipit tuning cache 2",
//    "devices": {DEVICE: {GEOMETRY: {"kernel": "tile", "variant": "", "scope": "all" or "load",
//                                    "timed": [{"kernel": ..., "variant": ..., "ms": ...}]}}}}
//
// DEVICE is Tuner::device_key, GEOMETRY node_key. "problem" stands in the place of "ms" for a kernel without a time.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "engine/plan/tuner.h"

namespace pipit::internal {

using TuningCache = std::map<std::string, Tuner::Decisions>;

/// The decisions in the file; none when it does not exist. Throws Error, beginning with the path, when it cannot be
/// read or holds anything but a tuning cache.
TuningCache read_tuning_cache(const std::filesystem::path& path);

/// Adds the decisions to what the file holds, replacing those for the same device and geometry, and makes the folders
/// that lead to it. What is there and is no tuning cache is replaced. Processes that add to one file at a time lose
/// nothing (FileLock); where that cannot be had, what it says of it is returned. Throws Error, beginning with the path.
std::string merge_tuning_cache(const std::filesystem::path& path, const TuningCache& decisions);

}  // namespace pipit::internal
