// What a classifier's scores are, as its graph says.
#pragma once

#include <string>
#include <string_view>

#include "engine/graph/graph.h"
#include "pipit/scores.h"

namespace pipit::internal {

/// The key of the ONNX metadata under which a model says it itself, with the name of a kind.
inline constexpr std::string_view kScoresKey = "pipit.scores";

/// What the first output of a graph as it was read must be: bounds and sums are followed from its inputs on, through
/// what only moves or rounds elements and through elementwise arithmetic, so that it does not matter how functions are
/// written out. Softmax: no score is negative, and those of a sample add up to 1. Log-softmax: the
/// logarithm of that. Sigmoid: each lies in [0, 1]. All else are logits. Where sums cannot be followed, random values
/// are sent through the last layers (models/sampled_scores.h), and scores whose sums are always 1, or reach 1 and never
/// exceed it (a class was cut off), are a softmax.
ScoreKind score_kind(const Graph& graph);

/// A note on scores of softmaxes side by side, or their logarithms, which are taken for something else: `kind`, sigmoid
/// or logits. Else nothing.
std::string heads_note(const Graph& graph, ScoreKind kind);

/// "logits, softmax, ...": all names.
std::string score_kind_list();

}  // namespace pipit::internal
