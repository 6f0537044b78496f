#include "layers/cpu/tile/peak_probe.h"

#include <memory>
#include <random>
#include <vector>

#include "engine/graph/half.h"
#include "engine/graph/tensor.h"

namespace pipit::internal {

namespace {

// Operands of the largest tile with kDepth steps of K, and room for its outputs.
struct TileOperands {
  static constexpr std::int32_t kDepth = 128;
  static constexpr std::int64_t kPixels = 2 * kMaxTileStrip;
  HostBuffer a{kPixels * kDepth * sizeof(float)};
  HostBuffer weights;
  HostBuffer c;
  std::vector<float> multipliers;
  std::vector<std::int32_t> sum_bias;
  std::int32_t segment = 0;
  TileCall call;

  explicit TileOperands(const TileKernels& kernels)
      : weights(static_cast<std::size_t>(kDepth * kernels.panel()) * sizeof(float)),
        c(static_cast<std::size_t>(kPixels * kernels.panel()) * sizeof(float)),
        multipliers(static_cast<std::size_t>(kernels.panel()), 1.0F),
        sum_bias(multipliers.size(), 0) {
    std::mt19937 random(1);
    fill(a, kPixels * kDepth, kernels, random);
    fill(weights, std::int64_t{kDepth} * kernels.panel(), kernels, random);
    call.a_stride = kDepth * 4;
    call.segments = &segment;
    call.segment_count = 1;
    call.run = kDepth;
    call.weights = call.prefetch = weights.data();
    call.c_stride = kernels.panel() * 4;
    for (int g = 0; g < 2; ++g) {
      call.a[g] = a.data() + g * kernels.strip * call.a_stride;
      call.c[g] = c.data() + g * kernels.strip * call.c_stride;
    }
    call.columns = kernels.panel();
    call.multiplier = multipliers.data();
    call.sum_bias = sum_bias.data();
    call.high = 1e30F;
    call.output_type = TileType::f32;
  }
  TileOperands(const TileOperands&) = delete;
  TileOperands& operator=(const TileOperands&) = delete;

  // Values between -0.1 and 0.1: arithmetic on zeros would need less power, and run at a higher clock rate.
  static void fill(HostBuffer& buffer, std::int64_t steps, const TileKernels& kernels, std::mt19937& random) {
    std::uniform_real_distribution<float> values(-0.1F, 0.1F);
    if (kernels.step == 1) {
      auto* floats = reinterpret_cast<float*>(buffer.data());
      for (std::int64_t i = 0; i < steps; ++i) floats[i] = values(random);
    } else {
      auto* halves = reinterpret_cast<Half*>(buffer.data());
      for (std::int64_t i = 0; i < 2 * steps; ++i) halves[i] = to_half(values(random));
    }
  }
};

}  // namespace

MeasuredRate measure_peak(ThreadPool& pool, const TileKernels& kernels) {
  return measure_rate(pool, 2 * kernels.step_macs(),
                      [&](std::int64_t /*task*/, std::int64_t steps) { kernels.spin(steps); });
}

MeasuredRate measure_tile_rate(ThreadPool& pool, const TileKernels& kernels) {
  std::vector<std::unique_ptr<const TileOperands>> operands;
  for (int i = 0; i < pool.size(); ++i) operands.push_back(std::make_unique<const TileOperands>(kernels));
  const TileKernels::Function tile = kernels.tile[1][kernels.strip - 1][kMaxTileVectors - 1];
  return measure_rate(pool, 2 * kernels.step_macs() * TileOperands::kDepth,
                      [&](std::int64_t task, std::int64_t steps) {
                        const TileCall& call = operands[static_cast<std::size_t>(task)]->call;
                        for (std::int64_t i = 0; i < steps; ++i) tile(call);
                        kernels.done();
                      });
}

}  // namespace pipit::internal
