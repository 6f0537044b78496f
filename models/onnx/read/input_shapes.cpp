#include "models/onnx/read/input_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"
#include "models/onnx/tensor_proto.h"

namespace pipit::internal::onnx {

namespace {

using Dimension = onnx_pb::TensorShapeProto::Dimension;

constexpr std::int64_t kOpenExtent = -1;

bool is_open(const Dimension& dim) {
  return !dim.has_dim_value() || dim.dim_value() == kOpenExtent;
}

bool has_name(const Dimension& dim) {
  return !dim.dim_param().empty() && dim.dim_param() != "?";
}

const auto& dims_of(const onnx_pb::ValueInfoProto& input) {
  return input.type().tensor_type().shape().dim();
}

// "Nx3x?x?"
std::string declared(const onnx_pb::ValueInfoProto& input) {
  if (!input.type().tensor_type().has_shape()) return "of no shape";
  std::string text;
  for (const Dimension& dim : dims_of(input)) {
    if (!text.empty()) text += 'x';
    text += !is_open(dim) ? fmt::format("{}", dim.dim_value()) : has_name(dim) ? dim.dim_param() : "?";
  }
  return text.empty() ? "scalar" : text;
}

bool fits(const onnx_pb::ValueInfoProto& input, const Shape& shape) {
  if (!input.type().tensor_type().has_shape()) return true;
  if (dims_of(input).size() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!is_open(dims_of(input)[i]) && dims_of(input)[i].dim_value() != shape[i]) return false;
  }
  return true;
}

// Of "[320, 320]"; nothing where it is written otherwise.
std::vector<std::int64_t> numbers_in(std::string_view list) {
  if (!list.starts_with('[') || !list.ends_with(']')) return {};
  const char* const stop = list.data() + list.size() - 1;
  std::vector<std::int64_t> numbers;
  for (const char* at = list.data() + 1; at != stop;) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(at, stop, number);
    if (error != std::errc{}) return {};
    numbers.push_back(number);
    at = std::find_if(end, stop, [](char c) { return c != ',' && c != ' '; });
    if (at == end && at != stop) return {};
  }
  return numbers;
}

}  // namespace

