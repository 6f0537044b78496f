// What a run reads held against what it writes.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace pipit::internal {

/// Whether both lead to one file, under whatever names; neither need be there yet.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Why nothing may be written to `output`, naming both files: it is one of `inputs` (files, folders of images, names
/// of models), a file in which one of these keeps its weights, one of the images below one, or what pipit keeps in
/// cache_folder(): a fetched model, the times of kernels, the machine's ceilings. Empty: nothing is lost.
std::string replaced_by(const std::filesystem::path& output, std::span<const std::string> inputs);

/// Before the work begins: throws ArgumentError for an empty name, Error with replaced_by(), or as check_writable()
/// does.
void check_output_file(const std::filesystem::path& output, std::span<const std::string> inputs);

}  // namespace pipit::internal
