// What --input names: the values that a model is timed on.
#pragma once

#include <string>

#include "models/model.h"

namespace pipit::internal::apps {

class InputFile {
 public:
  InputFile() = default;
  /// Reads `path`: an array as numpy.save() writes it, or an image, which is prepared as `pipit classify` does without
  /// options, with `bytes` up to normalizing (models/image/byte_image.h). Throws Error for a file that is neither, for
  /// a model that it does not fit, and for an array where bytes are wanted.
  InputFile(const std::string& path, const Model& model, bool bytes);
  /// A tensor of `input`: one sample is repeated through the batch. Throws Error for one of another shape or type.
  Tensor tensor(const TensorDesc& input) const;

 private:
  std::string path_;
  Tensor values_;
};

}  // namespace pipit::internal::apps
