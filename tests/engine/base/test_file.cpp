#include "engine/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "engine/base/error.h"

namespace pipit {
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

}  // namespace
}  // namespace pipit
