#include "pipit/sweeping/sparsity_rows.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "pipit/measuring/json_documents.h"
#include "pipit/sweeping/layer_times.h"
#include "pipit/sweeping/sparse_layer.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kDense[] = "dense";

Json error_json(const tools::OutputError& error) {
  return {{"mae", error.mae},
          {"max_error", error.max},
          {"relative_l2", error.relative_l2},
          {"top10", error.top10}};
}

tools::OutputError error_from(const Json& json) {
  return {amount_of(json, "mae"), amount_of(json, "max_error"), amount_of(json, "relative_l2"),
          share_of(json, "top10")};
}

}  // namespace

std::string_view mode_name(const tools::SparsityRow& row) {
  return row.mode ? sparsity_mode_name(*row.mode) : kDense;
}

std::string key_of(const tools::SparsityRow& row) {
  return fmt::format("{}|{}|{}|{:.6f}", row.layer, precision_name(row.precision), mode_name(row), row.keep);
}

Json sparsity_row_json(const tools::SparsityRow& row) {
  Json json = {{"layer", row.layer},
               {"precision", precision_name(row.precision)},
               {"mode", mode_name(row)},
               {"keep", row.keep}};
  if (!row.problem.empty()) {
    json["problem"] = row.problem;
    return json;
  }
  json["kept"] = row.kept;
  json["kernel"] = row.kernel;
  json["dense_kernel"] = row.dense_kernel;
  add_times(json, row.times);
  json["dense_ms"] = row.dense_ms;
  add_speedup(json, row.speedup);
  json["error"] = error_json(row.error);
  if (row.refit) json["refit"] = error_json(*row.refit);
  return json;
}

tools::SparsityRow sparsity_row_from(const Json& json) try {
  tools::SparsityRow row;
  row.layer = text_of(json, "layer");
  row.precision = precision_of(json);
  if (const std::string mode = text_of(json, "mode"); mode != kDense) row.mode = sparsity_mode(mode);
  row.keep = share_of(json, "keep");
  if (json.contains("problem")) {
    row.problem = text_of(json, "problem");
    return row;
  }
  row.kept = share_of(json, "kept");
  row.kernel = text_of(json, "kernel");
  row.dense_kernel = text_of(json, "dense_kernel");
  row.times = times_of(json);
  row.dense_ms = positive_of(json, "dense_ms");
  row.speedup = speedup_of(json);
  row.error = error_from(object_of(json, "error"));
  if (json.contains("refit")) row.refit = error_from(object_of(json, "refit"));
  return row;
} catch (const Error& e) {
  fail("no row of a sweep: {}", e.what());
}

}  // namespace pipit::internal::detail
