#include "engine/platform/nvidia_wheels.h"

#include <dlfcn.h>

#include <algorithm>

namespace pipit::internal {

namespace fs = std::filesystem;

fs::path own_file() {
  std::error_code error;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_file), &info) != 0 && info.dli_fname != nullptr) {
    const fs::path file(info.dli_fname);
    // Of the program itself there is the name that it was called by, which may be none of a file here.
    if (file.is_absolute()) return fs::canonical(file, error);
  }
  return fs::read_symlink("/proc/self/exe", error);
}

std::vector<std::string> folders_of_nvidia_wheels(const fs::path& file) {
  std::vector<std::string> folders;
  for (fs::path folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.filename() != "site-packages" && folder.filename() != "dist-packages") continue;
    std::error_code error;
    for (fs::directory_iterator at(folder / "nvidia", error), end; !error && at != end; at.increment(error)) {
      const fs::path libraries = at->path() / "lib";
      if (std::error_code unknown; fs::is_directory(libraries, unknown))
        folders.push_back(libraries.string());
    }
    break;
  }
  std::ranges::sort(folders);
  return folders;
}

}  // namespace pipit::internal
