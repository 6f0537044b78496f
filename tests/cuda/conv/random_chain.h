// Random chains of convolutions, for the tests of row_chain on the CPU and on a GPU.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "layers/cuda/conv/row_chain/plan.h"
#include "tests/support/random.h"

namespace pipit::internal::test {

/// Up to 12 convolutions of channels that are multiples of `unit`: each reads the one before, or now and then what the
/// chain reads or an earlier one, and adds a value of its shape where there is one and a coin says so.
inline cuda::ConvChainShape random_chain(std::mt19937& random, int unit, int element_bytes) {
  cuda::ConvChainShape shape;
  shape.element_bytes = element_bytes;
  const auto channels = [&] { return unit * draw(random, 1, 3); };
  std::vector<int> of_value;
  for (int i = draw(random, 1, 2); i > 0; --i) shape.inputs.push_back(channels());
  of_value = shape.inputs;
  const int count = draw(random, 2, 12);
  for (int c = 0; c < count; ++c) {
    cuda::ChainConv conv;
    const int newest = static_cast<int>(of_value.size()) - 1;
    conv.x = c == 0 ? 0 : draw(random, 0, 5) > 0 ? newest : draw(random, 0, newest);
    conv.in_c = of_value[static_cast<std::size_t>(conv.x)];
    conv.window = draw(random, 0, 1) == 0;
    conv.out_c = channels();
    // What the chain reads as its second value, the first convolution adds: others may not read more than it does.
    if (c == 0 && shape.inputs.size() == 2) {
      conv.residual = 1;
      conv.out_c = shape.inputs[1];
    } else if (draw(random, 0, 1) == 0) {
      const int other = draw(random, 0, newest);
      if (other != conv.x) {
        conv.residual = other;
        conv.out_c = of_value[static_cast<std::size_t>(other)];
      }
    }
    of_value.push_back(conv.out_c);
    shape.convs.push_back(conv);
  }
  // Only the last value leaves: what it does not depend on goes.
  const auto inputs = static_cast<int>(shape.inputs.size());
  std::vector<bool> needed(of_value.size(), false);
  needed.back() = true;
  for (int c = count - 1; c >= 0; --c) {
    const cuda::ChainConv& conv = shape.convs[static_cast<std::size_t>(c)];
    if (!needed[static_cast<std::size_t>(inputs + c)]) continue;
    needed[static_cast<std::size_t>(conv.x)] = true;
    if (conv.residual >= 0) needed[static_cast<std::size_t>(conv.residual)] = true;
  }
  std::vector<int> number(of_value.size());
  std::vector<cuda::ChainConv> kept;
  for (int v = 0; v < static_cast<int>(of_value.size()); ++v) {
    number[static_cast<std::size_t>(v)] = v < inputs ? v : inputs + static_cast<int>(kept.size());
    if (v < inputs || !needed[static_cast<std::size_t>(v)]) continue;
    cuda::ChainConv conv = shape.convs[static_cast<std::size_t>(v - inputs)];
    conv.x = number[static_cast<std::size_t>(conv.x)];
    if (conv.residual >= 0) conv.residual = number[static_cast<std::size_t>(conv.residual)];
    kept.push_back(conv);
  }
  shape.convs = std::move(kept);
  return shape;
}

/// A residual block of `inner` channels inside, to whose result nothing (0), x (1) or a projection of x (2) is added,
/// or which is added to that (3); its nodes in any order that computes what they read before.
inline cuda::ConvChainShape random_block(std::mt19937& random, int element_bytes, int adds, int inner = 64) {
  cuda::ConvChainShape shape;
  shape.element_bytes = element_bytes;
  const int in_c = adds >= 2 ? inner : inner * draw(random, 1, 4);
  const int out_c = adds == 1 ? in_c : inner * draw(random, adds >= 2 ? 2 : 1, 4);
  shape.inputs = {in_c};
  const int place = adds == 3 ? 3 : adds == 2 ? draw(random, 0, 2) : -1;  // of the projection
  int newest = 0, projection = -1;
  for (int n = 0; n < 4; ++n) {
    if (n == place) {
      shape.convs.push_back({0, adds == 3 ? newest : -1, in_c, out_c, false});
      projection = static_cast<int>(shape.convs.size());
    }
    if (n == 3) break;
    const int residual = n < 2 || adds == 3 ? -1 : adds == 2 ? projection : adds == 1 ? 0 : -1;
    shape.convs.push_back({newest, residual, n == 0 ? in_c : inner, n == 2 ? out_c : inner, n == 1});
    newest = static_cast<int>(shape.convs.size());
  }
  return shape;
}

/// Residual blocks of 256 channels inside, one after the other, in INT8.
inline cuda::ConvChainShape residual_blocks(int images, int height, int width, int channels, int count) {
  cuda::ConvChainShape shape{images, height, width, 1, {channels}, {}};
  for (int x = 0; x < 3 * count; x += 3) {
    shape.convs.push_back({x, -1, channels, 256, false});
    shape.convs.push_back({x + 1, -1, 256, 256, true});
    shape.convs.push_back({x + 2, x, 256, channels, false});
  }
  return shape;
}

/// The same chain of one input after a 1x1 from 64 channels that computes it, and before one that reads its
/// result.
inline cuda::ConvChainShape between_convolutions(cuda::ConvChainShape shape) {
  for (cuda::ChainConv& conv : shape.convs) {
    ++conv.x;
    if (conv.residual >= 0) ++conv.residual;
  }
  shape.convs.insert(shape.convs.begin(), {0, -1, 64, shape.inputs[0], false});
  shape.inputs[0] = 64;
  shape.convs.push_back({static_cast<int>(shape.convs.size()), -1, shape.convs.back().out_c, 64, false});
  return shape;
}

}  // namespace pipit::internal::test
