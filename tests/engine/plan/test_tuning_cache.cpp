#include "engine/plan/tuning_cache.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Tuner::Decision decision(const std::string& kernel, double ms) {
  return {kernel, "64x64", {{kernel, "64x64", ms, {}}, {"other", "", 0, "no memory"}}, false};
}

class TuningCacheTest : public testing::Test {
 protected:
  ~TuningCacheTest() override { fs::remove_all(folder_); }
  void write(const std::string& text) {
    fs::create_directories(folder_);
    std::ofstream(file_) << text;
  }
  const fs::path folder_ = fs::temp_directory_path() / ("pipit-tuning-" + std::to_string(getpid()));
  const fs::path file_ = folder_ / "deep" / ".." / "tuning.json";
};

TEST_F(TuningCacheTest, RoundTrip) {
  EXPECT_TRUE(read_tuning_cache(file_).empty());
  merge_tuning_cache(folder_ / "deep" / "tuning.json",
                     {{"gpu \"a\"", {{"Conv 3x3; f32", decision("tile", 0.125)}}}});
  const TuningCache cache = read_tuning_cache(folder_ / "deep" / "tuning.json");
  ASSERT_EQ(cache.size(), 1U);
  const Tuner::Decision& read = cache.at("gpu \"a\"").at("Conv 3x3; f32");
  EXPECT_EQ(read.kernel, "tile");
  EXPECT_EQ(read.variant, "64x64");
  ASSERT_EQ(read.timed.size(), 2U);
  EXPECT_EQ(read.timed[0].ms, 0.125);
  EXPECT_EQ(read.timed[1].problem, "no memory");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "deep"), {}), 1);  // nothing left beside it
}

TEST_F(TuningCacheTest, MergesWithWhatIsThere) {
  const fs::path file = folder_ / "tuning.json";
  merge_tuning_cache(file, {{"a", {{"1", decision("x", 1)}, {"2", decision("x", 1)}}}});
  merge_tuning_cache(file, {{"a", {{"2", decision("y", 2)}}}, {"b", {{"1", decision("z", 3)}}}});
  const TuningCache cache = read_tuning_cache(file);
  EXPECT_EQ(cache.at("a").at("1").kernel, "x");
  EXPECT_EQ(cache.at("a").at("2").kernel, "y");
  EXPECT_EQ(cache.at("b").at("1").kernel, "z");
}

TEST_F(TuningCacheTest, WritersAtATimeLoseNothing) {
  const fs::path file = folder_ / "tuning.json";
  constexpr int kWriters = 8, kTimes = 5;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kTimes; ++i)
        merge_tuning_cache(file, {{"a", {{std::to_string(writer * kTimes + i), decision("x", 1)}}}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(read_tuning_cache(file).at("a").size(), std::size_t{kWriters * kTimes});
}

TEST_F(TuningCacheTest, OtherFilesAreRefusedByNameAndReplacedByMerging) {
  fs::create_directories(folder_ / "deep");
  const std::string good = R"({"format": "pipit tuning cache 3", "devices": {"d": {"k": )";
  for (const std::string& text : std::vector<std::string>{
           "", "\x01\x02", "[]", "{}", "null", std::string(100000, '['),
           R"({"format": "pipit tuning cache 1", "devices": {}})", R"({"format": 1, "devices": {}})",
           R"({"format": "pipit tuning cache 3", "devices": 3})", good + "1}}}", good + "{}}}}",
           good + R"({"kernel": 1, "variant": "", "timed": []}}}})",
           good + R"({"kernel": "a", "variant": "", "timed": [{"kernel": "a"}]}}}})",
           good + R"({"kernel": "a", "variant": "",
                     "timed": [{"kernel": "a", "variant": "", "ms": -1}]}}}})",
           good + R"({"kernel": "a", "variant": "",
                     "timed": [{"kernel": "a", "variant": "", "ms": 1e999}]}}}})"}) {
    write(text);
    EXPECT_THAT([&] { read_tuning_cache(file_); },
                ThrowsMessage<Error>(AllOf(HasSubstr("tuning.json"), HasSubstr("not a tuning cache"))))
        << text.substr(0, 200);
  }
  merge_tuning_cache(file_, {{"a", {{"1", decision("x", 1)}}}});
  EXPECT_EQ(read_tuning_cache(file_).size(), 1U);
}

TEST_F(TuningCacheTest, DeepNestingIsRefusedWhileItIsRead) {
  fs::create_directories(folder_ / "deep");
  write(R"({"format": "pipit tuning cache 3", "devices": )" + std::string(10'000'000, '['));
  EXPECT_THAT([&] { read_tuning_cache(file_); }, ThrowsMessage<Error>(HasSubstr("nested")));
}

TEST_F(TuningCacheTest, OnlyRegularFilesAreRead) {
  EXPECT_THAT([&] { read_tuning_cache("/dev/zero"); }, ThrowsMessage<Error>(HasSubstr("regular file")));
  EXPECT_THAT([&] { read_tuning_cache(fs::temp_directory_path()); },
              ThrowsMessage<Error>(HasSubstr("regular file")));
  EXPECT_THAT([&] { merge_tuning_cache("/dev/null/tuning.json", {}); },
              ThrowsMessage<Error>(HasSubstr("/dev/null/tuning.json")));
}

}  // namespace
}  // namespace pipit::internal
