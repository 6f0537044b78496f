// How values of pipit look in Python: enumerations are the words that the command uses, shapes are tuples.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pipit/pipit.h"

namespace pipit::internal::python {

namespace nb = nanobind;

/// All values of an enumeration with their words.
template <typename E>
struct Words;

template <>
struct Words<DeviceKind> {
  static constexpr std::pair<std::string_view, DeviceKind> all[] = {{"cpu", DeviceKind::cpu},
                                                                    {"cuda", DeviceKind::cuda}};
};
template <>
struct Words<Precision> {
  static constexpr std::pair<std::string_view, Precision> all[] = {
      {"fp32", Precision::fp32}, {"fp16", Precision::fp16}, {"bf16", Precision::bf16},
      {"int8", Precision::int8}, {"w8", Precision::w8},     {"int8-dynamic", Precision::int8_dynamic},
      {"w4", Precision::w4}};
};
template <>
struct Words<Tuning> {
  static constexpr std::pair<std::string_view, Tuning> all[] = {{"by_order", Tuning::by_order},
                                                                {"all", Tuning::all}};
};
template <>
struct Words<ScoreKind> {
  static constexpr std::pair<std::string_view, ScoreKind> all[] = {
      {"logits", ScoreKind::logits},
      {"softmax", ScoreKind::softmax},
      {"log-softmax", ScoreKind::log_softmax},
      {"sigmoid", ScoreKind::sigmoid},
      {"sigmoid-logits", ScoreKind::sigmoid_logits}};
};
template <>
struct Words<tools::Verdict> {
  static constexpr std::pair<std::string_view, tools::Verdict> all[] = {
      {"proven", tools::Verdict::proven},
      {"not proven", tools::Verdict::not_proven},
      {"broken", tools::Verdict::broken}};
};
template <>
struct Words<tools::JudgeBy> {
  static constexpr std::pair<std::string_view, tools::JudgeBy> all[] = {{"labels", tools::JudgeBy::labels},
                                                                        {"model", tools::JudgeBy::model}};
};
template <>
struct Words<tools::QuantizeTarget> {
  static constexpr std::pair<std::string_view, tools::QuantizeTarget> all[] = {
      {"pipit", tools::QuantizeTarget::pipit},
      {"tensorrt", tools::QuantizeTarget::tensorrt},
      {"onnxruntime", tools::QuantizeTarget::onnxruntime},
      {"openvino", tools::QuantizeTarget::openvino}};
};
template <>
struct Words<tools::RangeMethod> {
  static constexpr std::pair<std::string_view, tools::RangeMethod> all[] = {
      {"minmax", tools::RangeMethod::minmax},
      {"percentile", tools::RangeMethod::percentile},
      {"entropy", tools::RangeMethod::entropy},
      {"mse", tools::RangeMethod::mse}};
};
template <>
struct Words<tools::TimeChange> {
  static constexpr std::pair<std::string_view, tools::TimeChange> all[] = {
      {"none", tools::TimeChange::none},
      {"slower", tools::TimeChange::slower},
      {"faster", tools::TimeChange::faster},
      {"unknown", tools::TimeChange::unknown}};
};
template <>
struct Words<tools::TestVerdict> {
  static constexpr std::pair<std::string_view, tools::TestVerdict> all[] = {
      {"passed", tools::TestVerdict::passed},
      {"failed", tools::TestVerdict::failed},
      {"unsupported", tools::TestVerdict::unsupported}};
};
template <>
struct Words<tools::Rounding> {
  static constexpr std::pair<std::string_view, tools::Rounding> all[] = {
      {"nearest", tools::Rounding::nearest}, {"second-order", tools::Rounding::second_order}};
};
template <>
struct Words<tools::PruneMode> {
  static constexpr std::pair<std::string_view, tools::PruneMode> all[] = {
      {"auto", tools::PruneMode::automatic},
      {"k", tools::PruneMode::rows},
      {"channel", tools::PruneMode::channels},
      {"block", tools::PruneMode::blocks},
      {"input", tools::PruneMode::inputs}};
};
template <>
struct Words<tools::Importance> {
  static constexpr std::pair<std::string_view, tools::Importance> all[] = {
      {"l1", tools::Importance::l1},
      {"l2", tools::Importance::l2},
      {"activation", tools::Importance::activation},
      {"second-order", tools::Importance::second_order}};
};
template <>
struct Words<tools::PrunedRows> {
  static constexpr std::pair<std::string_view, tools::PrunedRows> all[] = {
      {"auto", tools::PrunedRows::automatic},
      {"tap", tools::PrunedRows::tap},
      {"channel", tools::PrunedRows::channel}};
};
template <>
struct Words<tools::SparsityMode> {
  static constexpr std::pair<std::string_view, tools::SparsityMode> all[] = {
      {"k", tools::SparsityMode::k},
      {"k-panel", tools::SparsityMode::k_panel},
      {"channel", tools::SparsityMode::channel},
      {"block", tools::SparsityMode::block},
      {"input", tools::SparsityMode::input},
      {"input-panel", tools::SparsityMode::input_panel}};
};
template <>
struct Words<tools::ModelWeights> {
  static constexpr std::pair<std::string_view, tools::ModelWeights> all[] = {
      {"built-in", tools::ModelWeights::built_in},
      {"random", tools::ModelWeights::random},
      {"fetched", tools::ModelWeights::fetched}};
};
template <>
struct Words<tools::ReportForm> {
  static constexpr std::pair<std::string_view, tools::ReportForm> all[] = {
      {"json", tools::ReportForm::json},
      {"csv", tools::ReportForm::csv},
      {"html", tools::ReportForm::html},
      {"trace", tools::ReportForm::trace},
      {"trtexec", tools::ReportForm::trtexec}};
};
/// NumPy's names of types.
template <>
struct Words<DType> {
  static constexpr std::pair<std::string_view, DType> all[] = {
      {"float32", DType::f32},  {"float64", DType::f64}, {"int8", DType::i8},
      {"uint8", DType::u8},     {"int32", DType::i32},   {"int64", DType::i64},
      {"bool", DType::boolean}, {"float16", DType::f16}, {"bfloat16", DType::bf16}};
};

/// The word of a value.
template <typename E>
std::string_view word(E value) {
  for (const auto& [text, known] : Words<E>::all)
    if (known == value) return text;
  return "?";
}

}  // namespace pipit::internal::python

