// The product of a WLinear or WConv, whose weights are stored in 8 or 4 bits: what its kernels on a GPU share.
#pragma once

#include <optional>
#include <vector>

#include "engine/plan/kernel.h"
#include "engine/plan/registry.h"
#include "layers/ops/weight_only.h"
#include "layers/ops/window.h"

namespace pipit::internal::cuda {

/// Inputs; WLinear has no residual.
inline constexpr std::size_t kStoredBias = 3, kStoredResidual = 4;

/// y [rows, outputs] = activation(x [rows, depth] w + bias + residual).
struct StoredProduct {
  WeightFormat format;
  Clamp activation;
  std::int64_t rows = 0, depth = 0, outputs = 0;
  std::optional<Window> window;  ///< where rows of y and of x do not correspond

  explicit StoredProduct(const NodeSpec& spec);
};

/// x that is not f16, y that is neither f16 nor f32, a residual that is not f16, weights or a bias that are computed at
/// run time, empty tensors, and elements that are not in the order of the product's rows.
Refusal refuse_stored_product(const NodeSpec& spec);

/// Of each position of an image of y, where its pixel begins in one of x, in elements, or -1 in the padding. `window`:
/// StoredProduct's.
std::vector<int> pixels_of(const NodeSpec& spec, const Window& window);

}  // namespace pipit::internal::cuda
