// How many runs in memory of the GPU the library makes in a second, and how long one takes to be queued, as JSON:
//
//   bench_on_device MODEL BATCH PRECISION [RUNS]
//
// python/tests/bench_gpu.py compares Python with it.
#include <pipit/pipit.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace pipit;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  LoadOptions load;
  load.device.kind = DeviceKind::cuda;
  load.shapes.batch = std::atoi(argv[2]);
  load.precision = std::string_view(argv[3]) == "fp16" ? Precision::fp16 : Precision::fp32;
  const int runs = argc > 4 ? std::atoi(argv[4]) : 200;
  const CompiledModel model(argv[1], load);
  ModelSession session = model.session();
  std::vector<GpuMemory> memory;
  const auto arrays = [&](std::span<const TensorInfo> infos) {
    std::vector<DeviceArray> views;
    for (const TensorInfo& info : infos) {
      std::vector<float> values(static_cast<std::size_t>(info.shape.elements()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 2654435761 % 1000) / 500 - 1;
      memory.emplace_back(4 * values.size(), 0).copy_from(values.data(), 4 * values.size());
      views.emplace_back(static_cast<float*>(memory.back().data()), info.shape);
    }
    return views;
  };
  const std::vector<DeviceArray> inputs = arrays(model.inputs()), outputs = arrays(model.outputs());
  std::vector<float> last(1);
  std::vector<double> rates, queued;
  for (int turn = 0; turn < 8; ++turn) {
    const auto begin = Clock::now();
    for (int i = 0; i < runs; ++i) session.run_on_device(inputs, outputs);
    const double launched = seconds_since(begin);
    memory.back().copy_to(last.data(), 4);
    if (turn == 0) continue;
    queued.push_back(1e6 * launched / runs);
    rates.push_back(runs / seconds_since(begin));
  }
  std::ranges::sort(rates);
  std::ranges::sort(queued);
  std::printf("{\"runs_per_s\": %.2f, \"queued_us\": %.2f}\n", rates[rates.size() / 2],
              queued[queued.size() / 2]);
  return 0;
}
