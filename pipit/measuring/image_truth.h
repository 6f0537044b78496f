// Images and the classes that are right of each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/classification.h"
#include "models/image/folder.h"

namespace pipit::internal::detail {

/// hash_file(); empty where the file cannot be read, which is said when its image is decoded.
std::string content_hash(const std::filesystem::path& path);
/// Its size, the largest number where the file cannot be read.
std::uintmax_t size_of(const std::filesystem::path& path);

struct TruthImage {
  std::filesystem::path path;
  std::vector<int> classes;  ///< in ascending order, none twice
};

struct ImageTruth {
  std::vector<TruthImage> images;  ///< sorted by path
  LeftOut left_out;
  std::int64_t unnamed = 0;  ///< images below the folder that a file of classes does not name
};

/// The images of a folder with the classes that list_labelled_images() finds. Where classes are tags, files of the same
/// bytes are one image that has the classes of all.
ImageTruth read_truth(const std::string& folder, const Labels& labels, const ClassOutput& output);

/// The images that a CSV file names, a line for each: its path below `folder`, and after a comma its classes, names as
/// find_label() takes them or indices, with ';' between. Either may stand in quotes (RFC 4180). Blank lines do not
/// count, nor does a first line "image,classes". Without classes an image of a yes-or-no model is a no. Throws Error
/// with the line for an image that is not there or stands there twice, and for a class that the model does not have;
/// ArgumentError where an image has another number of classes than one, and the model's are not tags.
ImageTruth read_truth(const std::string& folder, const std::string& csv, const Labels& labels,
                      const ClassOutput& output);

}  // namespace pipit::internal::detail
