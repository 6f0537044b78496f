// How far the answers of a pruned classifier are from the dense one's.
#pragma once

#include <cstddef>
#include <span>

#include "pipit/scores.h"

namespace pipit::internal {

/// Kullback-Leibler divergence of the classes' probabilities from those of `reference`, in nats, the mean over images.
/// Both: [images, classes]. Probabilities are what the kind of scores says; logits are probabilities where those of
/// every image of `reference` are some. Of independent classes it is the sum over them. No probability is taken as less
/// than 1e-7 where the outputs are probabilities. Throws Error where the sizes differ or are no whole images.
double divergence(std::span<const float> outputs, std::span<const float> reference, std::size_t classes,
                  ScoreKind kind = ScoreKind::logits);

}  // namespace pipit::internal
