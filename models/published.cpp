#include "models/published.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"

namespace pipit::internal {

namespace {

namespace fs = std::filesystem;
using Json = JsonDocument;

constexpr std::uintmax_t kMaxConfigBytes = std::uintmax_t{16} << 20;
constexpr int kMaxConfigLevels = 16;

const Json* member(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

bool is_true(const Json& json, const char* key, bool absent) {
  const Json* value = member(json, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : absent;
}

std::optional<double> number_of(const Json* value) {
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

int side_of(const Json* value, const char* key) {
  const std::optional<double> number = number_of(value);
  if (!number || *number < 1 || *number > kMaxPreprocessSide) fail("\"{}\" is no size of an image", key);
  return static_cast<int>(*number);
}

std::array<float, 3> channels_of(const Json& json, const char* key, float absent) {
  const Json* value = member(json, key);
  std::array<float, 3> result{absent, absent, absent};
  if (value == nullptr) return result;
  if (!value->is_array() || (value->size() != 3 && value->size() != 1))
    fail("\"{}\" is no list of 3 numbers", key);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::optional<double> number = number_of(&(*value)[value->size() == 1 ? 0 : i]);
    if (!number) fail("\"{}\" is no list of 3 numbers", key);
    result[i] = static_cast<float>(*number);
  }
  return result;
}

// Pillow's numbers, and the words of timm.
Interpolation interpolation_of(const Json& value) {
  if (value == 0 || value == "nearest") return Interpolation::nearest;
  if (value == 2 || value == "bilinear") return Interpolation::bilinear;
  if (value == 3 || value == "bicubic" || value == "random") return Interpolation::bicubic;
  fail("the filter {} of its resize is not supported; nearest, bilinear and bicubic are", shown(value));
}

struct Size {
  int height = 0, width = 0;
  bool short_side = false;
};

// {"shortest_edge": 256}, {"height": 224, "width": 224}, [224, 224], 224.
Size size_of(const Json& value, const char* key, bool number_is_square) {
  Size size;
  if (value.is_object() && value.contains("shortest_edge")) {
    size.height = size.width = side_of(member(value, "shortest_edge"), key);
    size.short_side = true;
  } else if (value.is_object()) {
    size.height = side_of(member(value, "height"), key);
    size.width = side_of(member(value, "width"), key);
  } else if (value.is_array() && value.size() == 2) {
    size.height = side_of(&value[0], key);
    size.width = side_of(&value[1], key);
  } else {
    size.height = size.width = side_of(&value, key);
    size.short_side = !number_is_square;
  }
  return size;
}

void set_crop(Preprocess& p, const Size& size) {
  p.crop = size.height;
  p.crop_width = size.width == size.height ? 0 : size.width;
}

void set_stretch(Preprocess& p, const Size& size) {
  p.resize_mode = ResizeRule::stretch;
  p.resize = size.height;
  p.resize_width = size.width == size.height ? 0 : size.width;
}

// preprocessor_config.json of Hugging Face's image processors.
std::optional<Preprocess> of_processor(const Json& json) {
  if (member(json, "image_mean") == nullptr && member(json, "do_normalize") == nullptr) return std::nullopt;
  Preprocess p;
  const Json* size = member(json, "size");
  const bool crops = is_true(json, "do_center_crop", false);
  if (is_true(json, "do_resize", size != nullptr)) {
    if (size == nullptr) fail("\"size\" is missing");
    // Before there were names for it, a number was the short side of what is cropped after.
    const Size to = size_of(*size, "size", !crops);
    const std::optional<double> part = number_of(member(json, "crop_pct"));
    constexpr int kWholeFrom = 384;  // ConvNeXT's: from there on the image is not cropped
    if (part && *part > 0 && *part <= 1) {
      if (to.height < kWholeFrom) {
        p.resize = static_cast<int>(to.height / *part);
        set_crop(p, to);
      } else {
        set_stretch(p, to);
      }
    } else if (to.short_side) {
      p.resize = to.height;
    } else {
      set_stretch(p, to);
    }
    if (const Json* filter = member(json, "resample")) p.interpolation = interpolation_of(*filter);
  }
  if (crops) {
    const Json* crop = member(json, "crop_size");
    if (crop == nullptr) crop = size;
    if (crop == nullptr) fail("\"crop_size\" is missing");
    set_crop(p, size_of(*crop, "crop_size", true));
  }
  p.scale = 1;
  if (is_true(json, "do_rescale", true))
    p.scale = static_cast<float>(number_of(member(json, "rescale_factor")).value_or(1.0 / 255));
  if (is_true(json, "do_normalize", true)) {
    p.mean = channels_of(json, "image_mean", 0.5F);
    p.std = channels_of(json, "image_std", 0.5F);
  }
  return p;
}

// "pretrained_cfg" of timm's config.json, or the same by itself.
std::optional<Preprocess> of_timm(const Json& json) {
  const Json* inner = member(json, "pretrained_cfg");
  const Json& config = inner != nullptr ? *inner : json;
  const Json* size = member(config, "input_size");
  if (size == nullptr || !size->is_array() || size->size() != 3 || member(config, "mean") == nullptr)
    return std::nullopt;
  Preprocess p;
  const Size to{side_of(&(*size)[1], "input_size"), side_of(&(*size)[2], "input_size")};
  const double part = number_of(member(config, "crop_pct")).value_or(0.875);
  if (!(part > 0 && part <= 1)) fail("\"crop_pct\" is {}", part);
  const Json* mode = member(config, "crop_mode");
  if (mode != nullptr && *mode == "squash") {
    const Size larger{static_cast<int>(to.height / part), static_cast<int>(to.width / part)};
    set_stretch(p, larger);
  } else if (mode == nullptr || *mode == "center") {
    p.resize = static_cast<int>(std::min(to.height, to.width) / part);
  } else {
    fail("\"crop_mode\" is {}; center and squash are supported", shown(*mode));
  }
  set_crop(p, to);
  p.interpolation = Interpolation::bicubic;
  if (const Json* filter = member(config, "interpolation")) p.interpolation = interpolation_of(*filter);
  p.mean = channels_of(config, "mean", 0);
  p.std = channels_of(config, "std", 1);
  return p;
}

// Folders that files about the model may be in: exporters put it into a folder of its own below them.
std::vector<fs::path> folders_of(const fs::path& model) {
  std::vector<fs::path> folders{model.has_parent_path() ? model.parent_path() : fs::path(".")};
  std::error_code error;
  const fs::path own = fs::absolute(folders[0], error).lexically_normal();
  const fs::path name = own.has_filename() ? own.filename() : own.parent_path().filename();
  if (!error && name.string().starts_with("onnx")) folders.push_back(folders[0] / "..");
  return folders;
}

std::optional<Json> read_config(const fs::path& model, const char* name) {
  for (const fs::path& folder : folders_of(model)) {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) continue;
    try {
      return parse_json(read_file(folder / name, kMaxConfigBytes), kMaxConfigLevels);
    } catch (const Error&) {
      return std::nullopt;  // somebody else's
    }
  }
  return std::nullopt;
}

// Ultralytics: labels as a dict, the side of the input, and what the model is for.
void add_ultralytics(const std::map<std::string, std::string>& metadata, Published& result) {
  const auto names = metadata.find("names"), task = metadata.find("task"), size = metadata.find("imgsz");
  if (names == metadata.end() || (task != metadata.end() && task->second != "classify")) return;
  result.labels = labels_of_dict(names->second);
  if (result.labels.empty()) return;
  result.labels_from = "the metadata of Ultralytics";
  if (task == metadata.end() || size == metadata.end()) return;
  int side = 0;
  const std::size_t begin = size->second.find_first_of("0123456789");
  if (begin == std::string::npos) return;
  std::from_chars(size->second.data() + begin, size->second.data() + size->second.size(), side);
  if (side < 1 || side > kMaxPreprocessSide) return;
  result.preprocess.emplace();  // to [0, 1], bilinear
  result.preprocess->resize = result.preprocess->crop = side;
  result.preprocess_from = result.labels_from;
}

}  // namespace

Labels labels_of_dict(std::string_view text) {
  std::map<std::size_t, std::string> names;
  std::size_t at = 0;
  const auto skip = [&](std::string_view characters) {
    at = std::min(text.find_first_not_of(characters, at), text.size());
  };
  skip(" \n");
  if (at == text.size() || text[at] != '{') return {};
  ++at;
  while (true) {
    skip(" ,\n");
    if (at < text.size() && text[at] == '}') break;
    std::size_t index = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), index);
    if (error != std::errc{}) return {};
    at = static_cast<std::size_t>(stop - text.data());
    skip(" :");
    if (at == text.size() || (text[at] != '\'' && text[at] != '"')) return {};
    const char quote = text[at++];
    std::string name;
    while (at < text.size() && text[at] != quote) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      name += text[at++];
    }
    if (at == text.size() || !names.emplace(index, std::move(name)).second) return {};
    ++at;
  }
  Labels labels;
  for (auto& [index, name] : names) {
    if (index != labels.size()) return {};
    labels.push_back(std::move(name));
  }
  return labels;
}

Published published(const std::map<std::string, std::string>& metadata, const fs::path& model) {
  Published result;
  add_ultralytics(metadata, result);
  if (model.empty()) return result;
  const auto take = [&](const char* name, const auto& read) {
    const std::optional<Json> json = read_config(model, name);
    if (!json || !json->is_object() || result.preprocess || !result.problem.empty()) return;
    try {
      if ((result.preprocess = read(*json))) {
        check_preprocess(*result.preprocess);
        result.preprocess_from = name;
      }
    } catch (const Error& e) {
      result.preprocess.reset();
      result.problem = fmt::format("{} beside the model: {}", name, e.what());
    }
  };
  take("preprocessor_config.json", of_processor);
  take("config.json", of_timm);
  const std::optional<Json> config = read_config(model, "config.json");
  if (result.labels.empty() && config && config->is_object() &&
      (config->contains("id2label") || config->contains("label_names"))) {
    try {
      result.labels = labels_from_text(config->dump(), "config.json");
      result.labels_from = "config.json";
    } catch (const Error&) {
      result.labels.clear();  // labels are a help, no more
    } catch (const Json::exception&) {
      result.labels.clear();
    }
  }
  return result;
}

}  // namespace pipit::internal
