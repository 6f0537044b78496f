#include "engine/platform/device.h"

#include <fstream>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

std::string read_cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string cpu_description() {
  static const std::string& model = *new std::string(read_cpu_model());
  return model;
}

void require_device(DeviceKind device) {
  if (device == DeviceKind::cpu) return;
  const CudaStatus status = cuda_status();
  if (!status.compiled) {
    fail(
        "device cuda: this build has no CUDA support; install the CUDA toolkit and configure with "
        "-DPIPIT_CUDA=ON");
  }
  if (!status.problem.empty()) fail("device cuda: {}", status.problem);
}

}  // namespace pipit::internal
