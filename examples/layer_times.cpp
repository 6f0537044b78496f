// layer_times MODEL [KERNEL]: the ten slowest layers of a model, and how much of the time they take.
//
// KERNEL is run wherever it accepts a layer, for example Conv=im2col_gemm; compare the times with those without it.
#include <pipit/pipit.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

int main(int argc, char** argv) try {
  if (argc != 2 && argc != 3) throw pipit::Error("usage: layer_times MODEL [KERNEL]");

  pipit::LoadOptions options;
  options.device.threads = 1;  // times of one thread are easier to explain
  if (argc == 3) options.kernels.prefer = {argv[2]};
  const pipit::CompiledModel model(argv[1], options);
  for (const pipit::TensorInfo& input : model.inputs()) std::printf("input   %s\n", input.name.c_str());
  std::printf("memory  %.1f MiB between the layers\n", static_cast<double>(model.arena_bytes()) / (1 << 20));

  // Without inputs the layers run on random numbers, always the same ones.
  pipit::tools::ProfileOptions runs;
  runs.runs = 20;
  pipit::tools::ModelProfile profile = pipit::tools::profile(model, {}, runs);

  // Times are medians over the runs. What no layer accounts for is the residual: copies, and the steps between layers.
  std::printf("run     %.3f ms, of which %.3f ms are outside the layers\n", profile.end_to_end_ms,
              profile.residual_ms);
  std::sort(profile.layers.begin(), profile.layers.end(),
            [](const auto& a, const auto& b) { return a.median_ms > b.median_ms; });
  std::printf("\n%8s %6s %8s  %-14s %-22s %s\n", "ms", "share", "GMAC/s", "kernel", "geometry", "layer");
  double all = 0, slowest = 0;
  for (const pipit::tools::LayerTime& layer : profile.layers) all += layer.median_ms;
  for (std::size_t i = 0; i < std::min<std::size_t>(10, profile.layers.size()); ++i) {
    const pipit::tools::LayerTime& layer = profile.layers[i];
    slowest += layer.median_ms;
    // Multiply-accumulates per second show how well a kernel uses the machine. A layer with few of them for its bytes
    // is limited by memory instead.
    const double rate = layer.median_ms > 0 ? static_cast<double>(layer.macs) / layer.median_ms * 1e-6 : 0;
    std::printf("%8.3f %4.0f %% %8.1f  %-14s %-22s %s\n", layer.median_ms, 100 * layer.median_ms / all, rate,
                layer.kernel.c_str(), layer.geometry.c_str(), layer.name.c_str());
  }
  std::printf("together %.0f %% of all layers\n", 100 * slowest / all);
} catch (const std::exception& e) {
  std::fprintf(stderr, "layer_times: %s\n", e.what());
  return 1;
}
