// The images that a choice is made on, and the others that it is checked on, for tune and prune.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/classification.h"
#include "models/image/folder.h"
#include "pipit/measuring/precision_ladder.h"
#include "quant/quantization_plan.h"

namespace pipit::internal::detail {

struct ImageSplit {
  std::vector<LabelledImage> search;
  std::vector<LabelledImage> unseen;
};

std::vector<std::filesystem::path> paths_of(const std::vector<LabelledImage>& images);
std::vector<int> labels_of(const std::vector<LabelledImage>& images);

/// The images of a folder, `limit` of them spread evenly (0: all), with their classes; without where these are not what
/// is right. An error about classes ends with `otherwise`, an option that does without them.
LabelledImages images_to_judge(const std::filesystem::path& folder, JudgeBy judge_by, const Labels& labels,
                               const ClassOutput& output, std::int64_t limit, const std::string& otherwise);

/// Takes out of `images` what `prepared`, which was made of them, has excluded, and adds that to `unreadable`.
void drop_unreadable(std::vector<LabelledImage>& images, const PreparedImages& prepared,
                     std::vector<UnreadableImage>& unreadable);

/// Every other image of the sorted folder, so that both parts have all classes. What `plan` (or null) was calibrated on
/// is not unseen. Throws Error when a part is empty.
ImageSplit split_images(const std::vector<LabelledImage>& images, const QuantizationPlan* plan);

/// A note where images of `unseen` are files of the same bytes as one of `search`; else nothing. `unseen` in words:
/// "of --check"; what is done with the others: "layers are chosen on".
std::string copies_note(const ImageSplit& split, const std::string& unseen, const std::string& done);

}  // namespace pipit::internal::detail
