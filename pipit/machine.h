/// @file
/// What a machine offers to pipit, and its performance ceilings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipit/export.h"
#include "pipit/load_options.h"
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

/// What this build is, one line for each: version, CPU threads that this process may use, image decoders, CUDA with its
/// devices and libraries, as `pipit --version` prints it. Without a newline at the end. Loads the GPU's libraries.
/// Throws Error if PIPIT_ISA asks for what the CPU does not have. May be called from any thread.
PIPIT_API std::string build_text();

/// How often per second something is done, measured in several rounds.
struct Rate {
  double best = 0;    ///< the fastest round; floors use it
  double median = 0;  ///< of the rounds
  double p10 = 0;     ///< one round in ten was slower
  int rounds = 0;     ///< 0: not measured

  /// The distance from a slow round to the best one, relative to the best.
  double spread() const { return best > 0 ? (best - p10) / best : 0; }
};

/// Multiply-accumulates of one kind on one kind of unit.
struct ArithmeticCeiling {
  std::string products;  ///< "fp32", "fp16", "bf16", "int8" or "int16"
  std::string unit;      ///< an instruction set, or "tensor cores"
  Rate flops;            ///< operations per second, two for each multiply-accumulate; operands in registers
  Rate tile;             ///< CPU: rate of the convolution tile with operands in the first-level cache
};

/// One level of memory. Rates in bytes per second, the sum of bytes read and written.
struct MemoryCeiling {
  std::string name;        ///< "L1", "L2", "L3", "memory"
  std::int64_t bytes = 0;  ///< available there to all threads together; 0: unlimited
  Rate read;               ///< reading only
  Rate write;              ///< writing only
  Rate copy;               ///< one byte read for each that is written
  Rate add;                ///< two bytes read for each that is written
};

/// The ceilings of one device (docs/floors.md).
struct MachineCeilings {
  DeviceKind device = DeviceKind::cpu;  ///< the measured device
  std::string machine;      ///< what the rates depend on: CPU, threads, instruction set; or GPU and driver
  int threads = 0;          ///< of a CPU
  std::string measured_at;  ///< UTC, 2026-11-23T12:30:00Z
  double seconds = 0;       ///< duration of the measurement
  std::vector<ArithmeticCeiling> arithmetic;  ///< for all kinds that the device supports
  std::vector<MemoryCeiling> memory;          ///< nearest first
  Rate launches;                              ///< GPU: consecutive kernels without work
  Rate synchronizations;  ///< GPU: how often the host can launch a kernel and wait for its end
  double spread = 0;      ///< the largest spread of rates that floors use; above 0.15 the machine was busy

  /// The largest rate of `products`, in operations per second; 0 if there is none.
  PIPIT_API double flops(const std::string& products) const;
};

/// Which ceilings to measure or read.
struct CeilingsOptions {
  /// Of GPUs GPU 0. DeviceOptions::gpus and allow_fallback are an ArgumentError.
  DeviceOptions device = {};
  bool kept = false;  ///< read stored ceilings, without measuring
  /// Called after each measurement with the number of measurements done and of all measurements. An exception from it
  /// ends the work, and nothing is stored. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// Ceilings and their file.
struct CeilingsResult {
  MachineCeilings ceilings;
  double days = 0;                 ///< their age
  int kept_days = 0;               ///< days after which they are measured again
  std::filesystem::path file;      ///< that stores them; empty without a cache folder
  std::vector<std::string> notes;  ///< notes for the user
  std::string json;                ///< all of it, as `pipit ceilings --json` writes it (docs/json.md)
};

/// Measures the ceilings of this machine, which takes some seconds, and stores them in the user's cache folder for
/// profile_model(); or returns stored ceilings. Throws ArgumentError for invalid options, Error if the device cannot be
/// used, if the file cannot be written or, with CeilingsOptions::kept, if it has none for this machine.
PIPIT_API CeilingsResult measure_ceilings(const CeilingsOptions& options = {});

}  // namespace pipit::tools
