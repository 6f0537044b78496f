#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "engine/base/error.h"

namespace pipit {

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool put(std::FILE* file, std::string_view content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return std::fflush(file) == 0 && written;
}

// What write_file() replaces: for a link what it leads to, for a link to nowhere the link.
std::filesystem::path target_of(const std::filesystem::path& path,
                                const std::filesystem::file_status& status) {
  std::error_code ignored;
  const bool link = std::filesystem::exists(status) && std::filesystem::is_symlink(path, ignored);
  return link ? std::filesystem::canonical(path, ignored) : path;
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

// In containers every process has the same number: a name by chance, so that what a killed one left is in nobody's way.
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

// Writes a file without a name, which is gone when the process is killed, and names it when it is whole. False where
// the file system, or a system without /proc, cannot; nothing is left then.
bool write_unnamed(const std::filesystem::path& target, const std::filesystem::path& temporary,
                   std::string_view content) {
  const int descriptor = open(folder_of(target).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor < 0) return false;
  const std::unique_ptr<std::FILE, Close> file(fdopen(descriptor, "wb"));
  if (!file) {
    close(descriptor);
    return false;
  }
  if (!put(file.get(), content) || !resemble(descriptor, target) || fsync(descriptor) != 0) return false;
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor);
  if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  std::error_code error;
  std::filesystem::rename(temporary, target, error);
  if (!error) return true;
  std::filesystem::remove(temporary, error);
  return false;
}

}  // namespace

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
    fail("{}: cannot be written: {} is no folder{}", path.string(), folder.string(),
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

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) fail("{}: is a folder", path.string());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    const std::unique_ptr<std::FILE, Close> device(std::fopen(path.c_str(), "wb"));
    if (!device || !put(device.get(), content))
      fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
    return;
  }
  const std::filesystem::path target = target_of(path, status);
  const std::filesystem::path temporary = beside(target);
  if (write_unnamed(target, temporary, content)) return;
  // "x": never through a file or link that somebody else put there.
  std::unique_ptr<std::FILE, Close> file(std::fopen(temporary.c_str(), "wbx"));
  if (!file) fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
  const int descriptor = fileno(file.get());
  bool written = put(file.get(), content) && resemble(descriptor, target) && fsync(descriptor) == 0;
  written = std::fclose(file.release()) == 0 && written;
  std::error_code error;
  if (written) std::filesystem::rename(temporary, target, error);
  if (!written || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(temporary, ignored);
    fail("{}: cannot be written: {}", path.string(), reason);
  }
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  constexpr std::chrono::milliseconds kWait(10);
  constexpr int kTries = 500;
  for (int i = 0; descriptor_ >= 0 && i < kTries; ++i) {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(kWait);
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::filesystem::path cache_folder() {
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

}  // namespace pipit
