// parse_model against protobuf's own parser: the same message, but for the weights left in the file.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "models/onnx/parsed_model.h"
#include "tests/models/onnx/onnx_writer.h"

namespace pipit::internal::onnx {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// With the raw data put back.
std::string completed(ParsedModel& model) {
  EXPECT_EQ(model.raw.size(), static_cast<std::size_t>(model.proto.graph().initializer_size()));
  for (std::size_t i = 0; i < model.raw.size(); ++i) {
    if (!model.raw[i]) continue;
    std::string data(model.raw[i]->size, '?');
    model.raw[i]->read(std::as_writable_bytes(std::span(data)));
    auto* tensor = model.proto.mutable_graph()->mutable_initializer(static_cast<int>(i));
    EXPECT_FALSE(tensor->has_raw_data());
    tensor->set_raw_data(data);
  }
  return model.proto.SerializeAsString();
}

std::string by_protobuf(const std::string& bytes) {
  onnx_pb::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  return model.SerializeAsString();
}

onnx_pb::ModelProto sample_model() {
  onnx_pb::ModelProto model;
  model.set_ir_version(8);
  model.set_producer_name("a test");
  for (int i = 0; i < 5; ++i) {
    *model.mutable_graph()->add_initializer() = test::tensor_proto<float>(
        "w" + std::to_string(i), {i}, std::vector<float>(static_cast<std::size_t>(i), 7));
  }
  model.mutable_graph()->mutable_initializer(3)->clear_raw_data();
  model.mutable_graph()->mutable_initializer(3)->add_float_data(1);
  test::set_node(*model.mutable_graph()->add_node(), "Relu", {"x"}, {"y"},
                 {{"t", test::tensor_proto<float>("inside a node", {2}, {1, 2})}});
  return model;
}

TEST(OnnxParsing, AgreesWithProtobuf) {
  const std::string bytes = sample_model().SerializeAsString();
  ParsedModel model = parse_model(bytes_of(bytes));
  ASSERT_EQ(model.raw.size(), 5U);
  EXPECT_TRUE(model.raw[0].has_value());  // empty, but there
  EXPECT_FALSE(model.raw[3].has_value());
  EXPECT_EQ(completed(model), by_protobuf(bytes));
}

TEST(OnnxParsing, MergesWhatComesTwice) {
  // Messages are merged when their bytes follow each other.
  std::string bytes = sample_model().SerializeAsString() + sample_model().SerializeAsString();
  ParsedModel model = parse_model(bytes_of(bytes));
  EXPECT_EQ(model.raw.size(), 10U);
  EXPECT_EQ(completed(model), by_protobuf(bytes));

  // The last of two raw_data counts. The tensor is field 5 of the graph, the graph field 7 of the model.
  const std::string tensor = test::tensor_proto<float>("w", {1}, {1}).SerializeAsString() +
                             test::tensor_proto<float>("w", {2}, {2, 3}).SerializeAsString();
  const std::string graph = std::string{5 << 3 | 2, static_cast<char>(tensor.size())} + tensor;
  bytes = std::string{7 << 3 | 2, static_cast<char>(graph.size())} + graph;
  ASSERT_LT(graph.size(), 128U);
  ParsedModel twice = parse_model(bytes_of(bytes));
  EXPECT_EQ(twice.raw.at(0)->size, 8U);
  EXPECT_EQ(completed(twice), by_protobuf(bytes));
}

TEST(OnnxParsing, SkipsUnknownFieldsOfEveryWireType) {
  // Field 100: a varint, 8 bytes, a string, 4 bytes.
  const std::string unknown = std::string("\xA0\x06\x05", 3) + std::string("\xA1\x06", 2) +
                              std::string(8, 'x') + std::string("\xA2\x06\x02ok", 5) +
                              std::string("\xA5\x06", 2) + std::string(4, 'y');
  const std::string bytes = unknown + sample_model().SerializeAsString() + unknown;
  ParsedModel model = parse_model(bytes_of(bytes));
  EXPECT_EQ(model.proto.graph().initializer_size(), 5);
  EXPECT_EQ(completed(model), by_protobuf(bytes));
}

TEST(OnnxParsing, RefusesLengthsPastTheEnd) {
  // A graph, an initializer and raw data that claim 2 GiB less one byte; one that claims more than an int holds.
  const std::string huge = "\xFF\xFF\xFF\xFF\x07";
  for (const std::string& bytes :
       {"\x3A" + huge, "\x3A\x06\x2A" + huge, "\x3A\x08\x2A\x06\x4A" + huge,
        std::string("\x3A\xFF\xFF\xFF\xFF\x0F"), std::string("\x3A\x02\x2A\x7F"), std::string("\x3A")}) {
    EXPECT_THROW(parse_model(bytes_of(bytes)), Error) << testing::PrintToString(bytes);
  }
}

TEST(OnnxParsing, AFileThatShrinksMeanwhileIsAnError) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "shrinking.onnx";
  const std::string bytes = sample_model().SerializeAsString();
  std::ofstream(file, std::ios::binary) << bytes;
  ParsedModel model = parse_model(file);
  EXPECT_EQ(completed(model), by_protobuf(bytes));
  std::filesystem::resize_file(file, 10);
  std::vector<std::byte> target(model.raw[4]->size);
  EXPECT_THAT([&] { model.raw[4]->read(target); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("has become shorter")));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pipit::internal::onnx
