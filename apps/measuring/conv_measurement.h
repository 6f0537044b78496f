// Measures the rows of `pipit sweep conv`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/measuring/conv_rows.h"
#include "apps/measuring/layer_run.h"

namespace pipit::internal::apps {

/// What --base takes besides precisions: cuDNN in fp16 as frameworks call it, and at its best (PeerCall).
inline constexpr std::string_view kCudnnBase = "cudnn", kCudnnBestBase = "cudnn-best";

struct ConvSweepTarget {
  DeviceKind device = DeviceKind::cpu;
  int threads = 0;
  std::vector<std::string> bases;
  double seconds = 0;  ///< time box of a row
  Ceilings ceilings;   ///< where floors are wanted
};

/// Where the time of a sweep goes.
struct ConvSweepSeconds {
  double inputs = 0;   ///< making layers, their inputs and references
  double plans = 0;    ///< building plans of a library
  double kernels = 0;  ///< choosing kernels by their times
  double turns = 0;    ///< timing what was chosen
  double errors = 0;   ///< running it for its results

  double all() const { return inputs + plans + kernels + turns + errors; }
};

class ConvSweep {
 public:
  /// Throws Error where a base cannot be had on this machine.
  explicit ConvSweep(ConvSweepTarget target);
  ~ConvSweep();

  /// How many layers are worth preparing together.
  static constexpr std::size_t kTogether = 32;
  /// Builds the plans of libraries for layers that are measured next, on all threads at once.
  void prepare(const std::vector<ConvPoint>& points);
  /// All rows of one layer: what was asked for and every base take turns. What does not run says so in its row, or in
  /// its base. `failed` as in problem_of().
  void measure(std::vector<ConvRow>& rows, bool& failed);
  const ConvSweepSeconds& seconds() const { return seconds_; }

 private:
  struct Peers;
  struct Layer;
  const std::vector<PeerConv>& peers(const ConvPoint& point, std::string_view base);
  LayerInput& input_of(const Shape& shape);
  void run_all(Layer& layer, std::vector<ConvRow>& rows, bool& failed);

  ConvSweepTarget target_;
  LayerMachine machine_;
  ConvSweepSeconds seconds_;
  std::optional<Shape> shape_;  // of input_
  std::unique_ptr<LayerInput> input_;
  std::map<std::string, Peers> prepared_;  // by name of layer and base
};

}  // namespace pipit::internal::apps
