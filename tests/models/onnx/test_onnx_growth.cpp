// Graphs grow while they are read: what a converter holds of an earlier value must outlive every growth. Unused
// constants before a model's own values move the places where a growing list of values is copied, one value at a time.
// Stale references show under AddressSanitizer, and as wrong graphs.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "models/embedded.h"
#include "tests/models/onnx/onnx_writer.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;

// Shapes and layers, without constants.
std::string outline(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    text += fmt::format("{} {}", node.name, node.layer->type());
    for (const ValueId id : node.outputs) text += " " + graph.value(id).desc.str();
    text += "\n";
  }
  return text;
}

std::string imported(const std::string& model, int padding, const fs::path& folder) {
  // Parsers merge a second graph into the first; its initializers come before all nodes.
  onnx_pb::ModelProto more;
  for (int i = 0; i < padding; ++i) {
    *more.mutable_graph()->add_initializer() =
        test::tensor_proto<std::uint8_t>(fmt::format("unused padding {}", i), {}, {0});
  }
  const std::string bytes = padding == 0 ? model : model + more.SerializeAsString();
  try {
    return outline(parse_onnx(std::as_bytes(std::span(bytes)), folder).graph);
  } catch (const Error& e) {
    return e.what();
  }
}

// Lists double when they are full, so every value is once the first after a growth when the padding goes through half
// of the power of two above their number. Of large models a sample is taken.
void check_growth(const std::string& model, const fs::path& folder = {}) {
  constexpr int kMaxPaddings = 200;
  onnx_pb::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(model));
  const onnx_pb::GraphProto& graph = proto.graph();
  constexpr int kValuesPerNode = 3;  // a quantized node is written as three
  const int values = graph.initializer_size() + graph.input_size() + kValuesPerNode * graph.node_size();
  const int paddings = static_cast<int>(std::bit_ceil(static_cast<unsigned>(values))) / 2;
  const std::string expected = imported(model, 0, folder);
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(fmt::format("PIPIT_TEST_SEED={}", seed));
  std::mt19937 random(seed);
  for (int i = 1; i <= std::min(paddings, kMaxPaddings); ++i) {
    const int padding =
        paddings <= kMaxPaddings ? i : 1 + static_cast<int>(random() % static_cast<unsigned>(paddings));
    ASSERT_EQ(imported(model, padding, folder), expected) << padding << " unused constants";
  }
}

// Every model below `folder` that is smaller than `most_bytes`; how many there are. What has the ending and is no model
// is for other tests.
int check_folder(const fs::path& folder, std::uintmax_t most_bytes) {
  int models = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx" || entry.file_size() >= most_bytes) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!onnx_pb::ModelProto().ParseFromString(bytes)) continue;
    check_growth(bytes, entry.path().parent_path());
    ++models;
  }
  return models;
}

TEST(OnnxGrowth, ConvolutionsWithScalesPerChannel) {
  test::OnnxWriter model(13);
  model.input("x", {1, 2, 5, 5}, test::onnx_type<std::uint8_t>());
  model.constant<float>("s", {}, {0.5F}).constant<std::uint8_t>("z", {}, {128});
  model.constant<std::int8_t>("w", {2, 2, 3, 3}, std::vector<std::int8_t>(36, 3));
  model.constant<float>("ws", {2}, {0.25F, 0.5F}).constant<std::int8_t>("wz", {2}, {0, 0});
  model.constant<std::int32_t>("b", {2}, {7, -7});
  constexpr int kNodes = 6;
  for (int i = 0; i < kNodes; ++i) {
    model.node("QLinearConv",
               {i == 0 ? "x" : fmt::format("y{}", i), "s", "z", "w", "ws", "wz", "s", "z", "b"},
               {fmt::format("y{}", i + 1)}, {{"pads", test::Dims{1, 1, 1, 1}}});
  }
  model.output(fmt::format("y{}", kNodes));
  EXPECT_EQ(model.read().graph.nodes().size(),
            std::size_t{5 * kNodes});  // two operands, bias, Conv, Quantize
  check_growth(model.bytes());
}

TEST(OnnxGrowth, BuiltInModel) {
  const std::span<const std::byte> bytes = resnet20_cifar10_onnx();
  check_growth({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

TEST(OnnxGrowth, OneModelPerOperator) {
  const fs::path folder = "/usr/share/libonnx-testdata/data";
  if (!fs::is_directory(folder)) GTEST_SKIP() << "no " << folder << " (Debian's libonnx-testdata)";
  EXPECT_GT(check_folder(folder, 1 << 14), 500);
}

TEST(OnnxGrowth, ModelsThatStrangersBring) {
  const char* folder = std::getenv("PIPIT_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PIPIT_TEST_DATA does not name a folder of models";
  EXPECT_GT(check_folder(folder, 1 << 23), 10);
}

}  // namespace
}  // namespace pipit::internal
