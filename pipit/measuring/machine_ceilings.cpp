#include "pipit/measuring/machine_ceilings.h"

#include <fmt/format.h>

#include <ctime>
#include <iomanip>
#include <optional>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"
#include "engine/platform/machine_identity.h"
#include "layers/cpu_ceilings.h"
#include "layers/cpu_kernels.h"
#include "layers/gpu_ceilings.h"
#include "pipit/measuring/ceilings_json.h"

namespace pipit::internal::detail {

namespace {

namespace fs = std::filesystem;

// The form of the file and the method of measuring: files of another one are not used.
constexpr std::string_view kForm = "pipit ceilings 1";
constexpr std::uintmax_t kMaxCeilingsBytes = std::uintmax_t{4} << 20;
constexpr int kMaxLevels = 6;

// Days since a time as Ceilings has it.
std::optional<double> days_since(const std::string& utc) {
  std::tm parts{};
  std::istringstream text(utc);
  text >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%SZ");
  if (text.fail()) return std::nullopt;
  return std::difftime(std::time(nullptr), timegm(&parts)) / 86400;
}

// By Ceilings::machine. Throws Error and exceptions of the JSON library for what is not the content of such a file.
JsonDocument machines_of(const std::string& content) {
  const JsonDocument document = parse_json(content, kMaxLevels);
  if (!document.is_object() || !document.contains("form") || document.at("form") != kForm)
    fail("it is not of the form \"{}\"", kForm);
  return document.at("machines");
}

bool missing(const fs::path& file) {
  std::error_code error;
  return fs::status(file, error).type() == fs::file_type::not_found;
}

KeptCeilings fitting(const JsonDocument& machines, const std::string& file, const std::string& machine) {
  if (!machines.is_object() || machines.empty()) fail("it holds no ceilings");
  if (!machines.contains(machine)) {
    return {
        {},
        fmt::format("{} holds ceilings of {}{}, not of {}", file, machines.begin().key(),
                    machines.size() > 1 ? fmt::format(" and {} more", machines.size() - 1) : "", machine)};
  }
  KeptCeilings kept{ceilings_from_json(machines.at(machine)), {}};
  const std::optional<double> days = days_since(kept.ceilings.measured_at);
  if (!days || *days < -1)
    return {{}, fmt::format("{}: measured at '{}', which has not come yet", file, kept.ceilings.measured_at)};
  kept.days = std::max(*days, 0.0);
  if (kept.days > kMaxDays)
    return {{}, fmt::format("{}: measured {:.0f} days ago, more than {}", file, kept.days, kMaxDays)};
  return kept;
}

}  // namespace

fs::path ceilings_file() {
  const fs::path folder = cache_folder();
  return folder.empty() ? fs::path() : folder / "ceilings.json";
}

KeptCeilings kept_ceilings(const fs::path& file, DeviceKind device, int gpu, int threads) {
  if (file.empty()) return {{}, "there is no folder to keep ceilings in (set HOME or XDG_CACHE_HOME)"};
  const std::string machine = machine_identity(device, gpu, threads);
  if (missing(file)) return {{}, fmt::format("no ceilings of {} are kept", machine)};
  std::string content;
  try {
    content = read_file(file, kMaxCeilingsBytes);
  } catch (const Error& e) {
    return {{}, e.what()};
  }
  try {
    return fitting(machines_of(content), file.string(), machine);
  } catch (const std::exception& e) {
    return {{}, fmt::format("{}: not a file of ceilings: {}", file.string(), e.what())};
  }
}

Ceilings measure_ceilings(DeviceKind device, int gpu, int threads, const CeilingsProgress& progress) {
  return device == DeviceKind::cuda ? measure_gpu_ceilings(gpu, progress)
                                    : measure_cpu_ceilings(threads, progress);
}

void prepare_ceilings_file(const fs::path& file) {
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);
  try {
    if (error) fail("{}: its folder cannot be made: {}", file.string(), error.message());
    check_writable(file);
  } catch (const Error& e) {
    fail("{}; XDG_CACHE_HOME names another folder for caches", e.what());
  }
}

std::string keep_ceilings(const fs::path& file, const Ceilings& ceilings) {
  prepare_ceilings_file(file);
  const FileLock lock(file);
  JsonDocument machines = JsonDocument::object();
  try {
    if (!missing(file)) machines = machines_of(read_file(file, kMaxCeilingsBytes));
  } catch (const std::exception&) {
    machines = JsonDocument::object();
  }
  machines[ceilings.machine] = ceilings_json(ceilings);
  const JsonDocument document = {{"form", kForm}, {"machines", std::move(machines)}};
  write_file(file, document.dump(1, ' ', false, JsonDocument::error_handler_t::replace) + "\n");
  return lock.problem();
}

std::optional<Bf16Gain> bf16_gain_here(const ExecutionPlan& plan, const Ceilings& measured) {
  const double products = cpu_bf16_products();
  if (products <= 1 || plan.options().device != DeviceKind::cpu) return std::nullopt;
  if (measured.known()) return bf16_gain(plan, products, measured);
  const KeptCeilings kept = kept_ceilings(ceilings_file(), DeviceKind::cpu, 0, plan.options().threads);
  return bf16_gain(plan, products, kept.ceilings);
}

Ceilings machine_ceilings(DeviceKind device, int gpu, int threads,
                          const std::function<void(const std::string&)>& note) {
  KeptCeilings kept = kept_ceilings(ceilings_file(), device, gpu, threads);
  if (kept.ceilings.known()) return std::move(kept.ceilings);
  if (note)
    note(fmt::format("{}; measuring them takes some seconds, 'pipit ceilings' keeps them", kept.problem));
  return measure_ceilings(device, gpu, threads);
}

}  // namespace pipit::internal::detail