namespace nanobind::detail {

/// nanobind's caster of an enumeration that has Words: a str in Python.
template <typename E>
struct WordCaster {
  NB_TYPE_CASTER(E, const_name("str"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(source.ptr()) ? PyUnicode_AsUTF8AndSize(source.ptr(), &size) : nullptr;
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    for (const auto& [word, known] : pipit::internal::python::Words<E>::all)
      if (word == std::string_view(text, static_cast<std::size_t>(size))) {
        value = known;
        return true;
      }
    return false;
  }
  static handle from_cpp(E source, rv_policy, cleanup_list*) noexcept {
    const std::string_view text = pipit::internal::python::word(source);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
};

// clang-format off
template <> struct type_caster<pipit::DeviceKind> : WordCaster<pipit::DeviceKind> {};
template <> struct type_caster<pipit::Precision> : WordCaster<pipit::Precision> {};
template <> struct type_caster<pipit::Tuning> : WordCaster<pipit::Tuning> {};
template <> struct type_caster<pipit::ScoreKind> : WordCaster<pipit::ScoreKind> {};
template <> struct type_caster<pipit::DType> : WordCaster<pipit::DType> {};
template <> struct type_caster<pipit::tools::Verdict>
    : WordCaster<pipit::tools::Verdict> {};
template <> struct type_caster<pipit::tools::JudgeBy>
    : WordCaster<pipit::tools::JudgeBy> {};
template <> struct type_caster<pipit::tools::QuantizeTarget>
    : WordCaster<pipit::tools::QuantizeTarget> {};
template <> struct type_caster<pipit::tools::RangeMethod>
    : WordCaster<pipit::tools::RangeMethod> {};
template <> struct type_caster<pipit::tools::TimeChange>
    : WordCaster<pipit::tools::TimeChange> {};
template <> struct type_caster<pipit::tools::TestVerdict>
    : WordCaster<pipit::tools::TestVerdict> {};
template <> struct type_caster<pipit::tools::Rounding>
    : WordCaster<pipit::tools::Rounding> {};
template <> struct type_caster<pipit::tools::PruneMode>
    : WordCaster<pipit::tools::PruneMode> {};
template <> struct type_caster<pipit::tools::Importance>
    : WordCaster<pipit::tools::Importance> {};
template <> struct type_caster<pipit::tools::PrunedRows>
    : WordCaster<pipit::tools::PrunedRows> {};
template <> struct type_caster<pipit::tools::SparsityMode>
    : WordCaster<pipit::tools::SparsityMode> {};
template <> struct type_caster<pipit::tools::ModelWeights>
    : WordCaster<pipit::tools::ModelWeights> {};
template <> struct type_caster<pipit::tools::ReportForm>
    : WordCaster<pipit::tools::ReportForm> {};
// clang-format on

/// A tuple of extents.
template <>
struct type_caster<pipit::Shape> {
  NB_TYPE_CASTER(pipit::Shape, const_name("tuple[int, ...]"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::vector<std::int64_t>> extents;
    if (!extents.from_python(source, flags, cleanup)) return false;
    try {
      value = pipit::Shape(std::span<const std::int64_t>(extents.value));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  static handle from_cpp(const pipit::Shape& source, rv_policy, cleanup_list*) noexcept {
    PyObject* tuple = PyTuple_New(source.rank());
    for (int axis = 0; tuple != nullptr && axis < source.rank(); ++axis) {
      PyObject* extent = PyLong_FromLongLong(source[axis]);
      if (extent == nullptr || PyTuple_SetItem(tuple, axis, extent) != 0) Py_CLEAR(tuple);
    }
    return tuple;
  }
};

}  // namespace nanobind::detail
