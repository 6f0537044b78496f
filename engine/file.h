// Writing files that are there in full or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace pipit {

/// Writes a file beside `path` and renames it into place, so that readers see the old content or the new, and an
/// error or interrupt leaves what was there. A link stays and leads to the new content; a device or pipe is written
/// to, never replaced. Throws Error, beginning with the path, when that fails.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace pipit
