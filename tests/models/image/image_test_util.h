// Images by formula (the same as in make_resize_expectations.py), temporary folders and messages of errors.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "models/image/image.h"

namespace pipit::internal::test {

inline Image random_image(int height, int width) {
  Image image = make_image({height, width}, "test");
  auto state = static_cast<std::uint32_t>(height * 65536 + width);
  for (std::uint8_t& value : image.pixels) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint8_t>(state >> 24);
  }
  return image;
}

inline Image pattern_image(int height, int width) {
  Image image = make_image({height, width}, "test");
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      std::uint8_t* pixel = image.row(y) + x * 3;
      pixel[0] = static_cast<std::uint8_t>(7 * x + 3 * y);
      pixel[1] = static_cast<std::uint8_t>((x + y) % 2 * 255);
      pixel[2] = static_cast<std::uint8_t>((x + 2 * y) / 3 % 2 * 200 + 20);
    }
  }
  return image;
}

inline Image source_image(std::string_view name, int height, int width) {
  return name == "random" ? random_image(height, width) : pattern_image(height, width);
}

inline std::vector<std::uint8_t> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

/// A fresh folder that goes when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count = 0;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            fmt::format("pipit-{}-{}-{}", test->test_suite_name(), test->name(), count++);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    return write(name, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }

 private:
  std::filesystem::path path_;
};

/// The message of the E that the call throws; a test failure and "" when it throws none.
template <typename E = Error, typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace pipit::internal::test
