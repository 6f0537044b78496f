// How far the answers of a pruned classifier are from the dense one's.
#pragma once

#include <cstddef>
#include <span>

namespace pipit {

/// Kullback-Leibler divergence of the classes' probabilities from those of `reference`, in nats, the mean over images.
/// Both: [images, classes]. Probabilities are the softmax of the outputs, or the outputs where those of every image of
/// `reference` are some (none is taken as less than 1e-7). Throws Error where the sizes differ or are no whole images.
double divergence(std::span<const float> outputs, std::span<const float> reference, std::size_t classes);

}  // namespace pipit
