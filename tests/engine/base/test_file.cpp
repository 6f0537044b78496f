#include "engine/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(File, WritesToAPipeAndDoesNotReplaceIt) {
  const std::filesystem::path path = testing::TempDir() + "/pipit-fifo-test";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file(path, "four");
  std::array<char, 8> got{};
  EXPECT_EQ(read(reader, got.data(), got.size()), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  close(reader);
  std::filesystem::remove(path);
}

// /dev/stdout where the shell was told ">> file": what is there stays, and the file need not have a name any more.
TEST(File, AddsToWhatTheProcessHasOpen) {
  const std::filesystem::path path = testing::TempDir() + "/pipit-open-test";
  const std::filesystem::path link = testing::TempDir() + "/pipit-open-test-link";
  std::filesystem::remove(link);
  write_file(path, "one ");
  const int file = open(path.c_str(), O_RDWR | O_APPEND);
  ASSERT_GE(file, 0);
  const std::filesystem::path name = "/proc/self/fd/" + std::to_string(file);
  std::filesystem::create_symlink(name, link);
  for (const std::filesystem::path& given : {name, link}) {
    check_writable(given);
    write_file(given, "two ");
  }
  EXPECT_EQ(read_file(path, 100), "one two two ");
  std::filesystem::remove(path);
  check_writable(name);
  write_file(name, "three");
  std::array<char, 32> got{};
  EXPECT_EQ(pread(file, got.data(), got.size(), 0), 17);
  EXPECT_EQ(std::string(got.data()), "one two two three");
  EXPECT_FALSE(std::filesystem::exists(path));
  close(file);
  std::filesystem::remove(link);
}

TEST(File, RefusesWhatIsOpenForReadingOrElsewhere) {
  const std::filesystem::path path = testing::TempDir() + "/pipit-read-only-test";
  write_file(path, "one");
  const int file = open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  const std::filesystem::path name = "/proc/self/fd/" + std::to_string(file);
  EXPECT_THAT([&] { check_writable(name); }, ThrowsMessage<Error>(HasSubstr("open for reading only")));
  EXPECT_THROW(write_file(name, "two"), Error);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const std::filesystem::path other = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(file);
  EXPECT_THAT([&] { check_writable(other); }, ThrowsMessage<Error>(HasSubstr("another process")));
  EXPECT_THROW(write_file(other, "two"), Error);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(read_file(path, 100), "one");
  close(file);
  std::filesystem::remove(path);
}

TEST(File, CheckingFindsWhatWritingWould) {
  const std::filesystem::path folder = testing::TempDir() + "/pipit-writable-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "closed");
  std::filesystem::create_directory_symlink("round", folder / "round");
  write_file(folder / "there", "x");
  std::filesystem::create_symlink("there", folder / "link");
  for (const char* good : {"new", "there", "link", "round"})
    EXPECT_NO_THROW(check_writable(folder / good)) << good;
  EXPECT_NO_THROW(check_writable("/dev/null"));
  std::vector<std::filesystem::path> bad = {folder, folder / "no" / "file", folder / "there" / "file",
                                            folder / std::string(300, 'x')};
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_read);
  if (geteuid() != 0) bad.push_back(folder / "closed" / "file");
  for (const std::filesystem::path& path : bad) {
    EXPECT_THAT([&] { check_writable(path); }, ThrowsMessage<Error>(HasSubstr(path.string())));
    EXPECT_THROW(write_file(path, "x"), Error) << path;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 4);
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_all);
  std::filesystem::remove_all(folder);
}

