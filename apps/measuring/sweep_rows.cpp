#include "apps/measuring/sweep_rows.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/display/pareto_svg.h"
#include "apps/display/table.h"
#include "engine/base/error.h"
#include "engine/base/file.h"

namespace pipit::apps {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::uint64_t kMostSweepBytes = std::uint64_t{1} << 28;

Json error_json(const LayerError& error) {
  return {{"mae", error.mae},
          {"max_error", error.max},
          {"relative_l2", error.relative_l2},
          {"top10", error.top10}};
}

LayerError error_from(const Json& json) {
  return {json.at("mae").get<double>(), json.at("max_error").get<double>(),
          json.at("relative_l2").get<double>(), json.at("top10").get<double>()};
}

// Quoted where it must be (RFC 4180).
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string SweepRow::key() const {
  return fmt::format("{}|{}|{}|{:.6f}", layer, precision, mode, keep);
}

Json SweepRow::json() const {
  Json json = {{"layer", layer}, {"precision", precision}, {"mode", mode}, {"keep", keep}};
  if (!problem.empty()) {
    json["problem"] = problem;
    return json;
  }
  json["kept"] = kept;
  json["kernel"] = kernel;
  json["dense_kernel"] = dense_kernel;
  json["ms"] = times.ms;
  json["ms_quartiles"] = {times.low_ms, times.high_ms};
  json["dense_ms"] = times.base_ms;
  json["turns"] = times.turns;
  json["speedup"] = times.speedup;
  json["error"] = error_json(error);
  if (refit) json["refit"] = error_json(*refit);
  return json;
}

SweepRow SweepRow::from_json(const Json& json) try {
  SweepRow row;
  row.layer = json.at("layer").get<std::string>();
  row.precision = json.at("precision").get<std::string>();
  row.mode = json.at("mode").get<std::string>();
  row.keep = json.at("keep").get<double>();
  if (json.contains("problem")) {
    row.problem = json.at("problem").get<std::string>();
    return row;
  }
  row.kept = json.at("kept").get<double>();
  row.kernel = json.at("kernel").get<std::string>();
  row.dense_kernel = json.at("dense_kernel").get<std::string>();
  row.times.ms = json.at("ms").get<double>();
  row.times.low_ms = json.at("ms_quartiles").at(0).get<double>();
  row.times.high_ms = json.at("ms_quartiles").at(1).get<double>();
  row.times.base_ms = json.at("dense_ms").get<double>();
  row.times.turns = json.at("turns").get<int>();
  row.times.speedup = json.at("speedup").get<double>();
  row.error = error_from(json.at("error"));
  if (json.contains("refit")) row.refit = error_from(json.at("refit"));
  return row;
} catch (const nlohmann::json::exception& e) {
  fail("no row of a sweep: {}", e.what());
}

std::string sweep_table(const std::vector<SweepRow>& rows) {
  using enum Table::Align;
  Table table({{"layer"},
               {"precision"},
               {"mode"},
               {"keep", right},
               {"ms", right},
               {"quartiles", right},
               {"x dense", right},
               {"kernel"},
               {"MAE", right},
               {"max", right},
               {"rel. L2", right},
               {"top-10", right},
               {"refit L2", right},
               {"refit top-10", right}});
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells{row.layer, row.precision, row.mode, fmt::format("{:.2f}", row.keep)};
    if (!row.problem.empty()) {
      cells.push_back(row.problem.substr(0, row.problem.find('\n')));
    } else {
      cells.insert(cells.end(), {fmt::format("{:.4f}", row.times.ms),
                                 fmt::format("{:.4f}-{:.4f}", row.times.low_ms, row.times.high_ms),
                                 fmt::format("{:.2f}", row.times.speedup), row.kernel,
                                 fmt::format("{:.3g}", row.error.mae), fmt::format("{:.3g}", row.error.max),
                                 fmt::format("{:.4f}", row.error.relative_l2),
                                 fmt::format("{:.1f}%", 100 * row.error.top10)});
      if (row.refit) {
        cells.push_back(fmt::format("{:.4f}", row.refit->relative_l2));
        cells.push_back(fmt::format("{:.1f}%", 100 * row.refit->top10));
      }
    }
    table.add(std::move(cells));
  }
  return table.str();
}

