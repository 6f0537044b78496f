#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;

// What write_file() replaces: for a link what it leads to, for a link to nowhere the link.
std::filesystem::path target_of(const std::filesystem::path& path,
                                const std::filesystem::file_status& status) {
  std::error_code ignored;
  const bool link = std::filesystem::exists(status) && std::filesystem::is_symlink(path, ignored);
  return link ? std::filesystem::canonical(path, ignored) : path;
}

// What `path` means where it leads to /proc/PID/fd/N, as /dev/stdout does: no name of a file but what a process has
// open. The file may have no name any more, or be one that is added to: it is no file to replace.
struct OpenFile {
  bool named = false;   // `path` is of that kind
  int descriptor = -1;  // of this process, or -1
};

OpenFile open_file_at(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;  // as the system follows
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error); ++i) {
    const bool has_folder = path.has_parent_path();
    const auto folder = std::filesystem::canonical(has_folder ? path.parent_path() : ".", error);
    if (error) return {};
    const std::string name = path.filename().string();
    if (folder.filename() == "fd" && folder.string().starts_with("/proc/")) {
      const bool own = folder == std::filesystem::canonical("/proc/self/fd", error) ||
                       folder == std::filesystem::canonical("/proc/thread-self/fd", error);
      return {true, own ? std::atoi(name.c_str()) : -1};
    }
    path = folder / std::filesystem::read_symlink(path, error);
  }
  return {};
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

// In containers every process has the same number: a random name, so that what a killed process left does not collide.
std::filesystem::path beside(const std::filesystem::path& target) {
  std::random_device random;
  return target.string() + fmt::format(".{:08x}{:08x}.tmp", random(), random());
}

// The permissions of the file that is replaced, but no set-user-ID that another program was given, and its owner and
// group as far as this user may give a file away.
bool resemble(int descriptor, const std::filesystem::path& target) {
  struct stat old = {};
  if (stat(target.c_str(), &old) != 0) return true;
  if (fchown(descriptor, old.st_uid, old.st_gid) != 0 && fchown(descriptor, uid_t(-1), old.st_gid) != 0 &&
      errno != EPERM)
    return false;
  return fchmod(descriptor, old.st_mode & 0777) == 0;
}

// Whether `folder` is one like /tmp, in which only the owner of `file`, which is there, may rename over it.
bool keeps_for_owner(const std::filesystem::path& folder, const std::filesystem::path& file) {
  struct stat of_folder = {};
  struct stat of_file = {};
  if (stat(folder.c_str(), &of_folder) != 0 || lstat(file.c_str(), &of_file) != 0) return false;
  const uid_t user = geteuid();
  return (of_folder.st_mode & S_ISVTX) != 0 && user != 0 && user != of_file.st_uid &&
         user != of_folder.st_uid;
}

// Puts all of `content` there; false with errno where that fails.
bool put(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, const std::string& reason) {
  fail("{}: cannot be written: {}", path.string(), reason);
}

// A descriptor that goes on where the one of this process that `path` names is.
int copy_of_open_file(const std::filesystem::path& path) {
  const int named = open_file_at(path).descriptor;
  if (named < 0) fail_to_write(path, "it is what another process has open");
  const int flags = fcntl(named, F_GETFL);
  if (flags < 0) fail_to_write(path, std::strerror(errno));
  if ((flags & O_ACCMODE) == O_RDONLY) fail_to_write(path, "it is open for reading only");
  const int copy = fcntl(named, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail_to_write(path, std::strerror(errno));
  return copy;
}

}  // namespace

bool is_missing(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::string read_file(const std::filesystem::path& path, std::uint64_t most_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail("{}: there is no such file", path.string());
  if (status.type() == fs::file_type::none) fail("{}: {}", path.string(), error.message());
  if (fs::is_directory(status)) fail("{}: is a folder, not a regular file", path.string());
  if (!fs::is_regular_file(status)) fail("{}: is a pipe or device, not a regular file", path.string());
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) fail("{}: {}", path.string(), error.message());
  if (bytes > most_bytes) fail("{}: {} bytes, at most {} are read", path.string(), bytes, most_bytes);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  std::string content(bytes, '\0');
  if (!file.read(content.data(), static_cast<std::streamsize>(bytes)))
    fail("{}: cannot be read", path.string());
  return content;
}

