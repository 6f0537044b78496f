#include "pipit/measuring/input_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/classification.h"
#include "models/npy.h"
#include "pipit/detail/preparation.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::detail {

namespace {

constexpr std::uint64_t kMaxInputBytes = std::uint64_t{1} << 30;

// Without dimension 0.
Shape sample_of(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
}

// One sample is repeated through the batch.
Tensor through_batch(const std::string& path, const Tensor& values, const TensorDesc& input) {
  const DType type = values.desc().dtype;
  if (input.dtype != type)
    fail("{}: the model's input is {}; --input gives {}", path, input.str(), dtype_name(type));
  Tensor tensor(input);
  const Shape& given = values.shape();
  const Shape& wanted = input.shape;
  const bool whole = given == wanted;
  const bool sample =
      wanted.rank() > 0 && (given == sample_of(wanted) || (given.rank() == wanted.rank() && given[0] == 1 &&
                                                           sample_of(given) == sample_of(wanted)));
  if (!whole && !sample)
    fail("{}: an array of {}; the model takes {}, or one sample of it", path, given.str(), wanted.str());
  const ConstTensorView in = values.view();
  for (std::size_t at = 0; at < input.bytes(); at += in.desc.bytes())
    std::copy_n(in.data, in.desc.bytes(), tensor.view().data + at);
  return tensor;
}

}  // namespace

InputFiles::InputFiles(const std::vector<std::string>& files, const Model& model, bool bytes) {
  const Graph& graph = model.graph;
  std::vector<std::string> names;
  for (const ValueId id : graph.inputs()) names.push_back(graph.value(id).name);
  for (const std::string& text : files) {
    std::size_t input = names.size();
    std::string path = text;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!text.starts_with(names[i] + "=")) continue;
      input = i;
      path = text.substr(names[i].size() + 1);
    }
    if (input == names.size() && names.size() != 1) {
      fail("{}: it has {} inputs: give --input NAME=FILE.npy for {}", model.name, names.size(),
           fmt::join(names, ", "));
    }
    if (input == names.size()) input = 0;
    if (files_.contains(input)) fail("--input is given twice for '{}'", names[input]);
    files_.emplace(input, File{path, read(path, model, graph.value(graph.inputs()[input]).desc, bytes)});
  }
}

Tensor InputFiles::read(const std::string& path, const Model& model, const TensorDesc& input,
                        bool bytes) const {
  const bool normalizes = bytes && input.dtype == DType::f32;
  const std::string content = read_file(path, kMaxInputBytes);
  if (is_npy(content)) {
    if (normalizes) fail("{}: an array of floats; with --image-bytes --input takes an image", path);
    return parse_npy(content, path);
  }
  const Preprocess preprocess = detail::prepare_for(model, {}).preprocess;
  const ImageInput place = image_input(input.shape).value();
  const Shape one = input.shape.rank() == 4 ? input.shape.with(0, 1) : input.shape;
  Tensor values = normalizes
                      ? Tensor(TensorDesc{Shape{1, place.height, place.width, place.channels}, DType::u8})
                      : Tensor(TensorDesc{one, input.dtype});
  load_image(path, preprocess, values.view(), 0, normalizes);
  return values;
}

std::vector<Tensor> InputFiles::tensors(const Graph& graph) const {
  std::vector<Tensor> inputs = random_inputs(graph);
  for (const auto& [input, file] : files_)
    inputs[input] = through_batch(file.path, file.values, graph.value(graph.inputs().at(input)).desc);
  return inputs;
}

}  // namespace pipit::internal::detail
