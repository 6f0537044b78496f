// Tensor payloads of ONNX files: the three places where they lie, and every error that they can have.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/models/onnx/onnx_writer.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using test::Dims;
using test::OnnxWriter;
using test::tensor_proto;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model that passes one initializer on, so that its output is the tensor as read.
OnnxWriter holding(const onnx_pb::TensorProto& tensor) {
  OnnxWriter model;
  *model.graph().add_initializer() = tensor;
  model.graph().mutable_initializer(0)->set_name("w");
  model.node("Identity", {"w"}, {"y"}).output("y");
  return model;
}

const Tensor& only_constant(const OnnxModel& model) {
  const Value& value = model.graph.value(model.graph.outputs().at(0));
  EXPECT_EQ(model.graph.output_names().at(0), "y");
  if (value.constant == nullptr) fail("output 'y' is not a constant");
  return *value.constant;
}

template <typename T>
std::vector<T> read_values(const onnx_pb::TensorProto& tensor) {
  const OnnxModel model = holding(tensor).read();
  const auto values = only_constant(model).values<T>();
  return {values.begin(), values.end()};
}

template <typename T>
class OnnxRawTensor : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, std::int8_t, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(OnnxRawTensor, ElementTypes);

TYPED_TEST(OnnxRawTensor, KeepsItsElements) {
  const std::vector<TypeParam> values = {0, 1, 2, 3, 4, std::numeric_limits<TypeParam>::lowest()};
  EXPECT_EQ(read_values<TypeParam>(tensor_proto<TypeParam>("w", {2, 3}, values)), values);
}

TEST(OnnxTensor, TypedFieldsHoldEveryElementType) {
  onnx_pb::TensorProto tensor;
  tensor.add_dims(2);
  tensor.set_data_type(1);
  tensor.add_float_data(1.5F);
  tensor.add_float_data(-2);
  EXPECT_THAT(read_values<float>(tensor), ElementsAre(1.5F, -2));
  tensor.clear_float_data();
  tensor.set_data_type(11);
  tensor.add_double_data(0.1);
  tensor.add_double_data(2);
  EXPECT_THAT(read_values<double>(tensor), ElementsAre(0.1, 2));
  tensor.clear_double_data();
  tensor.set_data_type(7);
  tensor.add_int64_data(std::int64_t{1} << 40);
  tensor.add_int64_data(-1);
  EXPECT_THAT(read_values<std::int64_t>(tensor), ElementsAre(std::int64_t{1} << 40, -1));
  tensor.clear_int64_data();
  tensor.add_int32_data(100);
  tensor.add_int32_data(-1);
  tensor.set_data_type(6);
  EXPECT_THAT(read_values<std::int32_t>(tensor), ElementsAre(100, -1));
  tensor.set_data_type(3);
  EXPECT_THAT(read_values<std::int8_t>(tensor), ElementsAre(100, -1));
  tensor.set_data_type(9);
  EXPECT_THAT(read_values<bool>(tensor), ElementsAre(true, true));
  tensor.set_data_type(2);
  EXPECT_THAT(holding(tensor).failure<Error>(), HasSubstr("initializer 'w': the element -1 is outside"));
}

TEST(OnnxTensor, BoolBytesBecomeZeroOrOne) {
  auto tensor = tensor_proto<std::uint8_t>("w", {3}, {0, 1, 7});
  tensor.set_data_type(9);
  const OnnxModel model = holding(tensor).read();
  const std::byte* bytes = only_constant(model).view().data;
  EXPECT_THAT(std::vector<std::byte>(bytes, bytes + 3),
              ElementsAre(std::byte{0}, std::byte{1}, std::byte{1}));
}

TEST(OnnxTensor, EmptyAndScalar) {
  EXPECT_TRUE(read_values<float>(tensor_proto<float>("w", {3, 0}, {})).empty());
  EXPECT_THAT(read_values<float>(tensor_proto<float>("w", {}, {4})), ElementsAre(4));
}

TEST(OnnxTensor, HalvesAreWidened) {
  // 1, -2, 2^-24, 65504, infinity; 1, -2, 2^-126, the largest, infinity
  const std::vector<std::uint16_t> halves{0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00};
  const std::vector<std::uint16_t> brains{0x3F80, 0xC000, 0x0080, 0x7F7F, 0x7F80};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool brain : {false, true}) {
    const std::vector<std::uint16_t>& bits = brain ? brains : halves;
    const auto expected = brain ? ElementsAre(1.0F, -2.0F, 0x1p-126F, 0x1.FEp127F, infinity)
                                : ElementsAre(1.0F, -2.0F, 0x1p-24F, 65504.0F, infinity);
    onnx_pb::TensorProto raw;
    raw.set_name("w");
    raw.set_data_type(brain ? 16 : 10);
    raw.add_dims(5);
    onnx_pb::TensorProto typed = raw;
    raw.set_raw_data(bits.data(), bits.size() * sizeof bits[0]);
    for (const std::uint16_t b : bits) typed.add_int32_data(b);
    EXPECT_THAT(read_values<float>(raw), expected);
    EXPECT_THAT(read_values<float>(typed), expected);
    EXPECT_EQ(holding(raw).read().widened, "1 initializer");
  }
}