void check_writable(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) fail("{}: is a folder", path.string());
  if (fs::is_regular_file(status) && open_file_at(path).named) {
    close(copy_of_open_file(path));
    return;
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (access(path.c_str(), W_OK) != 0)
      fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
    return;
  }
  // A file is replaced through its folder, whatever its own permissions are.
  const fs::path target = target_of(path, status);
  const fs::path folder = folder_of(target);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail("{}: cannot be written: {} is not a folder{}", path.string(), folder.string(),
         error ? " (" + error.message() + ")" : "");
  }
  // Names that are too long, links in a circle.
  if (!fs::status_known(fs::symlink_status(beside(target), error)))
    fail("{}: cannot be written: {}", path.string(), error.message());
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot be written: folder {}: {}", path.string(), folder.string(), std::strerror(errno));
  if (keeps_for_owner(folder, target))
    fail(
        "{}: cannot be written: it belongs to another user, and in folder {} (sticky) only its owner may "
        "replace it",
        path.string(), folder.string());
}

FileWriter::FileWriter(std::filesystem::path path, Existing existing)
    : path_(std::move(path)), existing_(existing) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path_, ignored);
  if (std::filesystem::is_directory(status)) fail("{}: is a folder", path_.string());
  if (existing_ == Existing::kept) {
    target_ = path_;
  } else if (std::filesystem::is_regular_file(status) && open_file_at(path_).named) {
    descriptor_ = copy_of_open_file(path_);
    return;
  } else if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    open_device();
    return;
  } else {
    target_ = target_of(path_, status);
  }
  // Without a name it is gone when the process is killed; not every file system can do that.
  descriptor_ = open(folder_of(target_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
  if (descriptor_ >= 0 && access(self.c_str(), F_OK) == 0) return;
  if (descriptor_ >= 0) close(descriptor_);
  open_named();
}

// Never makes a file or cuts one off: what stood there may be another one by now.
void FileWriter::open_device() {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor_ < 0) fail_to_write(path_, std::strerror(errno));
  struct stat opened = {};
  if (fstat(descriptor_, &opened) == 0 && !S_ISREG(opened.st_mode)) return;
  close(descriptor_);
  fail_to_write(path_, "another file was put in its place");
}

void FileWriter::open_named() {
  std::error_code ignored;
  // Other users never see what they may not read: finish() takes the permissions of the file that is replaced.
  const mode_t mode = std::filesystem::exists(target_, ignored) ? 0600 : 0666;
  const std::filesystem::path name = beside(target_);
  // Exclusively: never through a file or link that another process put there.
  descriptor_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (descriptor_ < 0) fail_to_write(path_, std::strerror(errno));
  temporary_ = name;
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) close(descriptor_);
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void FileWriter::write(std::string_view content) {
  if (!put(descriptor_, content)) fail_to_write(path_, std::strerror(errno));
}

void FileWriter::finish() {
  if (!target_.empty()) {
    settle();
    give_name();
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0 && errno != EINTR) fail_to_write(path_, std::strerror(errno));
}

void FileWriter::settle() {
  if (existing_ == Existing::replaced && !resemble(descriptor_, target_))
    fail_to_write(path_, std::strerror(errno));
  if (fsync(descriptor_) != 0) fail_to_write(path_, std::strerror(errno));
}

// A hard link is made only where nothing has the name yet; a rename replaces what has.
void FileWriter::give_name() {
  const bool keeps = existing_ == Existing::kept;
  if (temporary_.empty()) {
    const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
    const std::filesystem::path name = keeps ? target_ : beside(target_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      if (keeps) return;
      temporary_ = name;
    } else if (errno == EEXIST) {
      fail_to_write(path_, std::strerror(errno));
    } else {
      move_to_named();
    }
  }
  if (keeps) {
    if (link(temporary_.c_str(), target_.c_str()) != 0) fail_to_write(path_, std::strerror(errno));
    return;  // the other name goes with the writer
  }
  std::error_code error;
  std::filesystem::rename(temporary_, target_, error);
  if (error) fail_to_write(path_, error.message());
  temporary_.clear();
}

