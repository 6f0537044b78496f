#include "pipit/precision.h"

#include <fmt/format.h>

#include <utility>

#include "pipit/error.h"

namespace pipit {

namespace {

std::variant<Precision, Int8, Int8Dynamic, W4> with_defaults(Precision kind) {
  switch (kind) {
    case Precision::fp32:
    case Precision::fp16:
    case Precision::bf16:
    case Precision::w8:
      return kind;
    case Precision::int8:
      return Int8{};
    case Precision::int8_dynamic:
      return Int8Dynamic{};
    case Precision::w4:
      return W4{};
  }
  throw ArgumentError(
      fmt::format("precision is {}; expected an enumerator of Precision", static_cast<int>(kind)));
}

W4 checked(W4 options) {
  const std::int64_t group = options.group;
  if (group != 0 && group != 32 && group != 64 && group != 128)
    throw ArgumentError(fmt::format("W4::group is {}; expected 32, 64 or 128, or 0", group));
  return options;
}

}  // namespace

ModelPrecision::ModelPrecision(Precision kind) : value_(with_defaults(kind)) {}
ModelPrecision::ModelPrecision(Int8 options) : value_(std::move(options)) {}
ModelPrecision::ModelPrecision(Int8Dynamic options) : value_(options) {}
ModelPrecision::ModelPrecision(W4 options) : value_(checked(options)) {}

Precision ModelPrecision::kind() const {
  if (int8() != nullptr) return Precision::int8;
  if (int8_dynamic() != nullptr) return Precision::int8_dynamic;
  if (w4() != nullptr) return Precision::w4;
  return std::get<Precision>(value_);
}

std::string_view ModelPrecision::name() const {
  return precision_name(kind());
}

}  // namespace pipit
