#include "models/run_files.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "engine/base/error.h"
#include "models/catalogue.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class RunFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / ("pipit-run-files-" + std::to_string(getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder / "images" / "cat");
    write("model.onnx", "m");
    write("images/cat/a.jpg", "\xff\xd8\xff\xe0");
    write("images/notes.txt", "n");
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr) cache_before = cache;
    setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
  }
  void TearDown() override {
    if (cache_before) {
      setenv("XDG_CACHE_HOME", cache_before->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
    fs::remove_all(folder);
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
  }
  std::string lost(const fs::path& output, const fs::path& input) const {
    return replaced_by(output, std::array{(folder / input).string()});
  }
  fs::path folder;
  std::optional<std::string> cache_before;
};

TEST_F(RunFiles, AFileIsKnownUnderEveryName) {
  fs::create_symlink("model.onnx", folder / "link");
  fs::create_hard_link(folder / "model.onnx", folder / "hard");
  fs::create_directory_symlink("images", folder / "pictures");
  for (const char* name : {"model.onnx", "link", "hard", "images/../model.onnx", "./model.onnx"})
    EXPECT_THAT(lost(folder / name, "model.onnx"), AllOf(HasSubstr(name), HasSubstr("model.onnx'")));
  EXPECT_THAT(lost(folder / "pictures/cat/a.jpg", "images"), HasSubstr("an image of"));
  EXPECT_THAT(lost(folder / "images/notes.txt", "images"), IsEmpty());
  EXPECT_THAT(lost(folder / "other.onnx", "model.onnx"), IsEmpty());
  EXPECT_THAT(lost("/dev/null", "model.onnx"), IsEmpty());
  // A link under a name that says nothing of images.
  fs::create_symlink("images/cat/a.jpg", folder / "plan.json");
  EXPECT_THAT(lost(folder / "plan.json", "images"), HasSubstr("plan.json"));
  // What is not there yet is one file, too.
  EXPECT_TRUE(same_file(folder / "new", folder / "images" / ".." / "new"));
  EXPECT_FALSE(same_file(folder / "new", folder / "newer"));
  EXPECT_FALSE(same_file("", ""));
}

TEST_F(RunFiles, WhatPipitKeepsStays) {
  for (const char* name :
       {"efficientnet-lite0.onnx", "efficientnet-lite2.onnx", "tuning.json", "ceilings.json"})
    EXPECT_THAT(replaced_by(folder / "cache" / "pipit" / name, {}), HasSubstr("pipit keeps")) << name;
  EXPECT_THAT(replaced_by(folder / "cache" / "pipit" / "mine.onnx", {}), IsEmpty());
  fs::create_directories(folder / "cache" / "pipit");
  write("cache/pipit/efficientnet-lite0.onnx", "m");
  fs::create_symlink("cache/pipit/efficientnet-lite0.onnx", folder / "link");
  EXPECT_THAT(replaced_by(folder / "link", {}), HasSubstr("efficientnet-lite0"));
}

TEST_F(RunFiles, CheckingNamesBothFiles) {
  const std::array inputs = {std::string(), (folder / "model.onnx").string()};
  EXPECT_THAT([&] { check_output_file(folder / "images" / ".." / "model.onnx", inputs); },
              ThrowsMessage<Error>(AllOf(HasSubstr((folder / "images/../model.onnx").string()),
                                         HasSubstr((folder / "model.onnx").string()))));
  EXPECT_NO_THROW(check_output_file(folder / "new.json", inputs));
  EXPECT_THROW(check_output_file("", inputs), ArgumentError);
  EXPECT_THAT([&] { check_output_file(folder / "none" / "new.json", inputs); },
              ThrowsMessage<Error>(HasSubstr("cannot be written")));
}

}  // namespace
}  // namespace pipit::internal