// Where the file system cannot give a name to what has none.
void FileWriter::move_to_named() {
  const int unnamed = std::exchange(descriptor_, -1);
  std::vector<char> block(kBlock);
  try {
    open_named();
    ssize_t count = 0;
    for (off_t at = 0; (count = pread(unnamed, block.data(), block.size(), at)) > 0; at += count)
      write({block.data(), static_cast<std::size_t>(count)});
    if (count < 0) fail_to_write(path_, std::strerror(errno));
    settle();
  } catch (...) {
    close(unnamed);
    throw;
  }
  close(unnamed);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  FileWriter writer(path);
  writer.write(content);
  writer.finish();
}

void copy_as_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::ifstream source(from, std::ios::binary);
  if (!source) fail("{}: cannot be opened: {}", from.string(), std::strerror(errno));
  FileWriter writer(to, FileWriter::Existing::kept);
  std::vector<char> block(kBlock);
  while (source) {
    source.read(block.data(), static_cast<std::streamsize>(block.size()));
    writer.write({block.data(), static_cast<std::size_t>(source.gcount())});
  }
  if (!source.eof()) fail("{}: cannot be read", from.string());
  writer.finish();
}

bool same_content(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  if (std::filesystem::equivalent(a, b, ignored)) return true;
  for (const std::filesystem::path& path : {a, b}) {
    if (!std::filesystem::is_regular_file(path, ignored)) return false;
  }
  std::ifstream left(a, std::ios::binary);
  std::ifstream right(b, std::ios::binary);
  std::vector<char> of_left(kBlock);
  std::vector<char> of_right(of_left.size());
  while (left && right) {
    left.read(of_left.data(), static_cast<std::streamsize>(of_left.size()));
    right.read(of_right.data(), static_cast<std::streamsize>(of_right.size()));
    if (left.gcount() != right.gcount() ||
        !std::equal(of_left.begin(), of_left.begin() + left.gcount(), of_right.begin()))
      return false;
  }
  return left.eof() && right.eof();
}

FileLock::FileLock(const std::filesystem::path& path, std::chrono::milliseconds patience)
    : name_(path.string() + ".lock") {
  constexpr std::chrono::milliseconds kPause(10);
  Try result = try_once();
  for (auto waited = kPause; result == Try::held && waited <= patience; waited += kPause) {
    std::this_thread::sleep_for(kPause);
    result = try_once();
  }
  if (result == Try::held) {
    problem_ = fmt::format("{}: another process has kept it locked for {:g} s", name_.string(),
                           std::chrono::duration<double>(patience).count());
  } else if (result == Try::foreign) {
    problem_ = fmt::format("{}: belongs to another user, or is not a file; delete it", name_.string());
  }
}

FileLock::Try FileLock::try_once() {
  const int descriptor = open(name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  struct stat there = {};
  // Where no such file exists the folder is not writable, which writing the file itself reports, too.
  if (descriptor < 0) return lstat(name_.c_str(), &there) == 0 ? Try::foreign : Try::unlocked;
  struct stat opened = {};
  const bool known = fstat(descriptor, &opened) == 0;
  Try result = Try::unlocked;
  if (known && !S_ISREG(opened.st_mode)) {
    result = Try::foreign;
  } else if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    // The previous holder of the lock may have removed the name in between.
    const bool same = known && lstat(name_.c_str(), &there) == 0 && there.st_dev == opened.st_dev &&
                      there.st_ino == opened.st_ino;
    result = same ? Try::locked : Try::held;
  } else if (errno == EWOULDBLOCK) {
    result = opened.st_uid == geteuid() ? Try::held : Try::foreign;
  }
  if (result == Try::locked || result == Try::unlocked) {
    descriptor_ = descriptor;
  } else {
    close(descriptor);
  }
  return result;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  std::error_code ignored;
  std::filesystem::remove(name_, ignored);
  close(descriptor_);
}

std::filesystem::path cache_folder() {
  if (const char* own = std::getenv("PIPIT_CACHE_DIR"); own != nullptr && *own != '\0') {
    std::filesystem::path path = own;
    if (!path.is_absolute()) fail("PIPIT_CACHE_DIR is '{}'; expected an absolute path", own);
    return path;
  }
  // The XDG base directory specification: relative paths are invalid and ignored.
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    const std::filesystem::path path = value != nullptr ? value : "";
    return path.is_absolute() ? path : std::filesystem::path();
  };
  if (const auto cache = folder("XDG_CACHE_HOME"); !cache.empty()) return cache / "pipit";
  if (const auto home = folder("HOME"); !home.empty()) return home / ".cache" / "pipit";
  return {};
}

}  // namespace pipit::internal
