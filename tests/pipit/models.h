// Model files and images that the tests of the public interface need.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace pipit::test {

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

}  // namespace pipit::test
