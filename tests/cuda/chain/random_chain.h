// Random chains of convolutions, for the tests of row_chain on the CPU and on a GPU.
#pragma once

#include <random>

#include "layers/cuda/chain/row_chain_plan.h"

namespace pipit::test {

inline int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution(low, high)(random);
}

/// 2 to 12 convolutions of channels that are multiples of `unit`: each reads the one before, or now and then what the
/// chain reads or an earlier one, and adds a value of its shape where there is one and a coin says so.
inline cuda::RowChainShape random_chain(std::mt19937& random, int unit, int element_bytes) {
  cuda::RowChainShape shape;
  shape.element_bytes = element_bytes;
  const auto channels = [&] { return unit * draw(random, 1, 3); };
  std::vector<int> of_value;
  for (int i = draw(random, 1, 2); i > 0; --i) shape.inputs.push_back(channels());
  of_value = shape.inputs;
  const int count = draw(random, 2, 12);
  for (int c = 0; c < count; ++c) {
    cuda::RowConv conv;
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
  // Only the last value leaves: one that nobody reads is added to the last, or read by it.
  std::vector<bool> read(of_value.size(), false);
  for (const cuda::RowConv& conv : shape.convs) {
    read[static_cast<std::size_t>(conv.x)] = true;
    if (conv.residual >= 0) read[static_cast<std::size_t>(conv.residual)] = true;
  }
  for (std::size_t v = shape.inputs.size(); v + 1 < of_value.size(); ++v) {
    if (read[v]) continue;
    shape.convs.push_back({static_cast<int>(v), -1, of_value[v], of_value[v], false});
    of_value.push_back(of_value[v]);
    // The one that was last is no longer: it is added where shapes agree, or read next.
    const auto last = static_cast<int>(of_value.size()) - 2;
    if (of_value[static_cast<std::size_t>(last)] == of_value[v]) {
      shape.convs.back().residual = last;
    } else {
      shape.convs.back().x = last;
      shape.convs.back().in_c = of_value[static_cast<std::size_t>(last)];
      shape.convs.back().residual = static_cast<int>(v);
    }
  }
  return shape;
}

}  // namespace pipit::test
