// The images below a folder, with or without their classes.
#pragma once

#include <filesystem>
#include <vector>

#include "models/labels.h"

namespace pipit {

/// An image file and its class index.
struct LabelledImage {
  std::filesystem::path path;
  int label = 0;
  friend bool operator==(const LabelledImage&, const LabelledImage&) = default;
};

/// Whether the name ends as that of an image file: .jpg, .jpeg, .png or .bmp, in any case.
bool has_image_extension(const std::filesystem::path& path);

/// Every .jpg, .jpeg, .png and .bmp file (in any case) below the folder, recursively, sorted by path so that
/// two runs see the same order. Names that begin with a dot are skipped. Symbolic links are followed, but no
/// folder is entered twice, so loops end; a folder that is there as itself is listed there, not under a link.
/// `folder` may also be a single image file. Throws Error when it does not exist, cannot be read, holds no
/// image, or holds an image that is a broken link.
std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder);

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
std::vector<LabelledImage> list_labelled_images(const std::filesystem::path& folder, const Labels& labels,
                                                int classes = 0);

}  // namespace pipit
