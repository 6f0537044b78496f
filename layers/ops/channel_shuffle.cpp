#include "layers/ops/channel_shuffle.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/operands.h"

namespace pipit {

ChannelShuffle::ChannelShuffle(ChannelShuffleAttributes attributes) : LayerOf(std::move(attributes)) {
  if (attributes_.groups < 1 || attributes_.groups > kMostGroups)
    fail("ChannelShuffle: {} groups, expected 1 to {}", attributes_.groups, kMostGroups);
  if (attributes_.sizes.empty() || attributes_.sizes.size() > kMost)
    fail("ChannelShuffle: {} output sizes, expected 1 to {}", attributes_.sizes.size(), kMost);
}

std::vector<TensorDesc> ChannelShuffle::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, std::max<std::size_t>(inputs.size(), 1));
  if (inputs.size() > kMost) fail("ChannelShuffle: {} inputs, expected up to {}", inputs.size(), kMost);
  const TensorDesc& first = *inputs[0];
  if (first.shape.rank() < 2) fail("ChannelShuffle: {} has no channels", first.str());
  std::int64_t channels = 0;
  for (const TensorDesc* input : inputs) {
    if (input->shape.rank() != first.shape.rank() || input->dtype != first.dtype ||
        !(input->shape.with(1, first.shape[1]) == first.shape))
      fail("ChannelShuffle: {} and {} differ in more than channels", first.str(), input->str());
    channels = checked_add(channels, input->shape[1], "ChannelShuffle");
  }
  if (channels % attributes_.groups != 0)
    fail("ChannelShuffle: {} channels are no {} groups", channels, attributes_.groups);
  std::vector<TensorDesc> outputs;
  std::int64_t total = 0;
  for (const std::int64_t size : attributes_.sizes) {
    if (size < 0) fail("ChannelShuffle: an output of {} channels", size);
    total = checked_add(total, size, "ChannelShuffle");
    outputs.push_back({first.shape.with(1, size), first.dtype});
  }
  if (total != channels)
    fail("ChannelShuffle: sizes {} do not sum to {} channels", fmt::join(attributes_.sizes, ","), channels);
  return outputs;
}

bool ChannelShuffle::keeps_samples_apart(const SampledInputs& inputs) const {
  return std::ranges::find(inputs.by_sample, false) == inputs.by_sample.end();
}

std::string ChannelShuffle::summary() const {
  return fmt::format("{} groups", attributes_.groups);
}

}  // namespace pipit
