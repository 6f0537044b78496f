#include "apps/measuring/sweep_document.h"

#include "apps/measuring/conv_rows.h"
#include "apps/measuring/json_documents.h"
#include "apps/measuring/sweep_file.h"
#include "engine/base/error.h"
#include "engine/base/file.h"

namespace pipit::apps {

nlohmann::ordered_json read_sweep_document(const std::string& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
  constexpr int kMostLevels = 12;
  const std::string content = read_file(path, kMostBytes);
  try {
    const JsonDocument json = parse_json(content, kMostLevels);
    if (text_of(json, "command") != "sweep conv")
      fail("it is of pipit {}; expected the JSON of sweep conv", text_of(json, "command"));
    if (const JsonDocument& version = member_of(json, "pipit_sweep_conv"); version != kConvSweepVersion)
      fail("its form is {}; this version of pipit reads {}", shown(version), kConvSweepVersion);
    const JsonDocument& threads = member_of(json, "threads");
    if (!threads.is_number_unsigned()) fail("\"threads\" is {}; expected a count", shown(threads));
    nlohmann::ordered_json document = {
        {"device", text_of(json, "device")}, {"threads", threads}, {"base", text_of(json, "base")}};
    std::vector<ConvRow> rows;
    for (const JsonDocument& row : member_of(json, "rows")) rows.push_back(ConvRow::from_json(row));
    document["summaries"] = summaries_json(rows);
    document["rows"] = nlohmann::ordered_json::array();
    for (const ConvRow& row : rows) document["rows"].push_back(row.json());
    return document;
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
}

}  // namespace pipit::apps
