#include "models/labels.h"

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"
#include "models/letters.h"

namespace pipit::internal {
namespace {

using Json = JsonDocument;

constexpr std::uintmax_t kMaxLabelBytes = std::uintmax_t{16} << 20;
constexpr int kMaxLevels = 16;            // of a configuration that has the labels in it
constexpr std::size_t kSynsetLength = 9;  // n and 8 digits

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Letters outside ASCII compare by their bytes.
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::string normalized(std::string_view s) {
  std::string out;
  for (const char c : taken_apart(trimmed(s))) out += c == '_' || c == '-' ? ' ' : lower(c);
  return out;
}

// "n01440764" at the start of "n01440764", "n01440764 tench" or "n01440764_tench"; empty when there is none.
std::string_view synset(std::string_view s) {
  if (s.size() < kSynsetLength || lower(s[0]) != 'n') return {};
  const std::string_view id = s.substr(0, kSynsetLength);
  if (!std::all_of(id.begin() + 1, id.end(), is_digit)) return {};
  const bool ends = s.size() == kSynsetLength || std::string_view(" _-,").find(s[kSynsetLength]) != s.npos;
  return ends ? id : std::string_view{};
}

bool has_synonym(std::string_view label, const std::string& wanted) {
  const std::string_view id = synset(label);
  if (!id.empty()) label.remove_prefix(std::min(id.size() + 1, label.size()));
  if (normalized(label) == wanted) return true;
  while (true) {
    const std::size_t comma = label.find(',');
    if (normalized(label.substr(0, comma)) == wanted) return true;
    if (comma == label.npos) return false;
    label.remove_prefix(comma + 1);
  }
}

template <typename Matches>
std::optional<int> only_match(const Labels& labels, std::string_view name, Matches matches) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (!matches(labels[i])) continue;
    if (found) {
      fail(
          "'{}' is ambiguous: it means class {} ('{}') as well as class {} ('{}'); use a name that only one "
          "has",
          name, *found, labels[*found], i, labels[i]);
    }
    found = i;
  }
  if (!found) return std::nullopt;
  return static_cast<int>(*found);
}

Labels from_lines(std::string_view text) {
  Labels labels;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    labels.emplace_back(line);
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  while (!labels.empty() && labels.back().find_first_not_of(" \t") == std::string::npos) labels.pop_back();
  return labels;
}

std::string label_of(const Json& value, const std::string& name, std::size_t index) {
  // Keras: ["n01440764", "tench"].
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return value[0].get<std::string>() + " " + value[1].get<std::string>();
  if (!value.is_string())
    fail("{}: label {} is of type {}, expected a string", name, index, value.type_name());
  return value.get<std::string>();
}

// The position that a key of a map names; nullopt for what is none of `count`.
std::optional<std::size_t> position(const std::string& key, std::size_t count) {
  std::size_t index = 0;
  std::from_chars(key.data(), key.data() + key.size(), index);
  if (index >= count || key != std::to_string(index)) return std::nullopt;
  return index;
}

// {"tench": 0, ...}, as ImageFolder.class_to_idx and label2id.
Labels from_inverse(const Json& json, const std::string& name) {
  std::vector<std::optional<std::string>> found(json.size());
  for (const auto& [key, value] : json.items()) {
    if (!value.is_number_integer() || value.get<double>() < 0 ||
        value.get<double>() >= static_cast<double>(found.size()))
      fail("{}: the class of '{}' is {}; {} labels have the classes 0 to {}", name, key, shown(value),
           json.size(), json.size() - 1);
    std::optional<std::string>& label = found[value.get<std::size_t>()];
    if (label) fail("{}: '{}' and '{}' are both class {}", name, *label, key, shown(value));
    label = key;
  }
  Labels labels;
  for (std::optional<std::string>& label : found) labels.push_back(std::move(*label));
  return labels;
}