TEST(File, CheckingKnowsFoldersInWhichOnlyOwnersReplace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const std::filesystem::path folder = testing::TempDir() + "/pipit-sticky-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write_file(folder / "theirs", "x");
  std::filesystem::permissions(folder, std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  EXPECT_NO_THROW(check_writable(folder / "mine"));
  EXPECT_THAT([&] { check_writable(folder / "theirs"); }, ThrowsMessage<Error>(HasSubstr("another user")));
  EXPECT_THROW(write_file(folder / "theirs", "y"), Error);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_NO_THROW(check_writable(folder / "theirs"));
  EXPECT_EQ(read_file(folder / "theirs", 10), "x");
  std::filesystem::remove_all(folder);
}

TEST(File, IsWrittenInFullOrNotAtAll) {
  const std::filesystem::path folder = testing::TempDir() + "/pipit-file-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / "out.txt";
  write_file(path, "one");
  write_file(path, "three");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "three");
  EXPECT_THROW(write_file(folder, "x"), Error);
  EXPECT_THROW(write_file(folder / "no" / "file", "x"), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // nothing is left beside
  std::filesystem::create_symlink("out.txt", folder / "link");
  write_file(folder / "link", "through");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(std::filesystem::file_size(path), 7U);
  std::filesystem::remove_all(folder);
}

TEST(File, ReplacedKeepsItsModeAndOwner) {
  const std::filesystem::path path = testing::TempDir() + "/pipit-mode-test";
  std::filesystem::remove(path);
  write_file(path, "old");
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(path.c_str(), 12, 34), 0);
  }
  ASSERT_EQ(chmod(path.c_str(), 04640), 0);
  write_file(path, "new");
  struct stat now = {};
  ASSERT_EQ(stat(path.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 07777, 0640U);
  EXPECT_EQ(now.st_uid, root ? 12U : geteuid());
  EXPECT_EQ(now.st_gid, root ? 34U : getegid());
  EXPECT_EQ(now.st_size, 3);
  std::filesystem::remove(path);
}

