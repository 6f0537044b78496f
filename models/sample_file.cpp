#include "models/sample_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/image/decode.h"
#include "models/image/folder.h"
#include "models/npy.h"
#include "models/npz.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId id : graph.inputs()) names.push_back(graph.value(id).name);
  return names;
}

std::vector<TensorDesc> input_descs(const Graph& graph) {
  std::vector<TensorDesc> descs;
  for (const ValueId id : graph.inputs()) descs.push_back(graph.value(id).desc);
  return descs;
}

// Without dimension 0.
Shape inner(const Shape& shape) {
  return shape.rank() == 0 ? shape : Shape(shape.dims().subspan(1));
}

void fill(const std::string& file, const std::string& name, const Tensor& array, const TensorView& view,
          std::int64_t samples, std::int64_t index) {
  const TensorDesc& input = view.desc;
  const Shape& given = array.shape();
  const Shape sample = samples > 1 ? input.shape.with(0, 1) : input.shape;
  const bool fits = given == sample || (sample.rank() > 0 && sample[0] == 1 && given == inner(sample));
  if (!fits || array.desc().dtype != input.dtype) {
    fail("{}: an array of {} for input '{}', whose samples are {}", file, array.desc().str(), printable(name),
         TensorDesc{sample, input.dtype}.str());
  }
  const ConstTensorView from = array.view();
  std::copy_n(from.data, from.desc.bytes(), view.data + static_cast<std::size_t>(index) * from.desc.bytes());
}

// Of an archive, by input.
std::map<std::string, Tensor> read_archive(std::string_view content, const std::string& file,
                                           const SampleInputs& inputs) {
  const auto limit_of = [&](const std::string& name) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < inputs.names.size(); ++i) {
      if (inputs.names[i] == name) return inputs.descs[i].bytes();
    }
    return std::nullopt;
  };
  std::vector<std::string> names;
  std::map<std::string, Tensor> arrays = parse_npz(content, file, limit_of, &names);
  if (inputs.names.size() == 1 && names.size() == 1 && arrays.empty()) {
    auto read = parse_npz(content, file, [&](const std::string&) { return inputs.descs[0].bytes(); });
    arrays.emplace(inputs.names[0], std::move(read.begin()->second));
  }
  for (const std::string& name : inputs.names) {
    if (arrays.contains(name)) continue;
    std::vector<std::string> shown;
    for (const std::string& other : names) shown.push_back(printable(other));
    fail("{}: no array '{}', an input of the model; there are: {}", file, printable(name),
         shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, ", ")));
  }
  return arrays;
}

void need_one_input(std::span<const TensorView> views, const std::string& file) {
  if (views.size() != 1)
    fail("{}: an image, but the model has {} inputs: put arrays of all into .npz files", file, views.size());
}

void load_arrays(std::string_view content, const std::string& file, const SampleInputs& inputs,
                 std::span<const TensorView> views, std::int64_t index, bool normalizes) {
  if (normalizes) fail("{}: an array, where the device normalizes images in bytes", file);
  if (is_npy(content)) {
    if (views.size() != 1)
      fail("{}: one array, but the model has {} inputs: put arrays of all into an .npz file (numpy.savez)",
           file, views.size());
    fill(file, inputs.names[0], parse_npy(content, file), views[0], inputs.samples, index);
    return;
  }
  if (!is_npz(content)) fail("{}: neither an array nor an archive of arrays as NumPy saves them", file);
  const std::map<std::string, Tensor> arrays = read_archive(content, file, inputs);
  for (std::size_t i = 0; i < views.size(); ++i)
    fill(file, inputs.names[i], arrays.at(inputs.names[i]), views[i], inputs.samples, index);
}

}  // namespace

SampleInputs::SampleInputs(const Graph& graph) : SampleInputs(input_names(graph), input_descs(graph)) {}

SampleInputs::SampleInputs(std::vector<std::string> input_names, std::vector<TensorDesc> input_descs)
    : names(std::move(input_names)), descs(std::move(input_descs)) {
  const auto first = [](const TensorDesc& desc) { return desc.shape.rank() == 0 ? -1 : desc.shape[0]; };
  const bool alike = !descs.empty() && std::ranges::all_of(descs, [&](const TensorDesc& desc) {
    return first(desc) == first(descs[0]);
  });
  const bool one_image = descs.size() == 1 && descs[0].shape.rank() == 3 && image_input(descs[0].shape);
  samples = one_image ? 1 : alike ? std::max<std::int64_t>(first(descs[0]), 1) : 1;
}

std::size_t SampleInputs::bytes() const {
  std::size_t sum = 0;
  for (const TensorDesc& desc : descs) sum += desc.bytes();
  return sum;
}

std::int64_t SampleInputs::rows(std::int64_t count) const {
  return samples > 1 || descs[0].shape.rank() == 0 ? count : descs[0].shape[0];
}

LoadedImage load_sample(const std::filesystem::path& path, const SampleInputs& inputs,
                        const Preprocess& preprocess, std::span<const TensorView> views, std::int64_t index,
                        bool normalizes) {
  if (is_array_file(path)) {
    load_arrays(read_file(path, kMaxArrayFileBytes), path.string(), inputs, views, index, normalizes);
    return {};
  }
  need_one_input(views, path.string());
  return load_image(path, preprocess, views[0], index, normalizes);
}

LoadedImage load_sample(std::span<const std::byte> content, const std::string& name,
                        const SampleInputs& inputs, const Preprocess& preprocess,
                        std::span<const TensorView> views, std::int64_t index, bool normalizes) {
  if (is_array_file(name)) {
    load_arrays({reinterpret_cast<const char*>(content.data()), content.size()}, name, inputs, views, index,
                normalizes);
    return {};
  }
  need_one_input(views, name);
  const std::span file(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
  return fill_input(decode_image(file, name), name, preprocess, views[0], index, normalizes);
}

}  // namespace pipit::internal
