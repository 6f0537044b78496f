// Names of classes: reading them, and finding the class that a folder or a file name means.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipit::internal {

/// Position = class index.
using Labels = std::vector<std::string>;

/// Reads labels from a file of at most 16 MiB. Text has one label per line, the line number less one being
/// the class index; a byte-order mark, CRLF and blank lines at the end are tolerated, a blank line elsewhere
/// is an empty label. Lines are kept as they are, also ImageNet's "n01440764 tench, Tinca tinca". Text that
/// begins with [ or { is JSON: a list of strings, or {"0": "tench", "1": …} with every index from 0 up.
/// Throws Error with the path and the reason.
Labels read_labels(const std::filesystem::path& path);

/// The same from text; `name` stands for the path in messages.
Labels labels_from_text(std::string_view text, const std::string& name = "labels");

/// What labels_from_text() reads as these labels: one per line, or a JSON list where lines cannot hold them. The form
/// in which models carry them in the ONNX metadata under kLabelsKey. Throws Error when a label is not UTF-8.
std::string labels_to_text(const Labels& labels);

inline constexpr std::string_view kLabelsKey = "pipit.labels";

/// The class that a folder of this name stands for. The first rule that any label satisfies decides:
///   1. the label is the name;
///   2. so it is when case is ignored and '_', '-' and ' ' are the same;
///   3. so is one of the label's comma-separated synonyms (after a leading synset id, if it has one);
///   4. the label and the name begin with the same WordNet synset id ("n01440764").
/// nullopt when no label does. Throws Error when the deciding rule holds for several classes, naming two.
std::optional<int> find_label(const Labels& labels, std::string_view name);

/// The class index with which a file name begins, if digits and then '_' do:
/// "0000_n01440764_tench.jpg" is class 0. nullopt for other names and for numbers beyond int. Other separators
/// do not count: "2024-05-01.jpg" is a date, "7.jpg" the seventh photograph.
std::optional<int> class_from_filename(std::string_view filename);

}  // namespace pipit::internal
