// The sweep: INT8 and fp16 convolutions of few channels against cuDNN, on the GPU that is there.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/graph/half.h"
#include "engine/platform/device.h"
#include "layers/gpu_ceilings.h"
#include "tests/cuda/sweep/engines.h"

namespace pipit::sweep {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::size_t count = 110;
  unsigned seed = 1;
  double seconds = 0;
  bool pipit_only = false, every_variant = false;
  int proposals = 4;
  std::string json, only, kernel;
  std::vector<std::string> layers;
  std::vector<double> keep;
  std::vector<std::int64_t> panels{0};
};

struct Result {
  Configuration configuration;
  std::vector<Measured> measured;

  // The least time of the engines whose names begin with one of these; 0: none ran.
  double best(std::initializer_list<std::string> engines) const {
    double least = 0;
    for (const Measured& m : measured) {
      if (m.ran() && std::find(engines.begin(), engines.end(), m.engine) != engines.end() &&
          (least == 0 || m.times.memory < least))
        least = m.times.memory;
    }
    return least;
  }
  double pytorch() const { return best({"cudnn nhwc", "cudnn nchw"}); }
  double fused() const { return best({"cudnn fused nhwc", "cudnn fused nchw"}); }
};

// A launch that waits for the one before takes this long whatever it does.
constexpr double kLeastMicroseconds = 2;

double flops_per_second(const Ceilings& peak, bool int8) {
  return peak.find(int8 ? Products::int8 : Products::fp16)->flops.best;
}

// Of operands that come from memory and results that go there.
double floor_us(const Configuration& c, const Ceilings& peak, bool int8) {
  const double bytes_per_second = peak.memory.back().copy.best;
  return std::max({1e6 * c.flops() / flops_per_second(peak, int8),
                   1e6 * c.elements() * (int8 ? 1 : 2) / bytes_per_second, kLeastMicroseconds});
}

// Geometric mean, least, and how many are at least 1.
struct Ratios {
  double logarithms = 0, least = HUGE_VAL;
  int count = 0, wins = 0;
  void add(double ratio) {
    logarithms += std::log(ratio), least = std::min(least, ratio), ++count, wins += ratio >= 1;
  }
  std::string text() const {
    if (count == 0) return fmt::format("{:>24}", "-");
    return fmt::format("{:>5.2f} ({:>4.2f}) {:>4}/{:<4}", std::exp(logarithms / count), least, wins, count);
  }
};

void print_table(const std::vector<Result>& results, const Ceilings& peak) {
  struct Row {
    Ratios int8, real, half, int8_fused, half_fused, int8_floor, half_floor;
  };
  std::map<std::string, Row> rows;
  for (const Result& r : results) {
    const Configuration& c = r.configuration;
    std::string kernel;
    for (const Measured& m : r.measured) {
      if (m.engine == "int8") kernel = m.kernel;
    }
    for (const std::string& name :
         {std::string(" all"), fmt::format("batch {:>2}", c.batch), fmt::format("channels {:>2}", c.in_c),
          fmt::format("outputs {:>2}", c.out_c), fmt::format("image {:>3}", c.size),
          fmt::format("window {:>2}", c.kernel), fmt::format("stride {}", c.stride),
          "INT8 kernel " + kernel}) {
      Row& row = rows[name];
      const auto add = [](Ratios& ratios, double peer, double own) {
        if (peer > 0 && own > 0) ratios.add(peer / own);
      };
      add(row.int8, r.pytorch(), r.best({"int8"}));
      add(row.real, r.pytorch(), r.best({"int8 to f16"}));
      add(row.half, r.pytorch(), r.best({"fp16"}));
      add(row.int8_fused, r.fused(), r.best({"int8"}));
      add(row.half_fused, r.fused(), r.best({"fp16"}));
      add(row.int8_floor, floor_us(c, peak, true), r.best({"int8"}));
      add(row.half_floor, floor_us(c, peak, false), r.best({"fp16"}));
    }
  }
  fmt::print("geometric mean (least) how many are faster, of how many; operands in memory\n");
  fmt::print("{:<24}{:>24}{:>24}{:>24}{:>24}{:>24}{:>24}{:>24}\n", "", "cuDNN / int8", "cuDNN / int8 to f16",
             "cuDNN / fp16", "fused / int8", "fused / fp16", "roofline / int8", "roofline / fp16");
  for (const auto& [name, row] : rows)
    fmt::print("{:<24}{}{}{}{}{}{}{}\n", name, row.int8.text(), row.real.text(), row.half.text(),
               row.int8_fused.text(), row.half_fused.text(), row.int8_floor.text(), row.half_floor.text());
}