TEST(OnnxTensor, InputsAndOutputsOfHalvesAreF32) {
  OnnxWriter model = test::one_node(17, "Add", {"x", "w"}).input("x", {2}, 10);
  model.constant<float>("w", {2}, {1, 2});
  model.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(10);
  const OnnxModel read = model.read();
  EXPECT_EQ(read.widened, "input 'x', output 'y'");
  EXPECT_EQ(read.graph.value(read.graph.inputs()[0]).desc, TensorDesc{Shape{2}});
}

TEST(OnnxTensor, BrokenOnesAreRefusedByName) {
  const auto broken = tensor_proto<float>("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  ASSERT_EQ(holding(broken).failure<Error>(), "");
  const auto expect = [&broken](const std::function<void(onnx_pb::TensorProto&)>& change,
                                const char* message) {
    auto tensor = broken;
    change(tensor);
    EXPECT_THAT(holding(tensor).failure<Error>(), AllOf(HasSubstr("initializer 'w': "), HasSubstr(message)));
  };
  using Proto = onnx_pb::TensorProto;
  expect([](Proto& t) { t.mutable_raw_data()->pop_back(); }, "23 bytes for f32 2x3, which takes 24");
  expect([](Proto& t) { t.mutable_raw_data()->push_back(0); }, "25 bytes");
  expect([](Proto& t) { t.clear_raw_data(); }, "0 elements");
  expect([](Proto& t) { t.add_float_data(1); }, "both raw and typed");
  expect([](Proto& t) { t.set_dims(0, -2); }, "negative extent");
  expect(
      [](Proto& t) {
        t.set_dims(0, std::int64_t{1} << 40);
        t.set_dims(1, std::int64_t{1} << 40);
      },
      "overflows");
  expect([](Proto& t) { t.mutable_dims()->Resize(7, 1); }, "7 dimensions; at most 6");
  expect([](Proto& t) { t.clear_data_type(); }, "data type 0");
  expect([](Proto& t) { t.set_data_type(12345); }, "data type 12345");
  expect([](Proto& t) { t.set_data_type(10); }, "24 bytes for f32 2x3, which takes 12");
  expect(
      [](Proto& t) {
        t.set_data_type(16);
        t.clear_raw_data();
        for (int i = 0; i < 6; ++i) t.add_int32_data(i == 5 ? 1 << 16 : 0);
      },
      "65536 is not 16 bits");
  expect([](Proto& t) { t.set_data_type(8); }, "element type string");
  expect([](Proto& t) { t.set_segment("x"); }, "segments");
  expect([](Proto& t) { t.set_data_location(2); }, "data location 2");
  // Claims of memory that the payload does not back; nothing of that size may be allocated first.
  expect([](Proto& t) { t.set_dims(0, 178956971); }, "24 bytes for f32 178956971x3, which takes 2147483652");
  expect([](Proto& t) { t.set_dims(0, std::int64_t{1} << 58); }, "a payload of 24 bytes");
  expect(
      [](Proto& t) {
        t.clear_raw_data();
        t.add_float_data(1);
        t.set_dims(0, std::int64_t{1} << 50);
      },
      "1 elements");
}

// A folder with model.onnx in 'models' and a file outside of it.
class OnnxExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / fmt::format("pipit-external-{}", ::getpid());
    fs::create_directories(root_ / "models" / "sub");
    write(root_ / "models" / "data.bin", 16);
    write(root_ / "models" / "sub" / "data.bin", 8);
    write(root_ / "outside.bin", 8);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Floats 0, 1, 2...
  static void write(const fs::path& file, int floats) {
    std::ofstream stream(file, std::ios::binary);
    for (int i = 0; i < floats; ++i) {
      const auto value = static_cast<float>(i);
      stream.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }

  OnnxModel read(const std::string& location, const std::string& offset = {}, const std::string& length = {},
                 const Dims& dims = {8}) {
    auto tensor = tensor_proto<float>("w", dims, {});
    tensor.clear_raw_data();
    tensor.set_data_location(1);
    const auto entry = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      tensor.add_external_data()->set_key(key);
      tensor.mutable_external_data(tensor.external_data_size() - 1)->set_value(value);
    };
    entry("location", location);
    entry("offset", offset);
    entry("length", length);
    std::ofstream(root_ / "models" / "model.onnx", std::ios::binary) << holding(tensor).bytes();
    return read_onnx(root_ / "models" / "model.onnx");
  }

  std::string failure(const std::string& location, const std::string& offset = {},
                      const std::string& length = {}, const Dims& dims = {8}) {
    try {
      read(location, offset, length, dims);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("model.onnx: initializer 'w': "));
      return e.what();
    }
    return {};
  }

  fs::path root_;
};

