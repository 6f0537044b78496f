#include "pipit/measuring/run_json.h"

#include "engine/plan/arena_map.h"

namespace pipit::internal::detail {

nlohmann::ordered_json run_json(const RunTrace& trace) {
  nlohmann::ordered_json json = {{"index", trace.run}, {"ms", trace.ms}};
  json["calls"] = nlohmann::ordered_json::array();
  for (const TimedCall& call : trace.calls)
    json["calls"].push_back({{"layer", call.step}, {"begin_ms", call.begin_ms}, {"ms", call.ms}});
  return json;
}

nlohmann::ordered_json arena_json(const ExecutionPlan& plan) {
  const std::vector<ArenaBlock> blocks = arena_blocks(plan);
  nlohmann::ordered_json json = {{"bytes", plan.arena_bytes()},
                                 {"peak_live_bytes", plan.peak_live_bytes()},
                                 {"activation_bytes", plan.activation_bytes()},
                                 {"live_bytes", live_bytes(plan, blocks)}};
  json["blocks"] = nlohmann::ordered_json::array();
  for (const ArenaBlock& block : blocks) {
    json["blocks"].push_back({{"layer", block.step},
                              {"kind", block.scratch ? "scratch" : "output"},
                              {"offset", block.offset},
                              {"bytes", block.bytes},
                              {"first", block.first},
                              {"last", block.last}});
  }
  return json;
}

}  // namespace pipit::internal::detail
