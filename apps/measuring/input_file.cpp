#include "apps/measuring/input_file.h"

#include <algorithm>

#include "apps/measuring/npy.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/classification.h"
#include "pipit/detail/preparation.h"

namespace pipit::apps {

namespace {

constexpr std::uint64_t kMostInputBytes = std::uint64_t{1} << 30;

// Without dimension 0.
Shape sample_of(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
}

}  // namespace

InputFile::InputFile(const std::string& path, const Model& model) : path_(path) {
  const Graph& graph = model.graph;
  if (graph.inputs().size() != 1)
    fail("{}: it has {} inputs; --input is for models with one", model.name, graph.inputs().size());
  const std::string content = read_file(path, kMostInputBytes);
  if (is_npy(content)) {
    values_ = parse_npy(content, path);
    return;
  }
  const Preprocess preprocess = detail::prepare_for(model, {}).preprocess;
  const Shape one = graph.value(graph.inputs()[0]).desc.shape.with(0, 1);
  values_ = Tensor(TensorDesc{one});
  load_image(path, preprocess, one, values_.values<float>());
}

Tensor InputFile::tensor(const TensorDesc& input) const {
  if (input.dtype != DType::f32) fail("{}: the model's input is {}; --input gives f32", path_, input.str());
  Tensor tensor(input);
  const auto out = tensor.values<float>();
  const auto in = values_.values<float>();
  const Shape& given = values_.shape();
  const Shape& wanted = input.shape;
  const bool whole = given == wanted;
  const bool sample =
      wanted.rank() > 0 && (given == sample_of(wanted) || (given.rank() == wanted.rank() && given[0] == 1 &&
                                                           sample_of(given) == sample_of(wanted)));
  if (!whole && !sample)
    fail("{}: an array of {}; the model takes {}, or one sample of it", path_, given.str(), wanted.str());
  for (std::size_t at = 0; at < out.size(); at += in.size())
    std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
  return tensor;
}

}  // namespace pipit::apps
