/// @file
/// What a model computes in, with the options of that precision.
///
/// One idiom: a Precision where it has no options or these keep their defaults, else the struct of that precision.
///
///     options.precision = pipit::Precision::fp16;
///     options.precision = pipit::Int8{.plan = "plan.json", .keep = {"first=fp32"}};
///     options.precision = pipit::W4{.group = 64};
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pipit/export.h"
#include "pipit/types.h"

namespace pipit {

/// Precision::int8: INT8 with fixed scales.
struct Int8 {
  /// The file with the scales, which `pipit calibrate` or tools::calibrate() wrote for this model. A model that runs
  /// needs it.
  std::filesystem::path plan = {};
  /// "NAME=fp32", "NAME=fp16" or "NAME=bf16" for a layer that stays in floating point besides those that the plan
  /// keeps, "NAME=int8" for one that does not; "first" and "last" name the first and last layer with weights.
  std::vector<std::string> keep = {};
};

/// Precision::int8_dynamic: INT8 with scales of activations that are found at run time.
struct Int8Dynamic {
  /// A scale for each sample, so that its answer does not depend on the rest of the batch; else one for all.
  bool per_sample_scales = true;
};

/// Precision::w4: weights in 4 bits.
struct W4 {
  /// Neighbouring weights that share a scale, 32, 64 or 128; 0: 32 in convolutions, 128 in fully connected layers.
  std::int64_t group = 0;
};

/// A precision with its options. Made from a Precision or one of the structs above without naming this class.
class PIPIT_API ModelPrecision {
 public:
  /// Precision::fp32.
  ModelPrecision() = default;
  /// With the defaults of its options. Throws ArgumentError for a value that is no enumerator.
  ModelPrecision(Precision kind);
  /// Precision::int8.
  ModelPrecision(Int8 options);
  /// Precision::int8_dynamic.
  ModelPrecision(Int8Dynamic options);
  /// Precision::w4. Throws ArgumentError for another group.
  ModelPrecision(W4 options);

  /// Which one it is.
  Precision kind() const;
  /// precision_name() of that: "int8".
  std::string_view name() const;
  /// The options of Precision::int8; null for another kind. Valid as long as this value.
  const Int8* int8() const { return std::get_if<Int8>(&value_); }
  /// The same of Precision::int8_dynamic.
  const Int8Dynamic* int8_dynamic() const { return std::get_if<Int8Dynamic>(&value_); }
  /// The same of Precision::w4.
  const W4* w4() const { return std::get_if<W4>(&value_); }

 private:
  std::variant<Precision, Int8, Int8Dynamic, W4> value_ = Precision::fp32;
};

}  // namespace pipit
