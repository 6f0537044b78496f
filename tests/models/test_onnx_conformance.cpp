// The node tests of the ONNX project, where Debian's libonnx-testdata is installed: what is imported computes
// what the operators' authors expect, and only what docs/operators.md excludes is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/models/onnx_run.h"

namespace pipit {
namespace {

namespace fs = std::filesystem;

fs::path data_folder() {
  const char* folder = std::getenv("PIPIT_ONNX_TESTS");
  return folder != nullptr ? folder : "/usr/share/libonnx-testdata/data";
}

// docs/operators.md, "Node tests that are excluded", gives the reasons.
const std::set<std::string> kExcluded = {
    "test_identity_opt",                                  // inputs that are not tensors
    "test_resize_downsample_scales_linear_align_corners"  // scales by a fractional output width
};

std::vector<NamedTensor> read_all(const fs::path& folder, const char* prefix) {
  std::vector<NamedTensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path file = folder / fmt::format("{}_{}.pb", prefix, i);
    if (!fs::exists(file)) return tensors;
    tensors.push_back(read_named_tensor(file));
  }
}

// Every expected value within the tolerances of ONNX's own test runner: 1e-3 relative and 1e-7 absolute.
std::string difference(const Tensor& got, const Tensor& expected) {
  if (!(got.desc() == expected.desc())) {
    return fmt::format("{} instead of {}", got.desc().str(), expected.desc().str());
  }
  const std::vector<double> g = test::result_of(got).values;
  const std::vector<double> e = test::result_of(expected).values;
  for (std::size_t i = 0; i < e.size(); ++i) {
    const bool same = g[i] == e[i] || (std::isnan(g[i]) && std::isnan(e[i]));
    if (!same && !(std::abs(g[i] - e[i]) <= 1e-7 + 1e-3 * std::abs(e[i]))) {
      return fmt::format("element {} is {} instead of {}", i, g[i], e[i]);
    }
  }
  return {};
}

// Runs one data set; returns what is wrong with the outputs.
std::string run_data_set(const fs::path& model_file, const fs::path& data) {
  const std::vector<NamedTensor> inputs = read_all(data, "input");
  const std::vector<NamedTensor> expected = read_all(data, "output");
  const auto find = [&inputs](const std::string& name) -> const Tensor* {
    const auto found = std::ranges::find(inputs, name, &NamedTensor::name);
    return found == inputs.end() ? nullptr : &found->tensor;
  };
  OnnxOptions options;
  options.bind_input = find;
  const Graph graph = read_onnx(model_file, options).graph;
  std::vector<test::TensorPtr> operands;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value& value = graph.value(graph.inputs()[i]);
    const Tensor* given = find(value.name);
    // The oldest tests leave the tensors without names; they are in the order of the inputs.
    if (given == nullptr && i < inputs.size() && inputs[i].name.empty()) given = &inputs[i].tensor;
    if (given == nullptr) return "no data for input " + value.name;
    if (!(given->desc() == value.desc)) return "input " + value.name + " has another shape";
    operands.push_back(std::make_shared<const Tensor>(given->clone()));
  }
  const std::vector<test::TensorPtr> outputs = test::run(graph, operands);
  if (outputs.size() != expected.size()) return "another number of outputs";
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string wrong = difference(*outputs[i], expected[i].tensor);
    if (!wrong.empty()) return fmt::format("output {}: {}", i, wrong);
  }
  return {};
}

TEST(OnnxConformance, NodeTests) {
  const fs::path root = data_folder();
  if (!fs::is_directory(root)) GTEST_SKIP() << root << " (Debian's libonnx-testdata) is not installed";
  int passed = 0;
  int refused = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const fs::path model = entry.path() / "model.onnx";
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !fs::exists(model) || kExcluded.contains(name)) continue;
    SCOPED_TRACE(entry.path().string());
    for (int set = 0; fs::exists(entry.path() / fmt::format("test_data_set_{}", set)); ++set) {
      try {
        EXPECT_EQ(run_data_set(model, entry.path() / fmt::format("test_data_set_{}", set)), "");
        ++passed;
      } catch (const UnsupportedError&) {
        ++refused;
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
  RecordProperty("passed", passed);
  RecordProperty("refused", refused);
  // onnx 1.12 brings 1072 of them, mostly of operators outside of convolutional networks.
  EXPECT_GT(passed, 600);
}

}  // namespace
}  // namespace pipit
