// What --input names: the values that a model is timed on.
#pragma once

#include <string>

#include "models/model.h"

namespace pipit::apps {

class InputFile {
 public:
  InputFile() = default;
  /// Reads `path`: an array as numpy.save() writes it, or an image, which is prepared as `pipit classify` does without
  /// options. Throws Error for a file that is neither, and for a model that it does not fit.
  InputFile(const std::string& path, const Model& model);
  /// A tensor of `input`: one sample is repeated through the batch. Throws Error for an array of another shape.
  Tensor tensor(const TensorDesc& input) const;

 private:
  std::string path_;
  Tensor values_;
};

}  // namespace pipit::apps
