// Model files and images that the tests of the public interface need.
#pragma once

#include <gtest/gtest.h>
#include <pipit/progress.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace pipit::internal::test {

/// A folder of this test, removed with everything in it.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / ("pipit-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const std::filesystem::path& path() const { return folder_; }

  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

 private:
  std::filesystem::path folder_;
};

/// `side` x `side` pixels, red, green, blue, a pattern that depends on `seed`.
inline std::vector<std::uint8_t> pattern(int side, unsigned seed) {
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      for (unsigned c = 0; c < 3; ++c)
        rgb.push_back(
            static_cast<std::uint8_t>((static_cast<unsigned>(x * 7 + y * 13) * (c + 1 + seed)) % 256));
    }
  }
  return rgb;
}

/// The same as a BMP file of 24 bits: rows from bottom to top, blue first.
inline std::string bmp(int side, unsigned seed) {
  const std::vector<std::uint8_t> rgb = pattern(side, seed);
  const auto little = [](std::size_t value, int bytes) {
    std::string text;
    for (int b = 0; b < bytes; ++b) text += static_cast<char>(value >> (8 * b) & 0xFF);
    return text;
  };
  const auto n = static_cast<std::size_t>(side);
  const std::size_t row = (3 * n + 3) / 4 * 4;
  std::string file = "BM" + little(54 + row * n, 4) + little(0, 4) + little(54, 4);
  file += little(40, 4) + little(n, 4) + little(n, 4) + little(1, 2) + little(24, 2) + std::string(24, '\0');
  for (std::size_t y = n; y-- > 0;) {
    std::string line;
    for (std::size_t x = 0; x < n; ++x) {
      for (std::size_t c = 3; c-- > 0;) line += static_cast<char>(rgb[(y * n + x) * 3 + c]);
    }
    line.resize(row, '\0');
    file += line;
  }
  return file;
}

/// Writes image0.bmp, image1.bmp, ...: `count` files with bmp(side, 0), bmp(side, 1), ...
inline std::vector<std::filesystem::path> write_images(const Scratch& folder, unsigned count, int side = 32) {
  std::vector<std::filesystem::path> files;
  for (unsigned i = 0; i < count; ++i)
    files.push_back(folder.write("image" + std::to_string(i) + ".bmp", bmp(side, i)));
  return files;
}

/// Records the stages of work that reports them.
struct StageLog {
  std::vector<std::string> planned, entered;

  tools::StageProgress progress() {
    return {.planned =
                [this](const std::vector<tools::Stage>& all) {
                  for (const tools::Stage& stage : all) planned.push_back(stage.name);
                },
            .update =
                [this](const std::string& stage, std::int64_t done, std::int64_t total) {
                  EXPECT_LE(done, total) << stage;
                  if (entered.empty() || entered.back() != stage) entered.push_back(stage);
                }};
  }
};

/// Writes an ONNX file of operators without attributes, opset 17.
class Onnx {
 public:
  Onnx& node(const std::string& type, const std::vector<std::string>& inputs, const std::string& output) {
    std::string names;
    for (const std::string& input : inputs) names += bytes(1, input);
    nodes_ += bytes(1, names + bytes(2, output) + bytes(3, output) + bytes(4, type));
    return *this;
  }
  /// `type`: ONNX's number of it; 1 is f32, 7 is i64.
  Onnx& input(const std::string& name, const std::vector<int>& shape, int type = 1) {
    std::string extents;
    for (const int extent : shape) extents += bytes(1, number(1, extent));
    inputs_ += bytes(11, bytes(1, name) + bytes(2, bytes(1, number(1, type) + bytes(2, extents))));
    return *this;
  }
  Onnx& output(const std::string& name) {
    outputs_ += bytes(12, bytes(1, name));
    return *this;
  }
  std::string file() const {
    const std::string graph = nodes_ + bytes(2, "graph") + inputs_ + outputs_;
    return number(1, 8) + bytes(7, graph) + bytes(8, number(2, 17));
  }

 private:
  static std::string varint(std::size_t value) {
    std::string text;
    for (; value > 0x7F; value >>= 7) text += static_cast<char>((value & 0x7F) | 0x80);
    return text + static_cast<char>(value);
  }
  static std::string number(int field, int value) {
    return varint(static_cast<std::size_t>(field) << 3) + varint(static_cast<std::size_t>(value));
  }
  static std::string bytes(int field, const std::string& content) {
    return varint(static_cast<std::size_t>(field) << 3 | 2) + varint(content.size()) + content;
  }
  std::string nodes_, inputs_, outputs_;
};

/// An ONNX file: operators of one input and no attributes, one after the other, on an input [1, channels, 1, 1].
inline std::string chain(int channels, const std::vector<std::string>& operators) {
  Onnx onnx;
  std::string value = "x";
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const std::string next = i + 1 == operators.size() ? "y" : "v" + std::to_string(i);
    onnx.node(operators[i], {value}, next);
    value = next;
  }
  return onnx.input("x", {1, channels, 1, 1}).output("y").file();
}

}  // namespace pipit::internal::test
