#include "engine/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/error.h"

namespace pipit {

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool put(std::FILE* file, std::string_view content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return std::fflush(file) == 0 && written;
}

// Writes a file without a name, which is gone when the process is killed, and names it when it is whole. False where the
// file system, or a system without /proc, cannot; nothing is left then.
bool write_unnamed(const std::filesystem::path& target, const std::filesystem::path& beside,
                   std::string_view content) {
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor < 0) return false;
  const std::unique_ptr<std::FILE, Close> file(fdopen(descriptor, "wb"));
  if (!file) {
    close(descriptor);
    return false;
  }
  if (!put(file.get(), content) || fsync(descriptor) != 0) return false;
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor);
  if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, beside.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  std::error_code error;
  std::filesystem::rename(beside, target, error);
  if (!error) return true;
  std::filesystem::remove(beside, error);
  return false;
}

}  // namespace

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
  const bool link = std::filesystem::exists(status) && std::filesystem::is_symlink(path, ignored);
  const std::filesystem::path target = link ? std::filesystem::canonical(path, ignored) : path;
  const std::filesystem::path beside = target.string() + fmt::format(".{}.tmp", getpid());
  if (write_unnamed(target, beside, content)) return;
  // "x": never through a file or link that somebody else put there.
  std::unique_ptr<std::FILE, Close> file(std::fopen(beside.c_str(), "wbx"));
  if (!file) fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
  bool written = put(file.get(), content) && fsync(fileno(file.get())) == 0;
  written = std::fclose(file.release()) == 0 && written;
  std::error_code error;
  if (written) std::filesystem::rename(beside, target, error);
  if (!written || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(beside, ignored);
    fail("{}: cannot be written: {}", path.string(), reason);
  }
}

}  // namespace pipit
