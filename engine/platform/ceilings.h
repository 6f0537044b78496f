// What a machine can do at best: what the times of layers are held against (docs/floors.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/platform/isa.h"
#include "engine/platform/measured_rate.h"
#include "engine/platform/products.h"
#include "pipit/types.h"

namespace pipit::internal {

/// Multiply-accumulates of one kind on one kind of unit.
struct ArithmeticCeiling {
  Products products = Products::fp32;
  std::string unit;    ///< an instruction set (isa_name), or "tensor cores"
  MeasuredRate flops;  ///< operations per second, two for each multiply-accumulate; operands in registers
  MeasuredRate tile;   ///< on a CPU: of the tile of convolutions on operands in the first-level cache
};

/// One level of the memories that operands come from. Bytes per second; what is read and what is written add up.
struct MemoryCeiling {
  std::string name;        ///< "L1", "L2", "L3", "memory"
  std::int64_t bytes = 0;  ///< that all threads together find there; 0: as many as there are
  MeasuredRate read, write;
  MeasuredRate copy, add;  ///< one and two bytes read for each that is written

  /// The lower bound, in milliseconds, of reading and writing that many bytes.
  double floor_ms(double read_bytes, double written_bytes) const;
};

/// Called after each measurement with how many are done, and how many there are.
using CeilingsProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// The ceilings of one device.
struct Ceilings {
  DeviceKind device = DeviceKind::cpu;
  std::string machine;      ///< what they depend on: machine_identity()
  int threads = 0;          ///< CPU
  std::string measured_at;  ///< UTC, 2026-11-23T12:30:00Z
  double seconds = 0;       ///< that measuring took
  std::vector<ArithmeticCeiling> arithmetic;
  std::vector<MemoryCeiling> memory;  ///< nearest first
  /// GPU only, per second: consecutive kernels without work, and how often the host can start one and
  /// learn that it is done.
  MeasuredRate launches;
  MeasuredRate synchronizations;

  bool known() const { return !arithmetic.empty() && !memory.empty(); }
  /// The ceiling of these products on `isa`; the fastest where none is given or it was not measured. Null: none.
  const ArithmeticCeiling* find(Products products, std::optional<Isa> isa = std::nullopt) const;
  /// The largest MeasuredRate::spread() of what floors are made of.
  double spread() const;
};

}  // namespace pipit::internal
