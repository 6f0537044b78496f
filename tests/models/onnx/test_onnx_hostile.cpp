// Damaged bytes of ONNX files: whatever they hold, reading ends with a model or an Error.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>

#include "models/embedded.h"
#include "models/onnx/parsed_model.h"
#include "tests/models/onnx/onnx_writer.h"
#include "tests/support/linear_time.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using test::OnnxWriter;
using ::testing::HasSubstr;

// A bit of everything that the importer looks at.
std::string sample() {
  OnnxWriter model;
  model.input("x", {1, 2, 6, 6}).symbol(0, "N");
  model.constant<float>("w", {2, 2, 3, 3}, std::vector<float>(36, 0.5F)).constant<float>("b", {2}, {1, 2});
  model.node("Conv", {"x", "w", "b"}, {"c"}, {{"pads", test::Dims{1, 1, 1, 1}}, {"group", std::int64_t{1}}});
  model.node("MaxPool", {"c"}, {"p"},
             {{"kernel_shape", test::Dims{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}});
  model.node("Shape", {"p"}, {"s"}).integers("start", {0}).integers("end", {1}).integers("rest", {-1});
  model.node("Slice", {"s", "start", "end"}, {"n"});
  model.node("Concat", {"n", "rest"}, {"t"}, {{"axis", std::int64_t{0}}});
  model.node("Reshape", {"p", "t"}, {"r"}).node("Softmax", {"r"}, {"y"}, {{"axis", std::int64_t{1}}});
  model.node("Double", {"y"}, {"z"}, {}, "local").output("z");
  auto& function = *model.proto().add_functions();
  function.set_name("Double");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  test::set_node(*function.add_node(), "Add", {"a", "a"}, {"b"});
  return model.bytes();
}

// `content` as a length-delimited field.
std::string field(char tag, const std::string& content) {
  std::string length;
  for (std::size_t n = content.size();; n >>= 7) {
    length += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
    if (n <= 127) break;
  }
  return std::string(1, tag) + length + content;
}

// True when it was read, false on an Error; anything else escapes and fails the test.
bool reads(std::string_view bytes) {
  OnnxOptions options;
  options.max_folded_bytes = 1 << 20;
  try {
    parse_onnx(std::as_bytes(std::span(bytes)), {}, options);
    return true;
  } catch (const Error& e) {
    EXPECT_STRNE(e.what(), "");
    return false;
  }
}

TEST(OnnxHostile, TruncatedAtEveryByte) {
  const std::string whole = sample();
  parse_onnx(std::as_bytes(std::span(whole)), {});  // throws where it should be read
  // The fields of the model before its graph are optional, and so are the functions once nothing calls them;
  // what is cut inside the graph must be refused.
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) refused += reads(whole.substr(0, size)) ? 0 : 1;
  EXPECT_EQ(refused, static_cast<int>(whole.size()));
}

TEST(OnnxHostile, TheBuiltInModelTruncatedAtEveryByte) {
  const std::span<const std::byte> bytes = resnet20_cifar10_onnx();
  const std::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ASSERT_TRUE(reads(whole));
  std::size_t read = 0;
  constexpr std::size_t kStep = PIPIT_SANITIZED ? 13 : 1;  // ten times as slow
  for (std::size_t size = 0; size < whole.size(); size += kStep) read += reads(whole.substr(0, size)) ? 1 : 0;
  // What follows the graph is metadata, field by field.
  EXPECT_LT(read, 20U);
}

