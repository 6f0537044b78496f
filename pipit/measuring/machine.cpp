#include "pipit/measuring/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/plan/tuning_cache.h"
#include "engine/platform/cgroup.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "engine/platform/isa.h"
#include "engine/platform/thread_pool.h"
#include "layers/cpu_kernels.h"
#include "models/image/decode.h"
#include "pipit/detail/bf16_gain.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::internal::detail {

namespace {

// Above this share of the CPUs others disturb what is timed.
constexpr double kBusy = 0.15;
constexpr std::size_t kLittleMemory = std::size_t{1} << 30;

// The first line of a file of the system; empty where there is none.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding operating_system() {
  utsname names{};
  if (uname(&names) != 0) return {"system", "the system does not say", {}};
  return {"system", fmt::format("{} {}, {}", names.sysname, names.release, names.machine), {}};
}

Finding cpus() {
  const int usable = available_cpus();
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{
      "CPU", fmt::format("{}, {} of {} usable", cpu_description(), usable, std::max<long>(all, online)), {}};
  const double quota = cgroup_cpu_limit("/sys/fs/cgroup", own_cgroups());
  if (std::isfinite(quota)) finding.value += fmt::format("; a control group grants {:.3g}", quota);
  if (std::isfinite(quota) && quota < std::ceil(quota))
    finding.advice =
        "a share of a CPU makes times uneven: grant the container whole ones (docker run --cpus)";
  else if (!std::isfinite(quota) && usable < online)
    finding.advice = "the affinity mask (taskset, numactl) leaves out the others";
  return finding;
}

Finding instruction_sets() {
  std::string names, missing;
  for (const Isa isa : all_isas()) {
    std::string& list = isa_available(isa) ? names : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", isa_name(isa));
  }
  Finding finding{"instruction sets", fmt::format("{}; {} is used", names, isa_name(chosen_isa())), {}};
  if (!missing.empty()) finding.value += fmt::format("; not here: {}", missing);
  if (const char* forced = std::getenv("PIPIT_ISA"); forced != nullptr && *forced != '\0')
    finding.advice = fmt::format("PIPIT_ISA={} decides; unset it for the best one", forced);
  return finding;
}

Finding caches() {
  Finding finding{"caches", {}, {}};
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string size = first_line(folder + "size");
    if (size.empty() || first_line(folder + "type") == "Instruction") continue;
    finding.value +=
        fmt::format("{}L{} {}", finding.value.empty() ? "" : ", ", first_line(folder + "level"), size);
  }
  if (finding.value.empty()) finding.value = "the system does not say";
  return finding;
}

Finding memory() {
  const std::size_t free = available_host_memory();
  Finding finding{"memory", fmt::format("{} free", mebibytes(free)), {}};
  if (free < kLittleMemory)
    finding.advice = "large models and batches may not fit; plans whose arena is larger are refused";
  return finding;
}

// "; 2445 MHz now" of the first CPU; empty where the system does not say.
std::string clock_now() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    return fmt::format("; {:.0f} MHz now", std::strtod(line.c_str() + line.find(':') + 1, nullptr));
  }
  return {};
}

Finding clock_rate() {
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  Finding finding{
      "clock",
      (governor.empty() ? "the system shows no governor (a virtual machine?)" : governor) + clock_now(),
      {}};
  if (governor == "powersave" || governor == "conservative" || governor == "ondemand")
    finding.advice =
        "short runs are timed at a lower clock; for measurements: cpupower frequency-set -g performance";
  return finding;
}

Finding load() {
  const std::string line = first_line("/proc/loadavg");
  const double one_minute = std::strtod(line.c_str(), nullptr);
  if (line.empty()) return {"load", "the system does not say", {}};
  Finding finding{"load", fmt::format("{:.2f} in the last minute", one_minute), {}};
  if (one_minute > kBusy * available_cpus())
    finding.advice = "other work disturbs times; compare in turns (bench --against), or wait";
  return finding;
}