TEST_F(OnnxExternalData, ReadsARange) {
  const OnnxModel model = read("data.bin", "16", "32");
  EXPECT_THAT(only_constant(model).values<float>(), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  // Without a length the rest of the file; also from a folder below.
  const OnnxModel rest = read("data.bin", "32");
  EXPECT_THAT(only_constant(rest).values<float>(), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  const OnnxModel below = read("sub/data.bin");
  EXPECT_THAT(only_constant(below).values<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(OnnxExternalData, WithoutALengthMoreThanNeededIsFine) {
  const OnnxModel model = read("data.bin", "16", "", {3});
  EXPECT_THAT(only_constant(model).values<float>(), ElementsAre(4, 5, 6));
}

// As Hugging Face's cache: names in one folder, files in another.
TEST_F(OnnxExternalData, TheFolderOfALinkedModelIsItsFolderToo) {
  read("data.bin", "", "", {16});
  const fs::path names = root_ / "names";
  fs::create_directories(names);
  fs::create_symlink("../models/model.onnx", names / "model.onnx");
  EXPECT_THAT(only_constant(read_onnx(names / "model.onnx")).values<float>()[15],
              15);  // data beside the file
  fs::create_symlink("../models/data.bin", names / "data.bin");
  EXPECT_THAT(only_constant(read_onnx(names / "model.onnx")).values<float>()[15], 15);  // or beside the link
  fs::remove(names / "data.bin");
  fs::create_symlink("../outside.bin", names / "data.bin");
  EXPECT_THROW(read_onnx(names / "model.onnx"), Error);
}

TEST_F(OnnxExternalData, RefusesPathsOutOfTheFolder) {
  EXPECT_THAT(failure("../outside.bin"), HasSubstr("without '..'"));
  EXPECT_THAT(failure("sub/../../outside.bin"), HasSubstr("without '..'"));
  EXPECT_THAT(failure((root_ / "outside.bin").string()), HasSubstr("relative"));
  EXPECT_THAT(failure(std::string("data.bin\0.txt", 13)), HasSubstr("control characters"));
  EXPECT_THAT(failure(""), HasSubstr("expected a path"));
  fs::create_symlink(root_ / "outside.bin", root_ / "models" / "link.bin");
  EXPECT_THAT(failure("link.bin"), HasSubstr("leads out of the model's folder"));
  fs::create_directory_symlink(root_, root_ / "models" / "up");
  EXPECT_THAT(failure("up/outside.bin"), HasSubstr("leads out of the model's folder"));
  // A link that stays inside is fine.
  fs::create_symlink("sub/data.bin", root_ / "models" / "inner.bin");
  EXPECT_EQ(failure("inner.bin"), "");
}

TEST_F(OnnxExternalData, RefusesRangesOutOfTheFile) {
  EXPECT_THAT(failure("data.bin", "65"), HasSubstr("offset 65 of 64 bytes"));
  EXPECT_THAT(failure("data.bin", "40", "32"), HasSubstr("32 bytes at offset 40 of 64"));
  EXPECT_THAT(failure("data.bin", "40", "18446744073709551600"), HasSubstr("at offset 40 of 64"));
  EXPECT_THAT(failure("data.bin", "-8", "32"), HasSubstr("offset is '-8'"));
  EXPECT_THAT(failure("data.bin", "99999999999999999999999"), HasSubstr("expected a number"));
  EXPECT_THAT(failure("data.bin", "0", "24"), HasSubstr("24 bytes for f32 8, which takes 32"));
  EXPECT_THAT(failure("data.bin", "0", "32", {std::int64_t{1} << 58}), HasSubstr("a payload of 32 bytes"));
  EXPECT_THAT(failure("missing.bin"), HasSubstr("is not a file"));
  EXPECT_THAT(failure("sub"), HasSubstr("is not a file"));
}

TEST(OnnxTensor, MemoryModelsMayNotReferToFiles) {
  auto tensor = tensor_proto<float>("w", {1}, {});
  tensor.clear_raw_data();
  tensor.set_data_location(1);
  tensor.add_external_data()->set_key("location");
  tensor.mutable_external_data(0)->set_value("data.bin");
  EXPECT_THAT(holding(tensor).failure<Error>(), HasSubstr("may not refer to files"));
}

TEST(OnnxTensor, ReadsTensorFiles) {
  const fs::path file = fs::path(::testing::TempDir()) / fmt::format("pipit-tensor-{}.pb", ::getpid());
  std::ofstream(file, std::ios::binary)
      << tensor_proto<std::int32_t>("x", {1, 2}, {5, -6}).SerializeAsString();
  const NamedTensor read = read_named_tensor(file);
  EXPECT_EQ(read.name, "x");
  EXPECT_EQ(read.tensor.shape(), (Shape{1, 2}));
  EXPECT_THAT(read.tensor.values<std::int32_t>(), ElementsAre(5, -6));
  fs::remove(file);
  EXPECT_THROW(read_named_tensor(file), Error);
}

}  // namespace
}  // namespace pipit::internal
