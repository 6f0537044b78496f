// The images below a folder, with or without their classes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/labels.h"

namespace pipit::internal {

/// An image file and its class index.
struct LabelledImage {
  std::filesystem::path path;
  int label = 0;
  friend bool operator==(const LabelledImage&, const LabelledImage&) = default;
};

/// What cannot be used, an image or a folder, and why: the message begins with its path.
struct UnreadableImage {
  std::filesystem::path path;
  std::string error;
  friend bool operator==(const UnreadableImage&, const UnreadableImage&) = default;
};

/// What a list of images does without.
struct LeftOut {
  std::map<std::string, std::int64_t> formats;  ///< images of formats that are not read, by image_format()
  std::vector<UnreadableImage> folders;         ///< that cannot be read, or have no images where they should
  bool empty() const { return formats.empty() && folders.empty(); }
  void add(const LeftOut& other);
  /// Throws Error with what is wrong with the first folder, where there is one.
  void end_at_folders() const;
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

/// What there is below a folder.
struct ImageFiles {
  std::vector<std::filesystem::path> paths;
  LeftOut left_out;
};
struct LabelledImages {
  std::vector<LabelledImage> images;
  LeftOut left_out;
};

/// For people: "8 images are left out, ...: 4 GIF, 4 TIFF", and which folders; empty where nothing is.
std::string left_out_note(const LeftOut& left_out);
/// For people: how many of `total` images were excluded, and what is wrong with the first; empty where none was.
std::string unreadable_note(const std::vector<UnreadableImage>& images, std::int64_t total);

/// Whether the name of a file is that of arrays as NumPy saves them: it ends with .npy or .npz.
bool is_array_file(const std::filesystem::path& file);
/// Whether a list of files holds arrays instead of images: list_images() never mixes them.
inline bool are_arrays(const std::vector<std::filesystem::path>& files) {
  return !files.empty() && is_array_file(files[0]);
}

/// Whether a file counts as an image that is read: by its first bytes, or, where these say nothing and where it is no
/// file that can be opened, by a name that ends as that of a format that is read. Decoding says what is wrong then.
bool counts_as_image(const std::filesystem::path& file);

/// Every file below the folder that counts_as_image(), recursively, sorted by path so that two runs see the same order,
/// and how many images there are besides. Names that begin with a dot are skipped, and what is no image. Symbolic links
/// are followed, but no folder is entered twice, so loops end; a folder that is there as itself is listed there, not
/// under a link. Folders below it that cannot be read are left out. Where there is no image at all, files of arrays
/// (is_array_file()) are listed instead. `folder` may also be a single file. Throws Error when it does not exist,
/// cannot be read, or holds nothing that is read.
ImageFiles list_images(const std::filesystem::path& folder);

/// Adds list_images(folder), or leaves the folder out where that throws.
void add_images(ImageFiles& files, const std::filesystem::path& folder);

/// The same with the class of each image, by the first of these that says one:
///   1. the folders it lies in, from the innermost up to but without `folder` itself, as find_label matches
///   them;
///   2. its folder's name, a class index, if every sub-folder that holds images has a number for a name and
///   none of them matches a label;
///   3. the class index at the start of its file name (class_from_filename), for images directly in `folder`,
///   and for others when there are labels. Without labels a sub-folder may well be a class ("cat/1_a.jpg").
/// `classes` is the number of classes of the model, 0 when it is not known (then the number of labels counts,
/// if there are any). Throws Error naming the first image without a class, or with one that is not below
/// `classes`.
LabelledImages list_labelled_images(const std::filesystem::path& folder, const Labels& labels,
                                    int classes = 0);

}  // namespace pipit::internal