Finding images() {
  const ImageDecoders decoders = image_decoders();
  return {"images",
          fmt::format("JPEG by {}, PNG by {}, {}", decoders.jpeg, decoders.png,
                      decoders.webp.empty() ? "no WebP" : "WebP by " + decoders.webp),
          {}};
}

void add_gpu(std::vector<Finding>& findings) {
  const CudaStatus status = cuda_status();
  if (!status.compiled) {
    findings.push_back(
        {"GPU", "this build has no CUDA",
         "with an NVIDIA GPU: install the CUDA toolkit, then cmake --preset default -DPIPIT_CUDA=ON"});
    return;
  }
  if (!status.problem.empty()) {
    findings.push_back({"GPU", fmt::format("built with CUDA {}; {}", status.toolkit, status.problem),
                        "--device cuda does not run; all else does"});
    return;
  }
  for (std::size_t i = 0; i < status.devices.size(); ++i)
    findings.push_back(
        {"GPU", fmt::format("{}, {}", status.devices[i], mebibytes(gpu_memory(static_cast<int>(i)))), {}});
  const CudaLibraries libraries = cuda_libraries();
  for (const auto& [name, found] : {std::pair{"cuBLASLt", libraries.cublaslt}, {"cuDNN", libraries.cudnn}}) {
    const bool missing = found.starts_with("not usable");
    findings.push_back(
        {name, found,
         missing ? "kernels of its own run in its place; LD_LIBRARY_PATH says where it is" : ""});
  }
}

Finding tuning() {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty())
    return {"tuning cache", "no folder for it", "set HOME or XDG_CACHE_HOME, or give --tuning-cache"};
  const std::filesystem::path path = folder / "tuning.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return {"tuning cache", path.string() + ", not there yet; --autotune makes it", {}};
  try {
    std::size_t decisions = 0;
    for (const auto& device : read_tuning_cache(path)) decisions += device.second.size();
    return {"tuning cache",
            fmt::format("{}, {}", path.string(), counted(static_cast<std::int64_t>(decisions), "layer")),
            {}};
  } catch (const Error& e) {
    return {"tuning cache", e.what(), "delete it; --autotune makes another"};
  }
}

Finding ceilings() {
  const KeptCeilings kept = kept_ceilings(ceilings_file(), DeviceKind::cpu, 0, default_threads());
  if (!kept.ceilings.known()) return {"ceilings", kept.problem, "for profile --floor: pipit ceilings"};
  return {"ceilings", fmt::format("{}, {:.1f} days old", ceilings_file().string(), kept.days), {}};
}

// Nothing where bf16 is not faster.
std::optional<Finding> bf16() {
  const KeptCeilings kept = kept_ceilings(ceilings_file(), DeviceKind::cpu, 0, available_cpus());
  const std::string text = bf16_rate_text(cpu_bf16_products(), kept.ceilings);
  if (text.empty()) return std::nullopt;
  return Finding{
      "bf16", text,
      "--precision bf16 for convolutions and matrix products; pipit evaluate with --against fp32 shows "
      "what it costs in accuracy"};
}

}  // namespace

std::vector<Finding> measuring_environment(bool gpu) {
  std::vector<Finding> findings;
  findings.push_back({"pipit", std::string(version()), {}});
  findings.push_back(operating_system());
  findings.push_back(cpus());
  findings.push_back(instruction_sets());
  findings.push_back(caches());
  findings.push_back(memory());
  findings.push_back(clock_rate());
  findings.push_back(load());
  if (gpu) add_gpu(findings);
  return findings;
}

std::vector<Finding> all_findings() {
  std::vector<Finding> findings = measuring_environment(true);
  findings.push_back(images());
  findings.push_back(tuning());
  findings.push_back(ceilings());
  if (std::optional<Finding> finding = bf16()) findings.push_back(std::move(*finding));
  return findings;
}

}  // namespace pipit::internal::detail
