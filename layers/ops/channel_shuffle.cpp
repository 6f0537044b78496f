#include "layers/ops/channel_shuffle.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/operands.h"

namespace pipit::internal {

ChannelShuffle::ChannelShuffle(ChannelShuffleAttributes attributes) : LayerOf(std::move(attributes)) {
  if (attributes_.groups < 1 || attributes_.groups > kMaxGroups)
    fail("ChannelShuffle: {} groups, expected 1 to {}", attributes_.groups, kMaxGroups);
  if (attributes_.sizes.empty() || attributes_.sizes.size() > kMax)
    fail("ChannelShuffle: {} output sizes, expected 1 to {}", attributes_.sizes.size(), kMax);
  if (!attributes_.widths.empty() && attributes_.widths.size() != attributes_.sizes.size())
    fail("ChannelShuffle: {} widths for {} outputs", attributes_.widths.size(), attributes_.sizes.size());
}

std::vector<TensorDesc> ChannelShuffle::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, std::max<std::size_t>(inputs.size(), 1));
  if (inputs.size() > kMax) fail("ChannelShuffle: {} inputs, expected up to {}", inputs.size(), kMax);
  if (!attributes_.taken.empty() && attributes_.taken.size() != inputs.size())
    fail("ChannelShuffle: numbers of channels for {} of {} inputs", attributes_.taken.size(), inputs.size());
  const TensorDesc& first = *inputs[0];
  if (first.shape.rank() < 2) fail("ChannelShuffle: {} has no channels", first.str());
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorDesc* input = inputs[i];
    if (input->shape.rank() != first.shape.rank() || input->dtype != first.dtype ||
        !(input->shape.with(1, first.shape[1]) == first.shape))
      fail("ChannelShuffle: {} and {} differ in more than channels", first.str(), input->str());
    const std::int64_t taken = attributes_.taken_of(i, *input);
    if (taken < 0 || taken > input->shape[1]) fail("ChannelShuffle: {} channels of {}", taken, input->str());
    channels = checked_add(channels, taken, "ChannelShuffle");
  }
  if (channels % attributes_.groups != 0)
    fail("ChannelShuffle: {} channels are no {} groups", channels, attributes_.groups);
  std::vector<TensorDesc> outputs;
  std::int64_t total = 0;
  for (std::size_t o = 0; o < attributes_.sizes.size(); ++o) {
    const std::int64_t size = attributes_.sizes[o], width = attributes_.width_of(o);
    if (size < 0 || width < size || (size == 0 && width > 0))
      fail("ChannelShuffle: an output of {} channels, {} wide", size, width);
    total = checked_add(total, size, "ChannelShuffle");
    outputs.push_back({first.shape.with(1, width), first.dtype});
  }
  if (total != channels)
    fail("ChannelShuffle: sizes {} do not sum to {} channels", fmt::join(attributes_.sizes, ","), channels);
  return outputs;
}

bool ChannelShuffle::is_batch_independent(const SampledInputs& inputs) const {
  return std::ranges::find(inputs.by_sample, false) == inputs.by_sample.end();
}

std::string ChannelShuffle::summary() const {
  return attributes_.groups == 1 ? std::string() : fmt::format("{} groups", attributes_.groups);
}

}  // namespace pipit::internal
