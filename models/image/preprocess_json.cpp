#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/parse_json.h"
#include "models/image/preprocess.h"

namespace pipit::internal {
namespace {

using Json = JsonDocument;

// The real thing takes about 200 bytes and two levels.
constexpr std::size_t kMaxJsonBytes = 64 * 1024;
constexpr int kMaxJsonLevels = 3;

std::string list(const std::array<float, 3>& values) {
  return fmt::format("[{}, {}, {}]", values[0], values[1], values[2]);
}

std::string size_text(int height, int width) {
  return width == 0 ? fmt::format("{}", height) : fmt::format("[{}, {}]", height, width);
}

Json parse(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    fail("preprocess: {} bytes of JSON are above the limit of {}", text.size(), kMaxJsonBytes);
  }
  Json json;
  try {
    json = parse_json(text, kMaxJsonLevels);
  } catch (const Error& e) {
    fail("preprocess: {}", e.what());
  }
  if (!json.is_object()) fail("preprocess: expected a JSON object, got {}", shown(json));
  return json;
}

int side(const std::string& key, const Json& value) {
  // Compared as double, so that an integer of any size is in range.
  if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > kMaxPreprocessSide) {
    fail("preprocess: \"{}\" is {}, expected an integer from 0 to {}", key, shown(value), kMaxPreprocessSide);
  }
  return value.get<int>();
}

void read_size(const std::string& key, const Json& value, int& height, int& width) {
  width = 0;
  if (!value.is_array()) {
    height = side(key, value);
    return;
  }
  if (value.size() != 2)
    fail("preprocess: \"{}\" is {}, expected a size or [height, width]", key, shown(value));
  height = side(key, value[0]);
  width = side(key, value[1]);
  if (height == 0 || width == 0)
    fail("preprocess: \"{}\" is {}: both sides must be at least 1", key, shown(value));
}

float number(const std::string& key, const Json& value) {
  if (!value.is_number()) fail("preprocess: \"{}\" has {} where a number is expected", key, shown(value));
  const double wide = value.get<double>();
  if (!std::isfinite(wide) || std::abs(wide) > 1e30) {
    fail("preprocess: \"{}\" has {}, expected a number from -1e30 to 1e30", key, shown(value));
  }
  return static_cast<float>(wide);
}

std::array<float, 3> three_numbers(const std::string& key, const Json& value) {
  if (value.is_number()) {
    const float all = number(key, value);
    return {all, all, all};
  }
  if (!value.is_array() || value.size() != 3) {
    fail("preprocess: \"{}\" is {}, expected a number or a list of 3", key, shown(value));
  }
  return {number(key, value[0]), number(key, value[1]), number(key, value[2])};
}

const std::string& string(const std::string& key, const Json& value) {
  if (!value.is_string()) fail("preprocess: \"{}\" is {}, expected a string", key, shown(value));
  return value.get_ref<const std::string&>();
}

ResizeRule resize_mode(const std::string& key, const Json& value) {
  const std::string& name = string(key, value);
  if (name == "short_side") return ResizeRule::short_side;
  if (name == "stretch") return ResizeRule::stretch;
  fail("preprocess: \"{}\" is {}, expected \"short_side\" or \"stretch\"", key, shown(value));
}

void read_key(const std::string& key, const Json& value, Preprocess& p) {
  if (key == "resize") {
    read_size(key, value, p.resize, p.resize_width);
  } else if (key == "resize_mode") {
    p.resize_mode = resize_mode(key, value);
  } else if (key == "crop") {
    read_size(key, value, p.crop, p.crop_width);
  } else if (key == "interpolation") {
    p.interpolation = parse_interpolation(string(key, value));
  } else if (key == "mean") {
    p.mean = three_numbers(key, value);
  } else if (key == "std") {
    p.std = three_numbers(key, value);
  } else if (key == "bgr" || key == "exif_transpose") {
    if (!value.is_boolean()) fail("preprocess: \"{}\" is {}, expected true or false", key, shown(value));
    (key == "bgr" ? p.bgr : p.exif_transpose) = value.get<bool>();
  } else if (key == "scale") {
    p.scale = number(key, value);
  } else if (key != "preset") {
    fail(
        "preprocess: unknown key {}: expected preset, resize, resize_mode, crop, interpolation, mean, std, "
        "bgr, scale, exif_transpose",
        shown(Json(key)));
  }
}

}  // namespace

std::string to_json(const Preprocess& p) {
  check_preprocess(p);
  // Written by hand: shortest float text (0.485, not 0.48500001430511475) and the order of the documentation.
  return fmt::format(
      R"({{"resize": {}, "crop": {}, "interpolation": "{}", "mean": {}, "std": {}, "bgr": {}, "scale": {}, )"
      R"("resize_mode": "{}", "exif_transpose": {}}})",
      size_text(p.resize, p.resize_width), size_text(p.crop, p.crop_width),
      interpolation_name(p.interpolation), list(p.mean), list(p.std), p.bgr, p.scale,
      p.resize_mode == ResizeRule::stretch ? "stretch" : "short_side", p.exif_transpose);
}

std::vector<std::string> preprocess_differences(const Preprocess& actual, const Preprocess& expected) {
  const auto own = Json::parse(to_json(actual));
  const auto theirs = Json::parse(to_json(expected));
  std::vector<std::string> differences;
  for (const auto& [key, ours] : own.items()) {
    if (ours != theirs[key])
      differences.push_back(fmt::format("{} {} instead of {}", key, ours.dump(), theirs[key].dump()));
  }
  return differences;
}

Preprocess preprocess_from_json(std::string_view text) {
  const Json json = parse(text);
  Preprocess p;
  if (json.contains("preset")) {
    p = preprocess_preset(string("preset", json["preset"]));
  } else {
    for (const char* key : {"resize", "crop", "mean", "std"}) {
      if (!json.contains(key)) fail("preprocess: \"{}\" is missing (or \"preset\" to take it from)", key);
    }
  }
  for (const auto& [key, value] : json.items()) read_key(key, value, p);
  check_preprocess(p);
  return p;
}

}  // namespace pipit::internal
