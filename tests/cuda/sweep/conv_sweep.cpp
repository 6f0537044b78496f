// Convolutions with blocks of weights left out, INT8 and fp16, each against itself with all weights and cuDNN, on the
// GPU that is there.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/platform/device.h"
#include "tests/cuda/sweep/engines.h"

namespace pipit::sweep {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool pipit_only = false, every_variant = false;
  std::string json, kernel;
  std::vector<std::string> layers;
  std::vector<double> keep;
  std::vector<std::int64_t> panels{0};
};

struct Result {
  Configuration configuration;
  std::vector<Measured> measured;

  // The least time of these engines; 0: none ran.
  double best(std::initializer_list<std::string> engines) const {
    double least = 0;
    for (const Measured& m : measured) {
      if (m.ran() && std::find(engines.begin(), engines.end(), m.engine) != engines.end() &&
          (least == 0 || m.times.memory < least))
        least = m.times.memory;
    }
    return least;
  }
};

Json as_json(const std::vector<Result>& results) {
  Json list = Json::array();
  for (const Result& r : results) {
    const Configuration& c = r.configuration;
    Json engines = Json::object();
    for (const Measured& m : r.measured) {
      engines[m.engine] = {{"kernel", m.kernel}};
      if (m.ran()) engines[m.engine]["memory_us"] = std::round(m.times.memory * 100) / 100;
      if (m.ran()) engines[m.engine]["cached_us"] = std::round(m.times.cached * 100) / 100;
    }
    list.push_back({{"batch", c.batch},
                    {"in", c.in_c},
                    {"out", c.out_c},
                    {"size", c.size},
                    {"kernel", c.kernel},
                    {"stride", c.stride},
                    {"keep", c.keep},
                    {"panel", c.panel},
                    {"engines", engines}});
  }
  cudaDeviceProp device{};
  PIPIT_CUDA(cudaGetDeviceProperties(&device, 0));
  return {{"gpu", device.name}, {"configurations", list}};
}

Configuration parse_layer(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(text);
  for (std::string number; std::getline(stream, number, ',');) {
    const char* end = number.data() + number.size();
    std::int64_t value = 0;
    if (std::from_chars(number.data(), end, value).ptr != end || value < 1 || value > 4096)
      fail("'{}' in the layer '{}' is no number from 1 to 4096", number, text);
    numbers.push_back(value);
  }
  if (numbers.size() != 6)
    fail("a layer is batch, channels, outputs, image, window and stride, with commas between; not '{}'",
         text);
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
}

// The layers that were asked for, each with every share of its blocks.
std::vector<Configuration> pruned_layers(const Options& options) {
  std::vector<Configuration> all;
  for (const std::string& text : options.layers) {
    Configuration c = parse_layer(text);
    all.push_back(c);
    for (const std::int64_t panel : options.panels) {
      for (const double keep : options.keep) {
        if (keep >= 1) continue;
        c.keep = keep, c.panel = panel;
        all.push_back(c);
      }
    }
  }
  return all;
}

// Every layer against itself with all of its weights.
void print_pruned(const std::vector<Result>& results) {
  fmt::print("{:<38}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  {}\n", "us, operands in memory; ratio to all weights",
             "fp16", "", "int8", "", "cudnn16", "cudnn8", "kernels: fp16, int8");
  const Result* dense = nullptr;
  for (const Result& r : results) {
    if (r.configuration.keep >= 1) dense = &r;
    const auto of = [](const Result& result, const std::string& engine) {
      return *std::find_if(result.measured.begin(), result.measured.end(),
                           [&](const Measured& m) { return m.engine == engine; });
    };
    const double half = r.best({"fp16"}), bytes = r.best({"int8"});
    fmt::print("{:<38}{:>9.2f}{:>8.2f}x{:>9.2f}{:>8.2f}x{:>9.2f}{:>9.2f}  {}, {}\n", r.configuration.name(),
               half, dense->best({"fp16"}) / half, bytes, dense->best({"int8"}) / bytes,
               dense->best({"cudnn fp16 nhwc", "cudnn fp16 nchw"}), dense->best({"cudnn int8"}),
               of(r, "fp16").kernel, of(r, "int8").kernel);
  }
}

void run(const Options& options) {
  if (const std::string problem = cuda_status().problem; !problem.empty()) fail("{}", problem);
  select_gpu(0);
  Timer timer;
  const std::vector<Configuration> chosen = pruned_layers(options);
  measure_pipit(chosen[0], timer, false, "");  // until the clocks are up
  std::vector<Result> results;
  for (const Configuration& c : chosen) {
    Result result{c, measure_pipit(c, timer, options.every_variant, options.kernel)};
    // To cuDNN zeros are weights like others.
    if (!options.pipit_only && c.keep >= 1) {
      for (Measured& m : measure_cudnn(c, timer)) result.measured.push_back(std::move(m));
    }
    results.push_back(std::move(result));
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << as_json(results).dump(1) << "\n";
    if (!file.flush()) fail("cannot write {}", options.json);
  }
  print_pruned(results);
}

}  // namespace
}  // namespace pipit::sweep

int main(int argc, char** argv) {
  pipit::sweep::Options options;
  CLI::App app(
      "Times convolutions with all weights and with blocks of them left out: pipit's INT8 and fp16\n"
      "kernels by rule, and cuDNN with all weights.");
  app.add_flag("--pipit-only", options.pipit_only,
               "Leave cuDNN out, whose plans take a second each to build");
  app.add_flag("--every-variant", options.every_variant,
               "Time every kernel of pipit's in all its variants, too");
  app.add_option("--kernel", options.kernel, "Time this kernel of pipit's in all its variants, too");
  app.add_option("--layer", options.layers,
                 "batch,channels,outputs,image,window,stride, such as 16,64,128,56,3,1; again for others")
      ->required();
  app.add_option("--keep", options.keep,
                 "Also with these shares of the blocks of 16 bytes of channels of a tap that are not zeros")
      ->check(CLI::Range(0.0, 1.0))
      ->delimiter(',');
  app.add_option("--panel", options.panels, "With --keep: outputs that keep the same blocks; 0: all")
      ->check(CLI::Range(0, 4096))
      ->delimiter(',');
  app.add_option("--json", options.json, "Write all times to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    pipit::sweep::run(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "conv_sweep: {}\n", error.what());
    return 1;
  }
}