// An empty folder of this name, and what lies in it afterwards.
std::filesystem::path empty_folder(const std::string& name) {
  std::filesystem::path folder = testing::TempDir() + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::ptrdiff_t entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(FileWriter, WritesPiecesAndLeavesNothingUnfinished) {
  const std::filesystem::path folder = empty_folder("/pipit-writer-test");
  {
    FileWriter unfinished(folder / "out");
    unfinished.write("half");
  }
  EXPECT_EQ(entries(folder), 0);
  write_file(folder / "out", "old");
  {
    FileWriter unfinished(folder / "out");
    unfinished.write("half");
  }
  EXPECT_EQ(read_file(folder / "out", 10), "old");
  FileWriter writer(folder / "out");
  writer.write("one ");
  writer.write("");
  writer.write("two");
  EXPECT_EQ(read_file(folder / "out", 10), "old");
  writer.finish();
  EXPECT_EQ(read_file(folder / "out", 10), "one two");
  EXPECT_EQ(entries(folder), 1);
  std::filesystem::remove_all(folder);
}

TEST(FileWriter, KeepsWhatHasTheName) {
  const std::filesystem::path folder = empty_folder("/pipit-keeping-test");
  write_file(folder / "from", "new");
  write_file(folder / "there", "old");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("there", folder / "link");
  for (const char* name : {"there", "dangling", "link"})
    EXPECT_THAT([&] { copy_as_new(folder / "from", folder / name); }, ThrowsMessage<Error>(HasSubstr(name)));
  EXPECT_EQ(read_file(folder / "there", 10), "old");
  EXPECT_EQ(entries(folder), 4);
  EXPECT_THAT([&] { copy_as_new(folder / "none", folder / "copy"); },
              ThrowsMessage<Error>(HasSubstr("none")));
  EXPECT_EQ(entries(folder), 4);
  copy_as_new(folder / "from", folder / "copy");
  EXPECT_EQ(read_file(folder / "copy", 10), "new");
  EXPECT_EQ(entries(folder), 5);
  std::filesystem::remove_all(folder);
}

// Another process has taken the name by the time that the file is whole.
TEST(FileWriter, KeepsWhatTookTheNameMeanwhile) {
  const std::filesystem::path folder = empty_folder("/pipit-meanwhile-test");
  {
    FileWriter writer(folder / "out", FileWriter::Existing::kept);
    writer.write("ours");
    write_file(folder / "out", "theirs");
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_EQ(read_file(folder / "out", 10), "theirs");
  EXPECT_EQ(entries(folder), 1);
  std::filesystem::remove_all(folder);
}

TEST(FileWriter, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  EXPECT_THAT([] { write_file("/dev/full", "x"); }, ThrowsMessage<Error>(HasSubstr("/dev/full")));
}

TEST(File, SameContentLooksAtEveryByte) {
  const std::filesystem::path folder = empty_folder("/pipit-same-test");
  std::string large(3 << 20, 'x');
  write_file(folder / "a", large);
  write_file(folder / "b", large);
  large.back() = 'y';
  write_file(folder / "c", large);
  write_file(folder / "d", large + "y");
  std::filesystem::create_symlink("a", folder / "link");
  EXPECT_TRUE(same_content(folder / "a", folder / "b"));
  EXPECT_TRUE(same_content(folder / "a", folder / "link"));
  EXPECT_FALSE(same_content(folder / "a", folder / "c"));
  EXPECT_FALSE(same_content(folder / "c", folder / "d"));
  EXPECT_FALSE(same_content(folder / "d", folder / "c"));
  EXPECT_FALSE(same_content(folder / "a", folder / "none"));
  EXPECT_FALSE(same_content(folder / "a", folder));
  std::filesystem::remove_all(folder);
}

class FileLocks : public testing::Test {
 protected:
  FileLocks() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FileLocks() override { std::filesystem::remove_all(folder_); }
  static constexpr std::chrono::milliseconds kSoon{20};
  // One for each process: the tests run side by side.
  const std::filesystem::path folder_ = fmt::format("{}/pipit-lock-test-{}", testing::TempDir(), getpid());
  const std::filesystem::path path_ = folder_ / "times.json";
  const std::filesystem::path name_ = folder_ / "times.json.lock";
};

TEST_F(FileLocks, WhatOthersMayReadHoldsNobodyUp) {
  write_file(path_, "{}");
  const std::array<int, 2> theirs = {open(folder_.c_str(), O_RDONLY), open(path_.c_str(), O_RDONLY)};
  for (const int descriptor : theirs) ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  EXPECT_EQ(FileLock(path_, kSoon).problem(), "");
  for (const int descriptor : theirs) close(descriptor);
}

TEST_F(FileLocks, IsAFileForItsUserAloneWhileItIsHeld) {
  const mode_t before = umask(0);
  {
    const FileLock lock(path_);
    struct stat status = {};
    ASSERT_EQ(stat(name_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600);
    EXPECT_THAT(FileLock(path_, kSoon).problem(),
                testing::AllOf(testing::StartsWith(name_.string()), HasSubstr("another process"),
                               HasSubstr("0.02 s")));
    EXPECT_EQ(FileLock(folder_ / "other.json", kSoon).problem(), "");
  }
  umask(before);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  write_file(name_, "left by a process that was killed");
  EXPECT_EQ(FileLock(path_, kSoon).problem(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileLocks, WhatStandsInItsPlaceIsNotWaitedFor) {
  write_file(path_, "{}");
  for (int kind = 0; kind < 3; ++kind) {
    if (kind == 0) std::filesystem::create_symlink("times.json", name_);
    if (kind == 1) std::filesystem::create_directory(name_);
    if (kind == 2) {
      ASSERT_EQ(mkfifo(name_.c_str(), 0666), 0);
    }
    EXPECT_THAT(FileLock(path_).problem(),
                testing::AllOf(testing::StartsWith(name_.string()), HasSubstr("delete it")));
    EXPECT_EQ(read_file(path_, 10), "{}");
    std::filesystem::remove(name_);
  }
}

TEST_F(FileLocks, WhatAnotherUserHasLockedIsNotWaitedFor) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  write_file(name_, "");
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(chown(name_.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(FileLock(path_).problem(), "");  // left there
  write_file(name_, "");
  ASSERT_EQ(chown(name_.c_str(), kNobody, kNobody), 0);
  const int theirs = open(name_.c_str(), O_RDONLY);
  ASSERT_EQ(flock(theirs, LOCK_EX), 0);
  EXPECT_THAT(FileLock(path_).problem(), HasSubstr("another user"));
  EXPECT_TRUE(std::filesystem::exists(name_));
  close(theirs);
}

class CacheFolder : public testing::Test {
 protected:
  void TearDown() override { unsetenv("PIPIT_CACHE_DIR"); }
};

TEST_F(CacheFolder, IsTheOneThatTheVariableNames) {
  unsetenv("PIPIT_CACHE_DIR");
  const std::filesystem::path usual = cache_folder();
  setenv("PIPIT_CACHE_DIR", "", 1);
  EXPECT_EQ(cache_folder(), usual);
  setenv("PIPIT_CACHE_DIR", "/a/folder", 1);
  EXPECT_EQ(cache_folder(), "/a/folder");
  setenv("PIPIT_CACHE_DIR", "a/folder", 1);
  EXPECT_THAT([] { cache_folder(); },
              ThrowsMessage<Error>("PIPIT_CACHE_DIR is 'a/folder'; expected an absolute path"));
}

}  // namespace
}  // namespace pipit::internal
