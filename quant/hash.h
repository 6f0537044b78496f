// Identity of files and models: XXH3 with 128 bits. Not for security.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// 32 hexadecimal digits, as xxh128sum prints them.
std::string hash_bytes(std::span<const std::byte> bytes);
/// The hash of a file's content; throws Error when it cannot be read.
std::string hash_file(const std::filesystem::path& path);
/// The hash of what a graph computes: its layers in order with all attributes (Layer::identity), how they are wired,
/// and its floating-point constants. Names and the batch have no part in it. Throws Error when constants were released.
std::string hash_model(const Graph& graph);

}  // namespace pipit::internal
