// Random convolutions, small and absurd, as planning describes them to candidates.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal::test {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool one_in(int n) { return below(n) == 0; }
  template <std::size_t N>
  std::int64_t of(const std::int64_t (&values)[N]) {
    return values[static_cast<std::size_t>(below(static_cast<int>(N)))];
  }
  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

/// A node with all that NodeSpec points to.
struct RandomNode {
  LayerPtr layer;
  std::vector<TensorDesc> descs;  ///< of inputs
  std::vector<const TensorDesc*> inputs;
  std::vector<TensorDesc> outputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  Precision precision = Precision::fp32;

  NodeSpec spec() const { return {*layer, inputs, outputs, constants, precision}; }
  std::string str() const;
};

/// A convolution of 1 to 3 dimensions in fp32, fp16, bf16 or INT8, with weights that are constants where they are not
/// too many. Nothing where no window fits, or a size overflows.
std::optional<RandomNode> random_conv(Draw& draw);

/// A convolution whose scales are found at run time, in fp16.
std::optional<RandomNode> random_dynamic_conv(Draw& draw);

/// A WLinear or WConv, in fp16.
std::optional<RandomNode> random_stored_product(Draw& draw);

/// What may follow the node and be computed with it.
std::optional<RandomNode> random_follower(Draw& draw, const RandomNode& node);

}  // namespace pipit::internal::test