InputShapes::InputShapes(std::vector<const onnx_pb::ValueInfoProto*> inputs, const OnnxOptions& options,
                         std::string image_size)
    : inputs_(std::move(inputs)),
      options_(options),
      image_size_(std::move(image_size)),
      extents_(options.dims) {
  for (const auto& [name, shape] : options.shapes) {
    const auto input = std::ranges::find(inputs_, name, [](const auto* i) { return i->name(); });
    if (input == inputs_.end()) {
      std::vector<std::string> names;
      for (const auto* i : inputs_) names.push_back(i->name());
      fail("no graph input has the name '{}' (its shape is given as {}); there are: {}", name, shape.str(),
           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (!fits(**input, shape))
      fail("input '{}' is {} in the file; its shape is given as {}", name, declared(**input), shape.str());
    bind(**input, shape);
  }
  check_symbols();
}

void InputShapes::bind(const onnx_pb::ValueInfoProto& input, const Shape& given) {
  for (int i = 0; i < dims_of(input).size(); ++i) {
    const Dimension& dim = dims_of(input)[i];
    if (!is_open(dim) || !has_name(dim)) continue;
    const auto [entry, is_new] = extents_.emplace(dim.dim_param(), given[i]);
    if (!is_new && entry->second != given[i]) {
      fail("dimension '{}' is given as {}, and as {} by the shape {} of input '{}'", dim.dim_param(),
           entry->second, given[i], given.str(), input.name());
    }
  }
}

void InputShapes::check_symbols() const {
  std::set<std::string> symbols;
  for (const auto* input : inputs_) {
    for (const Dimension& dim : dims_of(*input)) {
      if (is_open(dim) && has_name(dim)) symbols.insert(dim.dim_param());
    }
  }
  for (const auto& [symbol, extent] : options_.dims) {
    if (!symbols.contains(symbol)) {
      fail("no graph input has a symbolic dimension '{}' (given as {}); there are: {}", symbol, extent,
           symbols.empty() ? "none" : fmt::format("{}", fmt::join(symbols, ", ")));
    }
  }
}

std::optional<Shape> InputShapes::given(const onnx_pb::ValueInfoProto& input) const {
  if (const auto shape = options_.shapes.find(input.name()); shape != options_.shapes.end())
    return shape->second;
  if (const auto array = options_.arrays.find(input.name()); array != options_.arrays.end())
    return array->second->shape();
  if (const auto values = options_.values.find(input.name()); values != options_.values.end()) {
    const Shape list{static_cast<std::int64_t>(values->second.size())};
    if (list[0] > 1 && fits(input, list)) return list;
  }
  const Tensor* tensor = options_.bind_input ? options_.bind_input(input.name()) : nullptr;
  if (tensor == nullptr || !fits(input, tensor->shape())) return std::nullopt;
  return tensor->shape();
}

// What --shape needs: the file's own text, or where rows and columns of images are missing and the metadata have them,
// with those.
std::string InputShapes::shape_to_give(const onnx_pb::ValueInfoProto& input, std::size_t missing) const {
  const auto& dims = dims_of(input);
  const std::vector<std::int64_t> size = numbers_in(image_size_);
  const bool is_image =
      dims.size() == 4 && missing == 2 && !is_open(dims[1]) && is_open(dims[2]) && is_open(dims[3]);
  if (!is_image || size.size() != 2 || size[0] < 1 || size[1] < 1)
    return fmt::format("--shape {}={} with numbers for what is open", input.name(), declared(input));
  return fmt::format("--shape {}={}x{}x{}x{}, as the metadata say (imgsz), or others", input.name(),
                     is_open(dims[0]) ? options_.batch : dims[0].dim_value(), dims[1].dim_value(), size[0],
                     size[1]);
}

std::optional<Shape> InputShapes::resolve(const onnx_pb::ValueInfoProto& input) {
  if (!input.type().has_tensor_type()) fail_unsupported("not a tensor");
  const bool fixed = input.type().tensor_type().has_shape() &&
                     std::none_of(dims_of(input).begin(), dims_of(input).end(), is_open);
  const std::optional<Shape> whole = fixed ? std::nullopt : given(input);
  if (!input.type().tensor_type().has_shape()) {
    if (!whole) {
      open_.push_back(fmt::format(
          "input '{0}': the file does not give its shape; give --shape {0}=1x3x224x224", input.name()));
    }
    return whole;
  }
  std::vector<std::int64_t> dims;
  std::vector<std::string> missing, by_name;
  for (const Dimension& dim : dims_of(input)) {
    const std::size_t i = dims.size();
    symbolic_batch_ = symbolic_batch_ || (i == 0 && is_open(dim));
    const auto named = has_name(dim) ? extents_.find(dim.dim_param()) : extents_.end();
    if (!is_open(dim)) {
      dims.push_back(dim.dim_value());
    } else if (whole) {
      dims.push_back((*whole)[static_cast<int>(i)]);
    } else if (named != extents_.end()) {
      dims.push_back(named->second);
    } else if (i == 0) {
      dims.push_back(options_.batch);
    } else {
      dims.push_back(1);
      missing.push_back(fmt::format("{}", i));
      if (has_name(dim)) by_name.push_back(fmt::format("--dim {}=VALUE", dim.dim_param()));
    }
  }
  if (missing.empty()) return shape_from_onnx(dims);
  const bool all_named = by_name.size() == missing.size();
  open_.push_back(fmt::format(
      "input '{}' is {}: dimension{} {} {} open; give {}{}", input.name(), declared(input),
      missing.size() > 1 ? "s" : "", fmt::join(missing, ", "), missing.size() > 1 ? "are" : "is",
      all_named ? fmt::format("{} or ", fmt::join(by_name, " ")) : "", shape_to_give(input, missing.size())));
  return std::nullopt;
}

void InputShapes::refuse_open() const {
  if (open_.empty()) return;
  if (open_.size() == 1) fail("{}", open_[0]);
  fail("{} inputs have open extents:\n  {}", open_.size(), fmt::join(open_, "\n  "));
}

}  // namespace pipit::internal::onnx
