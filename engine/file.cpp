#include "engine/file.h"

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

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("{}: is a folder", path.string());
  const std::filesystem::path beside = path.string() + fmt::format(".{}.tmp", getpid());
  // "x": never through a file or link that somebody else put there.
  std::unique_ptr<std::FILE, Close> file(std::fopen(beside.c_str(), "wbx"));
  if (!file) fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
  bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  written = std::fflush(file.get()) == 0 && written && fsync(fileno(file.get())) == 0;
  written = std::fclose(file.release()) == 0 && written;
  std::error_code error;
  if (written) std::filesystem::rename(beside, path, error);
  if (!written || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(beside, ignored);
    fail("{}: cannot be written: {}", path.string(), reason);
  }
}

}  // namespace pipit
