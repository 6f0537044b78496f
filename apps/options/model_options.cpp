// How a model is loaded: MODEL, --batch, --dim, --shape, --value.
#include <fmt/format.h>

#include "apps/options/options.h"
#include "pipit/fetch.h"
#include "pipit/option_values.h"

namespace pipit::internal::apps {

using tools::parse_extent;
using tools::parse_named_value;
using tools::parse_numbers;
using tools::parse_shape;

std::string model_help() {
  return "An ONNX file, or the name of a model (pipit models describes them): " + tools::named_model_list();
}

void ModelOptions::add_to(CLI::App& command, bool with_batch) {
  command.add_option("MODEL", model, model_help())->required()->type_name("MODEL");
  if (with_batch) {
    command.add_option("--batch", batch, "Images per run (for models that leave the batch open) [1]")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  }
  add_extents(command, dims, shapes, values);
}

void ModelOptions::add_heads_to(CLI::App& command) {
  command
      .add_option("--input", arrays,
                  "The value of an input other than the image, from a .npy file; may be repeated")
      ->type_name("NAME=FILE");
  command
      .add_option("--output", output,
                  "The output with the scores [the first one, or the only one that has a row for each image]")
      ->type_name("NAME");
}

void ModelOptions::add_extents(CLI::App& command, std::vector<std::string>& dims,
                               std::vector<std::string>& shapes, std::vector<std::string>& values) {
  command.add_option("--dim", dims, "The value of a symbolic dimension; may be repeated")
      ->type_name("NAME=VALUE");
  command
      .add_option("--shape", shapes,
                  "The shape of an input whose extents the file leaves open; may be repeated")
      ->type_name("NAME=1x3x224x224");
  command
      .add_option("--value", values,
                  "A fixed value for an input that is a setting (a sampling rate, a mask, a switch): one "
                  "number for all elements, or a list; everything that depends on it alone is computed while "
                  "the model is read; may be repeated")
      ->type_name("NAME=VALUE");
}

void ModelOptions::add_to(LoadOptions& options) const {
  options.shapes.batch = batch;
  for (const std::string& text : dims) {
    const auto [name, value] = parse_named_value(text);
    const auto extent = parse_extent(value);
    if (name.empty() || !extent)
      throw CLI::ValidationError("--dim", "'" + text + "' is not NAME=VALUE with a positive integer");
    options.shapes.dimensions.insert_or_assign(name, *extent);
  }
  for (const std::string& text : shapes) {
    const auto [name, value] = parse_named_value(text);
    const auto shape = parse_shape(value);
    if (name.empty() || !shape) {
      throw CLI::ValidationError(
          "--shape",
          fmt::format("'{}' is not NAME=1x3x224x224: 1 to {} positive integers with x between them", text,
                      kMaxRank));
    }
    options.shapes.inputs.insert_or_assign(name, *shape);
  }
  for (const std::string& text : values) {
    const auto [name, list] = parse_named_value(text);
    const auto numbers = parse_numbers(list);
    if (name.empty() || !numbers)
      throw CLI::ValidationError("--value", "'" + text + "' is not NAME=NUMBER or NAME=a,b,c");
    options.constants.values.insert_or_assign(name, *numbers);
  }
  for (const std::string& text : arrays) {
    const auto [name, file] = parse_named_value(text);
    if (name.empty() || file.empty())
      throw CLI::ValidationError("--input", "'" + text + "' is not NAME=FILE.npy");
    options.constants.arrays.insert_or_assign(name, std::string(file));
  }
  options.output = output;
}

}  // namespace pipit::internal::apps
