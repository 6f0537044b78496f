/// @file
/// What a machine gives pipit to work with, and what it can do at best.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipit/export.h"
#include "pipit/types.h"

namespace pipit::tools {

/// One thing that was looked at.
struct Finding {
  std::string name;    ///< "instruction sets"
  std::string value;   ///< what is there, and what of it is used
  std::string advice;  ///< what to do about it; empty where nothing needs to be done
};

/// What was found of this machine, this build and this environment.
struct MachineFacts {
  std::vector<Finding> findings;  ///< in the order in which `pipit doctor` shows them
  std::string json;               ///< all of it, as `pipit doctor --json` writes it (docs/json.md)
};

/// CPUs and what limits them, instruction sets, caches, memory, clock, load, image decoders, GPU with its libraries,
/// the tuning cache, ceilings. Nothing is measured. Loads the GPU's libraries. What the machine lacks is a finding, not
/// an error. May be called from any thread.
PIPIT_API MachineFacts examine_machine();

/// How often per second something is done, measured in several rounds.
struct Rate {
  double best = 0;    ///< what floors are made of: nothing faster was seen
  double median = 0;  ///< of the rounds
  double p10 = 0;     ///< one round in ten was slower
  int rounds = 0;     ///< 0: not measured

  /// How far the best round lies above a slow one, over the best.
  double spread() const { return best > 0 ? (best - p10) / best : 0; }
};

/// Multiply-accumulates of one kind on one kind of unit.
struct ArithmeticCeiling {
  std::string products;  ///< "fp32", "fp16", "bf16", "int8" or "int16"
  std::string unit;      ///< an instruction set, or "tensor cores"
  Rate flops;            ///< operations per second, two for each multiply-accumulate; operands in registers
  Rate tile;             ///< on a CPU: of the tile of convolutions on operands in the first-level cache
};

/// One level of the memories that operands come from. Rates in bytes per second; what is read and written adds up.
struct MemoryCeiling {
  std::string name;        ///< "L1", "L2", "L3", "memory"
  std::int64_t bytes = 0;  ///< that all threads together find there; 0: as many as there are
  Rate read;               ///< reading only
  Rate write;              ///< writing only
  Rate copy;               ///< one byte read for each that is written
  Rate add;                ///< two bytes read for each that is written
};

/// The ceilings of one device (docs/floors.md).
struct MachineCeilings {
  DeviceKind device = DeviceKind::cpu;  ///< whose they are
  std::string machine;      ///< what they depend on: CPU, threads, instruction set; or GPU and driver
  int threads = 0;          ///< of a CPU
  std::string measured_at;  ///< UTC, 2026-11-23T12:30:00Z
  double seconds = 0;       ///< that measuring took
  std::vector<ArithmeticCeiling> arithmetic;  ///< as far as the device has them
  std::vector<MemoryCeiling> memory;          ///< nearest first
  Rate launches;                              ///< GPU: consecutive kernels without work
  Rate synchronizations;  ///< GPU: how often the host can start one and learn that it is done
  double spread = 0;      ///< the largest of what floors are made of: above 0.15 something else ran

  /// The largest rate of these products, in operations per second; 0 where there is none.
  PIPIT_API double flops(const std::string& products) const;
};

/// Which ceilings are asked for.
struct CeilingsOptions {
  DeviceKind device = DeviceKind::cpu;  ///< of a GPU the first one
  int threads = 0;                      ///< CPU; 0: all that this process may use
  bool kept = false;                    ///< those that were kept, without measuring
  /// Called after each measurement with how many are done, and how many there are. What it throws ends the work, and
  /// nothing is kept. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Ceilings and where they are kept.
struct CeilingsResult {
  MachineCeilings ceilings;
  double days = 0;                 ///< how old they are
  int kept_days = 0;               ///< how long they are used
  std::filesystem::path file;      ///< that keeps them; empty where there is no cache folder
  std::vector<std::string> notes;  ///< what a user should know
  std::string json;                ///< all of it, as `pipit ceilings --json` writes it (docs/json.md)
};

/// Measures what this machine can do at best, in some seconds, and keeps it in the user's cache folder for
/// profile_model(); or gives what is kept. Throws Error where the device cannot be used, the file cannot be written or,
/// with CeilingsOptions::kept, holds nothing that fits.
PIPIT_API CeilingsResult measure_ceilings(const CeilingsOptions& options = {});

}  // namespace pipit::tools
