#include "pipit/sweeping/sweep_document.h"

#include <set>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "pipit/measuring/json_documents.h"
#include "pipit/sweeping/conv_rows.h"
#include "pipit/sweeping/conv_summary.h"
#include "pipit/sweeping/sparsity_rows.h"
#include "pipit/sweeping/sweep_file.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

void check_form(const JsonDocument& json, const char* key, int version) {
  if (const JsonDocument& form = member_of(json, key); form != version)
    fail("its form is {}; this version of pipit reads {}", shown(form), version);
}

void add_convolutions(Json& document, const JsonDocument& json) {
  check_form(json, "pipit_sweep_conv", kConvSweepVersion);
  std::vector<std::string> bases;
  for (const JsonDocument& base : list_of(json, "bases")) {
    if (!base.is_string()) fail("\"bases\" holds {}; expected names", shown(base));
    bases.push_back(base.get<std::string>());
  }
  if (bases.empty()) fail("\"bases\" is []; expected names");
  document["bases"] = bases;
  std::vector<tools::ConvRow> rows;
  std::set<std::string> keys;
  for_each_entry(json, "rows", [&](const JsonDocument& entry) {
    rows.push_back(conv_row_from(entry));
    if (!keys.insert(key_of(rows.back())).second) fail_repeated(key_of(rows.back()));
  });
  document["summaries"] = summaries_json(summaries_of(rows, bases));
  document["rows"] = Json::array();
  for (const tools::ConvRow& row : rows) document["rows"].push_back(conv_row_json(row));
}

void add_pruned_layers(Json& document, const JsonDocument& json) {
  check_form(json, "pipit_sweep", kSparsitySweepVersion);
  document["rows"] = Json::array();
  std::set<std::string> keys;
  for_each_entry(json, "rows", [&](const JsonDocument& entry) {
    const tools::SparsityRow row = sparsity_row_from(entry);
    if (!keys.insert(key_of(row)).second) fail_repeated(key_of(row));
    document["rows"].push_back(sparsity_row_json(row));
  });
}

}  // namespace

Json read_sweep_document(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;
  constexpr int kMaxLevels = 12;
  const std::string content = read_file(path, kMaxBytes);
  if (path.ends_with(".csv"))
    fail("{}: the JSON is read, which sweep conv and sweep sparsity write with --output FILE.json", path);
  try {
    const JsonDocument json = parse_json(content, kMaxLevels);
    const std::string command = text_of(json, "command");
    if (command != "sweep conv" && command != "sweep sparsity")
      fail("it is of pipit {}; expected the JSON of sweep conv or sweep sparsity", command);
    Json document = {
        {"command", command}, {"device", text_of(json, "device")}, {"threads", count_of(json, "threads")}};
    (command == "sweep conv" ? add_convolutions : add_pruned_layers)(document, json);
    if (document["rows"].empty()) fail("\"rows\" is []; there is nothing to show");
    return document;
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
}

}  // namespace pipit::internal::detail