Json as_json(const std::vector<Result>& results, const Options& options, const Ceilings& peak) {
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
                    {"floor_int8_us", std::round(floor_us(c, peak, true) * 100) / 100},
                    {"floor_fp16_us", std::round(floor_us(c, peak, false) * 100) / 100},
                    {"engines", engines}});
  }
  cudaDeviceProp device{};
  PIPIT_CUDA(cudaGetDeviceProperties(&device, 0));
  return {{"gpu", device.name},
          {"seed", options.seed},
          {"flops_per_second", flops_per_second(peak, false)},
          {"bytes_per_second", peak.memory.back().copy.best},
          {"configurations", list}};
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
               half, dense->best({"fp16"}) / half, bytes, dense->best({"int8"}) / bytes, dense->fused(),
               dense->best({"cudnn int8"}), of(r, "fp16").kernel, of(r, "int8").kernel);
  }
}

int run(const Options& options) {
  if (const std::string problem = cuda_status().problem; !problem.empty()) fail("{}", problem);
  select_gpu(0);
  const Ceilings peak = measure_gpu_ceilings(0);
  Timer timer;
  std::vector<Configuration> chosen = sample(grid(), grid().size(), options.seed);
  if (!options.only.empty()) {
    std::erase_if(chosen,
                  [&](const Configuration& c) { return c.name().find(options.only) == std::string::npos; });
  }
  chosen.resize(std::min(chosen.size(), options.count));
  if (!options.layers.empty()) chosen = pruned_layers(options);
  if (!chosen.empty()) measure_pipit(chosen[0], timer, false, "");  // until the clocks are up
  const auto start = std::chrono::steady_clock::now();
  std::vector<Result> results;
  for (const Configuration& c : chosen) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (options.seconds > 0 && spent.count() > options.seconds) break;
    Result result{c, measure_pipit(c, timer, options.every_variant, options.kernel)};
    // To cuDNN zeros are weights like others.
    if (!options.pipit_only && c.keep >= 1) {
      if (!options.layers.empty()) {
        for (Measured& m : measure_cudnn_int8(c, timer, options.proposals))
          result.measured.push_back(std::move(m));
      }
      for (Measured& m : measure_cudnn(c, timer, options.proposals)) result.measured.push_back(std::move(m));
    }
    results.push_back(std::move(result));
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << as_json(results, options, peak).dump(1) << "\n";
    if (!file.flush()) fail("cannot write {}", options.json);
  }
  if (!options.layers.empty()) return print_pruned(results), 0;
  fmt::print("{} of {} configurations, seed {}; {:.0f} TFLOP/s, {:.2f} TB/s\n", results.size(), grid().size(),
             options.seed, flops_per_second(peak, false) / 1e12, peak.memory.back().copy.best / 1e12);
  print_table(results, peak);
  return 0;
}

}  // namespace
}  // namespace pipit::sweep

int main(int argc, char** argv) {
  pipit::sweep::Options options;
  CLI::App app(
      "Times 3686 convolutions of few channels, or a random sample of them: pipit's INT8 and fp16 kernels, "
      "cuDNN "
      "in fp16 as PyTorch calls it, and cuDNN's fastest plan with the bias fused.");
  app.add_option("--count", options.count, "How many of the 3686, drawn at random")->capture_default_str();
  app.add_option("--seed", options.seed, "Of the drawing; a smaller count is the beginning of a larger one")
      ->capture_default_str();
  app.add_option("--only", options.only,
                 "Only those whose names, such as 'n4 8->16 k3 s1 @64', hold this text");
  app.add_option("--seconds", options.seconds, "Begin no configuration after this time; 0: no limit");
  app.add_flag("--pipit-only", options.pipit_only,
               "Leave cuDNN out, whose plans take a second each to build");
  app.add_flag("--every-variant", options.every_variant,
               "Time every kernel of pipit's in all its variants, too");
  app.add_option("--kernel", options.kernel, "Time this kernel of pipit's in all its variants, too");
  app.add_option("--proposals", options.proposals, "Plans of cuDNN's to choose the fused ones from")
      ->capture_default_str()
      ->check(CLI::Range(0, 16));
  app.add_option(
      "--layer", options.layers,
      "Instead of the 3686: batch,channels,outputs,image,window,stride, such as 16,64,128,56,3,1; again for "
      "further ones");
  app.add_option("--keep", options.keep,
                 "With --layer: shares of the blocks of 16 bytes of channels of a tap that are not zeros")
      ->check(CLI::Range(0.0, 1.0))
      ->delimiter(',');
  app.add_option("--panel", options.panels, "With --keep: outputs that keep the same blocks; 0: all")
      ->check(CLI::Range(0, 4096))
      ->delimiter(',');
  app.add_option("--json", options.json, "Write all times to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return pipit::sweep::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "conv_sweep: {}\n", error.what());
    return 1;
  }
}
