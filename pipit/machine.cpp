#include "pipit/machine.h"

#include "engine/base/version.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/machine.h"

namespace pipit::tools {

MachineFacts examine_machine() {
  using Json = nlohmann::ordered_json;
  MachineFacts facts{internal::detail::all_findings(), {}};
  Json json = {{"pipit", version()}, {"command", "doctor"}};
  json["findings"] = Json::array();
  for (const Finding& finding : facts.findings) {
    json["findings"].push_back({{"name", finding.name},
                                {"value", finding.value},
                                {"advice", finding.advice.empty() ? Json() : Json(finding.advice)}});
  }
  facts.json = internal::detail::json_text(json);
  return facts;
}

}  // namespace pipit::tools
