// Arrays as numpy.savez() and numpy.savez_compressed() put them together: ZIP archives of .npy files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// Whether the content of a file begins like a ZIP archive.
bool is_npz(std::string_view content);

/// The bytes that an array may have, or nothing where it is not wanted.
using ArrayLimit = std::function<std::optional<std::size_t>(const std::string& name)>;

/// The arrays of an archive that are wanted, by their names without ".npy". Nothing else is unpacked, and memory is
/// allocated for no more bytes than the limit of an array and its header. Members are stored or deflated. Throws Error,
/// beginning with `file`, for a damaged archive, and for members that are encrypted, compressed otherwise, larger than
/// their limit or there twice. `names`, where given, gets the names of all arrays. ZIP64 archives are read.
std::map<std::string, Tensor> parse_npz(std::string_view content, const std::filesystem::path& file,
                                        const ArrayLimit& limit, std::vector<std::string>* names = nullptr);

}  // namespace pipit::internal
