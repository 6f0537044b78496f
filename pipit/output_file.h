/// @file
/// Files for results: whether one may be written, and writing it in full or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "pipit/export.h"

namespace pipit::tools {

/// Whether both paths lead to one file, under whatever names; neither needs to exist.
PIPIT_API bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Why nothing should be written to `output`, naming both files: it is one of `inputs` (files, folders of images, names
/// of models), a file with the weights of one, an image below one, or what pipit keeps in its cache folder (a fetched
/// model, the times of kernels, the machine's ceilings). Empty: nothing is lost.
PIPIT_API std::string replaced_input(const std::filesystem::path& output,
                                     std::span<const std::string> inputs);

/// Throws the Error that write_file() could be expected to throw: no folder to write in, no permission, a folder of
/// that name. For work that takes hours before it has something to write. Changes nothing.
PIPIT_API void check_writable(const std::filesystem::path& path);

/// Writes a file beside `path` and renames it into place, so that readers see the old content or the new one, and an
/// error or interrupt leaves the old file. A file that is replaced keeps its mode, and its owner if this user may set
/// it. A link stays and leads to the new content; a device or pipe is written to, never replaced; to a file that this
/// process has open, under a name such as /dev/stdout, the content is appended. Throws Error, beginning with the path.
/// May be called from any thread.
PIPIT_API void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace pipit::tools
