// What a model runs on, from files: images, and arrays as NumPy saves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "models/classification.h"

namespace pipit::internal {

/// Largest file of arrays that is read.
inline constexpr std::uint64_t kMaxArrayFileBytes = std::uint64_t{1} << 30;

/// The inputs of a graph and how many samples they hold.
struct SampleInputs {
  std::vector<std::string> names;
  std::vector<TensorDesc> descs;
  /// The extent of dimension 0 of all inputs; 1 where these differ: then a file has the inputs of a whole run; and of
  /// an image without a batch.
  std::int64_t samples = 1;

  explicit SampleInputs(const Graph& graph);
  SampleInputs(std::vector<std::string> names, std::vector<TensorDesc> descs);
  /// Bytes of a run.
  std::size_t bytes() const;
  /// Rows of dimension 0 of input 0 that `count` samples fill.
  std::int64_t rows(std::int64_t count) const;
};

/// Fills sample `index` of `views`, which are `inputs` in memory, from a file: an image, as load_image() does, or an
/// array (.npy) for a model with one input, or an archive of arrays (.npz) with the names of the inputs. The name of
/// the only array does not matter to a model with one input; arrays of other names are not read. An array is of its
/// input's type, without dimension 0 or with 1 there where there are several samples, and taken as it is. Throws Error,
/// beginning with `path`.
LoadedImage load_sample(const std::filesystem::path& path, const SampleInputs& inputs,
                        const Preprocess& preprocess, std::span<const TensorView> views, std::int64_t index,
                        bool normalizes);

/// The same from the content of such a file; `name` stands for its path.
LoadedImage load_sample(std::span<const std::byte> content, const std::string& name,
                        const SampleInputs& inputs, const Preprocess& preprocess,
                        std::span<const TensorView> views, std::int64_t index, bool normalizes);

}  // namespace pipit::internal