Labels from_map(const Json& json, const std::string& name) {
  std::vector<std::optional<std::string>> found(json.size());
  for (const auto& [key, value] : json.items()) {
    if (const auto index = position(key, found.size())) found[*index] = label_of(value, name, *index);
  }
  Labels labels;
  for (std::optional<std::string>& label : found) {
    if (!label) {
      fail("{}: a map of {} labels needs the keys \"0\" to \"{}\", but \"{}\" is missing", name, json.size(),
           json.size() - 1, labels.size());
    }
    labels.push_back(std::move(*label));
  }
  return labels;
}

Labels from_json_value(const Json& json, const std::string& name) {
  if (json.is_object()) {
    const bool inverse =
        !json.empty() && std::ranges::all_of(json, [](const Json& v) { return v.is_number(); });
    return inverse ? from_inverse(json, name) : from_map(json, name);
  }
  Labels labels;
  for (const Json& label : json) labels.push_back(label_of(label, name, labels.size()));
  return labels;
}

Labels from_json(std::string_view text, const std::string& name) {
  Json json;
  try {
    json = parse_json(text, kMaxLevels);
  } catch (const Error& e) {
    fail("{}: begins like a JSON list or map of labels, but is none: {}", name, e.what());
  }
  if (json.is_object()) {
    // A whole configuration that holds one.
    for (const char* key : {"id2label", "label2id", "class_to_idx", "label_names", "names"}) {
      if (const auto inner = json.find(key); inner != json.end() && inner->is_structured())
        return from_json_value(*inner, name);
    }
  }
  return from_json_value(json, name);
}

}  // namespace

Labels labels_from_text(std::string_view text, const std::string& name) {
  if (text.size() > kMaxLabelBytes)
    fail("{}: {} bytes are above the limit of {}", name, text.size(), kMaxLabelBytes);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.find('\0') != text.npos) fail("{}: has a zero byte, so it is not a text file", name);
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == text.npos) fail("{}: there are no labels in it", name);
  Labels labels = text[start] == '[' || text[start] == '{' ? from_json(text, name) : from_lines(text);
  if (labels.empty()) fail("{}: there are no labels in it", name);
  return labels;
}

Labels read_labels(const std::filesystem::path& path) {
  return labels_from_text(read_file(path, kMaxLabelBytes), path.string());
}

namespace {

// Not where a name has a line break, the first begins like JSON, the last is empty, and so on.
bool lines_hold(const std::string& text, const Labels& labels) {
  try {
    return labels_from_text(text) == labels;
  } catch (const Error&) {
    return false;
  }
}

bool is_utf8(const std::string& text) {
  try {
    return !Json(text).dump().empty();
  } catch (const Json::type_error&) {
    return false;
  }
}

}  // namespace

std::string labels_to_text(const Labels& labels) {
  std::string text;
  Json list = Json::array();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    list.push_back(labels[i]);
    if (!is_utf8(labels[i]))
      fail("label {} ('{}') is not UTF-8; convert the file that holds it", i, labels[i]);
    if (i > 0) text += '\n';
    text += labels[i];
  }
  return lines_hold(text, labels) ? text : list.dump();
}

std::optional<int> find_label(const Labels& labels, std::string_view name) {
  if (trimmed(name).empty()) return std::nullopt;
  if (const auto exact = only_match(labels, name, [&](const std::string& l) { return l == name; }))
    return exact;
  const std::string wanted = normalized(name);
  const auto same = only_match(labels, name, [&](const std::string& l) { return normalized(l) == wanted; });
  if (same) return same;
  const auto synonym = only_match(labels, name, [&](const std::string& l) { return has_synonym(l, wanted); });
  if (synonym) return synonym;
  const std::string id = normalized(synset(name));
  if (id.empty()) return std::nullopt;
  return only_match(labels, name, [&](const std::string& l) { return normalized(synset(l)) == id; });
}

std::optional<int> class_from_filename(std::string_view filename) {
  int index = 0;
  if (filename.empty() || !is_digit(filename.front())) return std::nullopt;
  const auto [end, error] = std::from_chars(filename.data(), filename.data() + filename.size(), index);
  if (error != std::errc{} || end == filename.data() + filename.size()) return std::nullopt;
  if (*end != '_') return std::nullopt;
  return index;
}

}  // namespace pipit::internal
