#include "apps/measuring/input_file.h"

#include <algorithm>

#include "apps/measuring/npy.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/classification.h"
#include "pipit/detail/preparation.h"

namespace pipit::internal::apps {

namespace {

constexpr std::uint64_t kMaxInputBytes = std::uint64_t{1} << 30;

// Without dimension 0.
Shape sample_of(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
}

}  // namespace

InputFile::InputFile(const std::string& path, const Model& model, bool bytes) : path_(path) {
  const Graph& graph = model.graph;
  if (graph.inputs().size() != 1)
    fail("{}: it has {} inputs; --input is for models with one", model.name, graph.inputs().size());
  const std::string content = read_file(path, kMaxInputBytes);
  if (is_npy(content)) {
    if (bytes) fail("{}: an array of floats; with --image-bytes --input takes an image", path);
    values_ = parse_npy(content, path);
    return;
  }
  const Preprocess preprocess = detail::prepare_for(model, {}).preprocess;
  const Shape one = graph.value(graph.inputs()[0]).desc.shape.with(0, 1);
  const ImageInput place = image_input(one).value();
  values_ = bytes ? Tensor(TensorDesc{Shape{1, place.height, place.width, place.channels}, DType::u8})
                  : Tensor(TensorDesc{one});
  load_image(path, preprocess, values_.view(), 0);
}

Tensor InputFile::tensor(const TensorDesc& input) const {
  const DType type = values_.desc().dtype;
  if (input.dtype != type)
    fail("{}: the model's input is {}; --input gives {}", path_, input.str(), dtype_name(type));
  Tensor tensor(input);
  const Shape& given = values_.shape();
  const Shape& wanted = input.shape;
  const bool whole = given == wanted;
  const bool sample =
      wanted.rank() > 0 && (given == sample_of(wanted) || (given.rank() == wanted.rank() && given[0] == 1 &&
                                                           sample_of(given) == sample_of(wanted)));
  if (!whole && !sample)
    fail("{}: an array of {}; the model takes {}, or one sample of it", path_, given.str(), wanted.str());
  const ConstTensorView in = values_.view();
  for (std::size_t at = 0; at < input.bytes(); at += in.desc.bytes())
    std::copy_n(in.data, in.desc.bytes(), tensor.view().data + at);
  return tensor;
}

}  // namespace pipit::internal::apps
