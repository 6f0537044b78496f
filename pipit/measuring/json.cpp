#include "pipit/measuring/json.h"

#include <string_view>

#include "engine/base/printable.h"
#include "models/image/decode.h"
#include "models/score_kind.h"
#include "pipit/measuring/runner.h"
#include "pipit/version.h"

namespace pipit::internal::detail {

namespace {

// Lists of nothing but numbers, which dump() spreads over as many lines. `text` is what it wrote.
std::string numbers_in_one_line(std::string_view text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      result += c;
      result += text[++i];
      continue;
    }
    if (c == '"') quoted = !quoted;
    const std::size_t end = !quoted && c == '[' ? text.find_first_not_of("0123456789+-.eE, \n", i + 1) : 0;
    if (end == 0 || end == text.npos || text[end] != ']') {
      result += c;
      continue;
    }
    for (const char inside : text.substr(i, end - i)) {
      if (inside != ' ' && inside != '\n') result += inside;
      if (inside == ',') result += ' ';
    }
    i = end - 1;
  }
  return result;
}

}  // namespace

nlohmann::ordered_json decoders_json() {
  const ImageDecoders decoders = image_decoders();
  nlohmann::ordered_json json = {{"jpeg", decoders.jpeg}, {"png", decoders.png}};
  if (!decoders.webp.empty()) json["webp"] = decoders.webp;
  return json;
}

void add_scores_to(nlohmann::ordered_json& json, const ClassOutput& output) {
  json["scores"] = score_kind_name(output.kind);
  if (are_independent(output.kind)) json["threshold"] = output.threshold;
}

nlohmann::ordered_json json_header(const std::string& command, const std::string& model,
                                   const ExecutionPlan& plan) {
  nlohmann::ordered_json json;
  json["pipit"] = version();
  json["command"] = command;
  json["model"] = model;
  json["device"] = device_name(plan.options().device);
  json["precision"] = precision_name(computed_precision(plan));
  json["threads"] = plan.options().threads;
  return json;
}

std::string json_text(const nlohmann::ordered_json& json) {
  // Paths and labels may hold bytes that are not UTF-8: replace them rather than fail.
  return printable_json(numbers_in_one_line(
             json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace))) +
         "\n";
}

}  // namespace pipit::internal::detail
