#include "sparsity/refit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "sparsity/linear_algebra.h"
#include "sparsity/mask.h"

namespace pipit::internal {

namespace {

// Outputs of one group of the convolution that keep the same weights.
struct Alike {
  std::vector<std::size_t> kept;     // positions in a column
  std::vector<std::size_t> outputs;  // of the group
};

std::vector<Alike> find_alike(std::span<const std::uint8_t> removed, std::span<const std::uint8_t> dead,
                              std::size_t outputs, std::size_t depth) {
  std::map<std::vector<std::size_t>, std::vector<std::size_t>> found;
  for (std::size_t o = 0; o < outputs; ++o) {
    if (!dead.empty() && dead[o] != 0) continue;
    std::vector<std::size_t> kept;
    for (std::size_t k = 0; k < depth; ++k) {
      if (removed[o * depth + k] == 0) kept.push_back(k);
    }
    found[std::move(kept)].push_back(o);
  }
  std::vector<Alike> all;
  for (auto& [kept, own] : found) all.push_back({kept, own});
  return all;
}

double ridge_of(const Gram& gram, const RefitOptions& options) {
  const std::size_t size = gram.depth + 1;
  double variance = 0;
  double moment = 0;
  for (std::size_t k = 0; k < gram.depth; ++k) {
    const double sum = gram.xx[k * size + gram.depth];
    variance += gram.xx[k * size + k] - sum * sum / gram.count;
    moment += gram.xx[k * size + k];
  }
  const auto depth = static_cast<double>(gram.depth);
  // Columns that do not vary, as of one image, leave only what rounding to float makes of their moments.
  const double least = std::max(1e-6 * moment / std::sqrt(depth), 1e-30);
  return std::max((options.ridge + options.scarcity * depth / gram.count) * variance / depth, least);
}

void solve(const Gram& gram, const Alike& alike, bool with_bias, double ridge, float* weights, float* bias) {
  const std::size_t size = gram.depth + 1;
  const std::size_t n = alike.kept.size() + (with_bias ? 1 : 0);
  const std::size_t m = alike.outputs.size();
  if (n == 0) return;
  const auto row = [&](std::size_t i) { return i < alike.kept.size() ? alike.kept[i] : gram.depth; };
  std::vector<double> a(n * n);
  std::vector<double> b(n * m);
  for (std::size_t i = 0; i < n; ++i) {
    const double* from = &gram.xx[row(i) * size];
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] = from[row(j)];
    for (std::size_t o = 0; o < m; ++o) {
      const std::size_t output = alike.outputs[o];
      double wanted = gram.xy[row(i) * gram.outputs + output];
      if (!with_bias) wanted -= from[gram.depth] * static_cast<double>(bias[output]);
      if (i < alike.kept.size()) wanted += ridge * static_cast<double>(weights[output * gram.depth + row(i)]);
      b[i * m + o] = wanted;
    }
    if (i < alike.kept.size()) a[i * n + i] += ridge;
  }
  if (!linear_algebra().factor(a.data(), n))
    fail("the columns of a layer of depth {} are not finite, or far too large for one another", gram.depth);
  linear_algebra().solve(a.data(), n, b.data(), m, m);
  for (std::size_t o = 0; o < m; ++o) {
    const std::size_t output = alike.outputs[o];
    float* to = weights + output * gram.depth;
    std::fill_n(to, gram.depth, 0.0F);
    for (std::size_t i = 0; i < alike.kept.size(); ++i) to[alike.kept[i]] = static_cast<float>(b[i * m + o]);
    if (with_bias) bias[output] = static_cast<float>(b[(n - 1) * m + o]);
  }
}

}  // namespace

NewWeights refit(const std::vector<Gram>& sums, const NewWeights& dense,
                 std::span<const std::uint8_t> removed, std::span<const std::uint8_t> dead, bool with_bias,
                 const RefitOptions& options, ThreadPool& pool) {
  NewWeights made{dense.weights.clone(), dense.bias};
  const std::size_t outputs = static_cast<std::size_t>(dense.weights.shape()[0]) / sums.size();
  if (made.bias.empty()) made.bias.assign(outputs * sums.size(), 0.0F);
  const std::span<float> weights = made.weights.values<float>();
  const std::size_t depth = weights.size() / sums.size() / outputs;
  std::vector<std::uint8_t> gone = zero_rows(weights, dense.weights.shape(), std::ssize(sums));
  for (std::size_t i = 0; i < removed.size(); ++i) gone[i] |= removed[i];
  for (std::size_t g = 0; g < sums.size(); ++g) {
    if (sums[g].depth != depth || sums[g].outputs != outputs || !(sums[g].count > 0))
      fail("sums of {} columns of depth {} for weights {}", sums[g].count, sums[g].depth,
           dense.weights.shape().str());
    const std::size_t first = g * outputs;
    const auto part = [&](std::span<const std::uint8_t> marks, std::size_t each) {
      return marks.empty() ? marks : marks.subspan(first * each, outputs * each);
    };
    const double ridge = ridge_of(sums[g], options);
    const std::vector<Alike> all = find_alike(part(gone, depth), part(dead, 1), outputs, depth);
    pool.parallel_for(static_cast<std::int64_t>(all.size()), [&](std::int64_t i, int) {
      solve(sums[g], all[static_cast<std::size_t>(i)], with_bias, ridge, &weights[first * depth],
            &made.bias[first]);
    });
  }
  for (std::size_t o = 0; o < dead.size(); ++o) {
    if (dead[o] == 0) continue;
    std::fill_n(weights.begin() + static_cast<std::ptrdiff_t>(o * depth), depth, 0.0F);
    made.bias[o] = 0;
  }
  if (!with_bias) made.bias = dense.bias;
  return made;
}

}  // namespace pipit::internal
