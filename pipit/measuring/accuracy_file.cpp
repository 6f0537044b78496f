#include "pipit/measuring/accuracy_file.h"

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"

namespace pipit::internal::detail {

namespace {

constexpr std::uint64_t kMaxAccuracyBytes = std::uint64_t{16} << 20;
constexpr int kMaxAccuracyLevels = 12;

bool is_share(const JsonDocument& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 1;
}

// Around `share`, but for the rounding of both.
bool is_interval(const JsonDocument& value, double share) {
  constexpr double kRounding = 1e-9;
  return value.is_array() && value.size() == 2 && is_share(value[0]) && is_share(value[1]) &&
         value[0].get<double>() <= share + kRounding && value[1].get<double>() >= share - kRounding;
}

}  // namespace

nlohmann::ordered_json read_accuracy(const std::string& path) {
  const std::string content = read_file(path, kMaxAccuracyBytes);
  try {
    const JsonDocument json = parse_json(content, kMaxAccuracyLevels);
    const auto is_there = [&](const char* key, auto&& fits) {
      const auto found = json.is_object() ? json.find(key) : json.end();
      if (found == json.end() || !fits(*found))
        fail("it is not the JSON of pipit evaluate: \"{}\" is missing or wrong", key);
    };
    is_there("command", [](const JsonDocument& value) { return value == "evaluate"; });
    for (const char* key : {"model", "precision"})
      is_there(key, [](const JsonDocument& v) { return v.is_string(); });
    is_there("images", [](const JsonDocument& value) { return value.is_number_unsigned(); });
    // Where a model says yes or no there is no fifth answer.
    for (const std::string key : {"top1", "top5"}) {
      if (key == "top5" && json.contains("confusion")) continue;
      is_there(key.c_str(), is_share);
      const double share = json[key].get<double>();
      is_there((key + "_interval95").c_str(),
               [&](const JsonDocument& value) { return is_interval(value, share); });
    }
    if (json.contains("against"))
      is_there("against", [](const JsonDocument& value) { return value.is_object(); });
    nlohmann::ordered_json accuracy;
    for (const char* key :
         {"model", "precision", "images", "top1", "top1_interval95", "top5", "top5_interval95", "against"}) {
      if (json.contains(key)) accuracy[key] = json[key];
    }
    return accuracy;
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
}

}  // namespace pipit::internal::detail