// A graph that ends early in a model that knows: its nodes, weights and outputs are cut, not its length.
TEST(OnnxHostile, TheBuiltInModelWithEveryKindOfGraphTruncated) {
  onnx_pb::ModelProto model;
  const std::span<const std::byte> bytes = resnet20_cifar10_onnx();
  ASSERT_TRUE(model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  const std::string graph = model.graph().SerializeAsString();
  model.clear_graph();
  const std::string rest = model.SerializeAsString();
  ASSERT_TRUE(reads(rest + field(0x3a, graph)));
  // All of the first nodes and of the last fields, and a prime's multiples between.
  for (std::size_t size = 0; size < graph.size();
       size += size < 1000 || size + 1000 > graph.size() ? 1 : 4999) {
    EXPECT_FALSE(reads(rest + field(0x3a, graph.substr(0, size)))) << size << " bytes of the graph";
  }
}

TEST(OnnxHostile, FlippedBytes) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(fmt::format("PIPIT_TEST_SEED={}", seed));
  std::mt19937 random(seed);
  const std::string whole = sample();
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = whole;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    refused += reads(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

// A large field makes the parser's buffer large, many small ones open it often.
TEST(OnnxHostile, ParsingTakesLinearTime) {
  const auto file = [](int n) {
    OnnxWriter model;
    model.input("x", {1});
    const auto size = static_cast<std::size_t>(n) * 10;
    model.node("Constant", {}, {"large"},
               {{"value", test::tensor_proto<float>("t", {static_cast<std::int64_t>(size)},
                                                    std::vector<float>(size, 1))}});
    for (int i = 0; i < n; ++i) model.node("Relu", {"x"}, {fmt::format("unused{}", i)});
    return model.node("Relu", {"x"}, {"y"}).output("y").bytes();
  };
  test::expect_linear_time(1000, file, [](const std::string& bytes) {
    EXPECT_TRUE(onnx::parse_model(std::as_bytes(std::span(bytes))).proto.has_graph());
  });
}

TEST(OnnxHostile, DeepSubgraphsStopTheParser) {
  std::string nested;
  // ModelProto.graph > node > attribute > g > node > ... as length-delimited fields.
  const auto wrap = [&nested](char tag) { nested = field(tag, nested); };
  for (int i = 0; i < 20000; ++i) {
    wrap(0x32);  // AttributeProto.g
    wrap(0x2a);  // NodeProto.attribute
    wrap(0x0a);  // GraphProto.node
  }
  wrap(0x3a);
  EXPECT_FALSE(reads(nested));
}

TEST(OnnxHostile, LongChainsOfNodesDoNotRecurse) {
  OnnxWriter model;
  model.input("x", {1});
  constexpr int kNodes = 20000;
  for (int i = kNodes; i-- > 0;) {  // last node first, so that sorting has work to do
    model.node("Neg", {i == 0 ? "x" : fmt::format("v{}", i)}, {fmt::format("v{}", i + 1)});
  }
  model.output(fmt::format("v{}", kNodes));
  EXPECT_EQ(model.read().graph.nodes().size(), std::size_t{kNodes});
}

TEST(OnnxHostile, ManyAttributesAreRefusedInTime) {
  std::vector<test::Attribute> attributes;
  for (int i = 0; i < 100000; ++i) attributes.push_back({fmt::format("a{}", i), std::int64_t{0}});
  OnnxWriter model = test::one_node(17, "Relu", {"x"}, attributes).input("x", {1});
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("'a99999'"));
}

TEST(OnnxHostile, HugeNumbersInAttributes) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t value : {kMin, kMin + 1, std::int64_t{-1}, std::int64_t{0}, kMax - 1, kMax}) {
    SCOPED_TRACE(value);
    const test::Dims two = {value, value};
    const test::Dims four = {value, value, value, value};
    OnnxWriter base;
    base.input("x", {1, 2, 6, 6}).constant<float>("w", {2, 2, 1, 1}, {1, 2, 3, 4});
    base.integers("two", two)
        .integers("four", four)
        .integers("eight", {0, 0, value, value, 0, 0, value, value});
    base.output("y");
    const auto refuses = [&](const std::string& op, const test::Names& inputs,
                             const std::vector<test::Attribute>& attributes) {
      OnnxWriter model = base;
      model.node(op, inputs, {"y"}, attributes);
      EXPECT_FALSE(reads(model.bytes())) << op;
    };
    refuses("Conv", {"x", "w"}, {{"group", value}});
    refuses("Conv", {"x", "w"}, {{"strides", two}});
    refuses("Conv", {"x", "w"}, {{"dilations", two}});
    refuses("MaxPool", {"x"}, {{"kernel_shape", two}});
    refuses("DepthToSpace", {"x"}, {{"blocksize", value}});
    if (value < 1) refuses("LRN", {"x"}, {{"size", value}});
    refuses("Transpose", {"x"}, {{"perm", four}});
    if (value != 0) refuses("Conv", {"x", "w"}, {{"pads", four}});
    if (value != 0 && value != -1) refuses("Pad", {"x", "eight"}, {});
    if (value != 0) refuses("Reshape", {"x", "four"}, {});
    if (value != 0 && value != -1) refuses("Flatten", {"x"}, {{"axis", value}});
    if (value != 0 && value != -1) refuses("Softmax", {"x"}, {{"axis", value}});
    if (value != 0) refuses("Tile", {"x", "four"}, {});
    if (value != 0) refuses("ConstantOfShape", {"two"}, {});
    // These clamp their numbers, so that any is valid; they only must survive.
    for (const char* op : {"Shape", "Size"}) {
      OnnxWriter model = base;
      model.node(op, {"x"}, {"y"},
                 op[1] == 'h' ? std::vector<test::Attribute>{{"start", value}, {"end", value}}
                              : std::vector<test::Attribute>{});
      EXPECT_TRUE(reads(model.bytes())) << op;
    }
    OnnxWriter slice = base;
    slice.integers("axes", {2, 3}).node("Slice", {"x", "two", "two", "axes"}, {"y"});
    EXPECT_TRUE(reads(slice.bytes()));
  }
}

TEST(OnnxHostile, FilesThatAreNotModels) {
  const fs::path file = fs::path(::testing::TempDir()) / fmt::format("pipit-not-a-model-{}.onnx", ::getpid());
  const auto message = [&] {
    try {
      read_onnx(file);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(), HasSubstr("no such file"));
  std::ofstream(file) << "<html>not found</html>";
  EXPECT_THAT(message(), HasSubstr("not an ONNX model"));
  std::ofstream(file).flush();
  EXPECT_THAT(message(), HasSubstr("an empty file"));
  fs::resize_file(file, std::uintmax_t{3} << 30);  // sparse
  EXPECT_THAT(message(), HasSubstr("3221225472 bytes"));
  fs::remove(file);
  EXPECT_THAT(message(), HasSubstr("no such file"));
  fs::create_directory(file);
  EXPECT_THAT(message(), HasSubstr("is a folder"));
  fs::remove(file);
}

}  // namespace
}  // namespace pipit::internal
