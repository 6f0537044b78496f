#include "pipit/measuring/ceilings_json.h"

#include <cmath>

#include "engine/base/error.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;

// The JSON form of a rate in units of `unit`.
Json rate_json(const MeasuredRate& rate, double unit) {
  return {{"best", rate.best / unit},
          {"median", rate.median / unit},
          {"p10", rate.p10 / unit},
          {"rounds", rate.rounds}};
}

MeasuredRate rate_from(const Json& json, double unit) {
  const auto number = [&](const char* key) {
    const double value = json.at(key).get<double>();
    if (!std::isfinite(value) || value <= 0) fail("a rate of {}", value);
    return unit * value;
  };
  return {number("best"), number("median"), number("p10"), json.at("rounds").get<int>()};
}

// What takes the time of a rate, in microseconds: the shortest, the median, and what one in ten is longer than.
Json time_json(const MeasuredRate& rate) {
  return {{"best", 1e6 / rate.best},
          {"median", 1e6 / rate.median},
          {"p90", 1e6 / rate.p10},
          {"rounds", rate.rounds}};
}

MeasuredRate time_from(const Json& json) {
  const auto rate = [&](const char* key) {
    const double us = json.at(key).get<double>();
    if (!std::isfinite(us) || us <= 0) fail("a time of {} us", us);
    return 1e6 / us;
  };
  return {rate("best"), rate("median"), rate("p90"), json.at("rounds").get<int>()};
}

}  // namespace

Json ceilings_json(const Ceilings& ceilings) {
  Json json;
  json["device"] = device_name(ceilings.device);
  json["machine"] = ceilings.machine;
  if (ceilings.device == DeviceKind::cpu) json["threads"] = ceilings.threads;
  json["measured_at"] = ceilings.measured_at;
  json["seconds"] = ceilings.seconds;
  json["arithmetic"] = Json::array();
  for (const ArithmeticCeiling& a : ceilings.arithmetic) {
    Json entry = {
        {"products", products_name(a.products)}, {"unit", a.unit}, {"gflops", rate_json(a.flops, kGiga)}};
    if (a.tile.best > 0) entry["tile_gflops"] = rate_json(a.tile, kGiga);
    json["arithmetic"].push_back(std::move(entry));
  }
  json["memory"] = Json::array();
  for (const MemoryCeiling& m : ceilings.memory) {
    Json entry = {{"name", m.name}, {"bytes", m.bytes > 0 ? Json(m.bytes) : Json()}};
    entry["read_gb_per_s"] = rate_json(m.read, kGiga);
    entry["write_gb_per_s"] = rate_json(m.write, kGiga);
    entry["copy_gb_per_s"] = rate_json(m.copy, kGiga);
    entry["add_gb_per_s"] = rate_json(m.add, kGiga);
    json["memory"].push_back(std::move(entry));
  }
  if (ceilings.launches.best > 0) json["launch_us"] = time_json(ceilings.launches);
  if (ceilings.synchronizations.best > 0) json["synchronize_us"] = time_json(ceilings.synchronizations);
  return json;
}

Ceilings ceilings_from_json(const Json& json) {
  Ceilings ceilings;
  ceilings.device = json.at("device").get<std::string>() == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  ceilings.machine = json.at("machine").get<std::string>();
  ceilings.threads = json.value("threads", 0);
  ceilings.measured_at = json.at("measured_at").get<std::string>();
  ceilings.seconds = json.at("seconds").get<double>();
  for (const Json& entry : json.at("arithmetic")) {
    ArithmeticCeiling& a = ceilings.arithmetic.emplace_back();
    a.products = find_products(entry.at("products").get<std::string>());
    a.unit = entry.at("unit").get<std::string>();
    a.flops = rate_from(entry.at("gflops"), kGiga);
    if (entry.contains("tile_gflops")) a.tile = rate_from(entry.at("tile_gflops"), kGiga);
  }
  for (const Json& entry : json.at("memory")) {
    MemoryCeiling& m = ceilings.memory.emplace_back();
    m.name = entry.at("name").get<std::string>();
    if (!entry.at("bytes").is_null()) m.bytes = entry.at("bytes").get<std::int64_t>();
    m.read = rate_from(entry.at("read_gb_per_s"), kGiga);
    m.write = rate_from(entry.at("write_gb_per_s"), kGiga);
    m.copy = rate_from(entry.at("copy_gb_per_s"), kGiga);
    m.add = rate_from(entry.at("add_gb_per_s"), kGiga);
  }
  if (json.contains("launch_us")) ceilings.launches = time_from(json.at("launch_us"));
  if (json.contains("synchronize_us")) ceilings.synchronizations = time_from(json.at("synchronize_us"));
  if (!ceilings.known()) fail("no rates");
  return ceilings;
}

}  // namespace pipit::internal::detail
