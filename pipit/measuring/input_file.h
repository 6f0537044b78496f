// What --input names: the values that a model is timed on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/model.h"

namespace pipit::internal::detail {

class InputFiles {
 public:
  /// Reads FILE or NAME=FILE: an array as numpy.save() writes it, or an image, which is prepared as `pipit classify`
  /// does without options, with `bytes` up to normalizing (models/image/byte_image.h). A file without a name is for a
  /// model with one input. Throws Error for a file that is neither, for an input that is not there, for a model that
  /// an image does not fit, and for an array where bytes are wanted.
  InputFiles(const std::vector<std::string>& files, const Model& model, bool bytes);
  /// A tensor for each input of the model's graph, or of one that was made of it: one sample is repeated through the
  /// batch; random_inputs() where no file was given. Throws Error for a file of another shape or type.
  std::vector<Tensor> tensors(const Graph& graph) const;

 private:
  struct File {
    std::string path;
    Tensor values;
  };
  Tensor read(const std::string& path, const Model& model, const TensorDesc& input, bool bytes) const;

  std::map<std::size_t, File> files_;  // by input
};

}  // namespace pipit::internal::detail
