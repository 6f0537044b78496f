// Measures the rows of `pipit sweep conv`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/sweeping/layer_run.h"

namespace pipit::internal::detail {

/// Bases besides precisions: cuDNN in fp16 as frameworks call it, and at its best (PeerCall).
inline constexpr std::string_view kCudnnBase = "cudnn", kCudnnBestBase = "cudnn-best";

bool is_peer(std::string_view base);

struct ConvSweepTarget {
  DeviceKind device = DeviceKind::cpu;
  int threads = 0;
  std::vector<std::string> bases;
  double seconds = 0;  ///< time box of a row
  Ceilings ceilings;   ///< where floors are wanted
};

class ConvMeasurement {
 public:
  /// Throws Error where a base cannot be had on this machine.
  explicit ConvMeasurement(ConvSweepTarget target);
  ~ConvMeasurement();

  /// How many layers are worth preparing together.
  static constexpr std::size_t kTogether = 32;
  /// Builds the plans of libraries for layers that are measured next, on all threads at once.
  void prepare(const std::vector<tools::ConvPoint>& points);
  /// Measures all rows of one layer: the layer and every base run in turns. A variant that does not run has the reason
  /// in its row or base. `failed` as in problem_of().
  void measure(std::vector<tools::ConvRow>& rows, bool& failed);
  const tools::ConvSweepSeconds& seconds() const { return seconds_; }

 private:
  struct Peers;
  struct Layer;
  const std::vector<PeerConv>& peers(const tools::ConvPoint& point, std::string_view base);
  LayerInput& input_of(const Shape& shape);
  void run_all(Layer& layer, std::vector<tools::ConvRow>& rows, bool& failed);

  ConvSweepTarget target_;
  LayerMachine machine_;
  tools::ConvSweepSeconds seconds_;
  std::optional<Shape> shape_;  // of input_
  std::unique_ptr<LayerInput> input_;
  std::map<std::string, Peers> prepared_;  // by name of layer and base
};

}  // namespace pipit::internal::detail