std::string sweep_csv(const std::vector<SweepRow>& rows) {
  std::string csv =
      "layer,precision,mode,keep,kept,kernel,dense_kernel,ms,ms_low,ms_high,dense_ms,turns,speedup,mae,max_"
      "error,"
      "relative_l2,top10,refit_mae,refit_max_error,refit_relative_l2,refit_top10,problem\n";
  const auto errors = [](const LayerError& e) {
    return fmt::format(",{},{},{},{}", e.mae, e.max, e.relative_l2, e.top10);
  };
  for (const SweepRow& row : rows) {
    csv += fmt::format("{},{},{},{},", csv_cell(row.layer), row.precision, row.mode, row.keep);
    if (!row.problem.empty()) {
      csv += std::string(17, ',') + csv_cell(row.problem) + "\n";
      continue;
    }
    csv += fmt::format("{},{},{},{},{},{},{},{},{}", row.kept, csv_cell(row.kernel),
                       csv_cell(row.dense_kernel), row.times.ms, row.times.low_ms, row.times.high_ms,
                       row.times.base_ms, row.times.turns, row.times.speedup);
    csv += errors(row.error) + (row.refit ? errors(*row.refit) : ",,,,") + ",\n";
  }
  return csv;
}

std::string sweep_svg(const std::vector<SweepRow>& rows) {
  std::vector<ParetoPoint> points;
  for (const SweepRow& row : rows) {
    if (!row.problem.empty()) continue;
    const LayerError& error = row.refit ? *row.refit : row.error;
    points.push_back({row.times.ms, 100 * (1 - error.relative_l2),
                      fmt::format("{} {} {}, keep {:g}", row.layer, row.precision, row.mode, row.keep)});
  }
  if (points.empty()) return {};
  for (ParetoPoint& point : points) {
    point.pareto = std::none_of(points.begin(), points.end(), [&](const ParetoPoint& other) {
      return other.ms <= point.ms && other.accuracy >= point.accuracy &&
             (other.ms < point.ms || other.accuracy > point.accuracy);
    });
  }
  return pareto_svg("Structured sparsity: time and output kept", points, std::nullopt,
                    "of the output, % (1 - relative error)");
}

SweepFile::SweepFile(std::string path, const Json& settings, bool resume) : path_(std::move(path)) {
  if (path_.empty()) return;
  const bool there = std::filesystem::exists(path_);
  if (there && !resume) fail("{}: is there already; --resume goes on with it", path_);
  if (there) read(settings);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("{}: {}", path_, std::strerror(errno));
  if (std::filesystem::file_size(path_) == 0) write_line(settings);
}

SweepFile::~SweepFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SweepFile::read(const Json& settings) {
  const std::string content = read_file(path_, kMostSweepBytes);
  const std::size_t complete = content.rfind('\n') == std::string::npos ? 0 : content.rfind('\n') + 1;
  std::size_t line = 0;
  for (std::size_t at = 0; at < complete; ++line) {
    const std::size_t end = content.find('\n', at);
    const Json json = Json::parse(content.substr(at, end - at), nullptr, false);
    at = end + 1;
    if (line == 0 && json != settings)
      fail("{}: is of another sweep: it says {}, this is {}", path_,
           json.dump(-1, ' ', false, Json::error_handler_t::replace), settings.dump());
    if (line == 0) continue;
    try {
      rows_.push_back(SweepRow::from_json(json));
    } catch (const Error& e) {
      fail("{}: line {}: {}", path_, line + 1, e.what());
    }
    keys_.insert(rows_.back().key());
  }
  if (complete < content.size()) std::filesystem::resize_file(path_, complete);
}

void SweepFile::write_line(const Json& json) {
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t written = ::write(descriptor_, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("{}: {}", path_, std::strerror(errno));
    at += static_cast<std::size_t>(written);
  }
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS)
    fail("{}: {}", path_, std::strerror(errno));
}

void SweepFile::append(SweepRow row) {
  if (descriptor_ >= 0) write_line(row.json());
  keys_.insert(row.key());
  rows_.push_back(std::move(row));
}

}  // namespace pipit::apps
