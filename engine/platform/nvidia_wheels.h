// Where Python packages of NVIDIA (nvidia-cublas, nvidia-cudnn-cu13, ...) have CUDA's libraries.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pipit::internal {

/// The file of the library or program that this code is part of, without symbolic links; empty where it is unknown.
std::filesystem::path own_file();

/// Folders `nvidia/*/lib` of the site-packages (or dist-packages) that `file` is in, in alphabetical order; none where
/// it is in no such folder. Never throws.
std::vector<std::string> folders_of_nvidia_wheels(const std::filesystem::path& file);

}  // namespace pipit::internal
