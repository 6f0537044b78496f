/// @file
/// What the numbers are that a classifier gives for its classes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pipit {

/// What a classifier's scores are. Of the first three one class is right; the others are independent of each other, so
/// that any number of classes may be, and with one score alone the answer is yes or no.
enum class ScoreKind : std::uint8_t {
  logits,          ///< a softmax makes probabilities of them
  softmax,         ///< probabilities that add up to 1
  log_softmax,     ///< natural logarithms of these
  sigmoid,         ///< probabilities, each between 0 and 1 for itself
  sigmoid_logits,  ///< a sigmoid makes these of them
};

/// "logits", "softmax", "log-softmax", "sigmoid" or "sigmoid-logits".
constexpr std::string_view score_kind_name(ScoreKind kind) {
  switch (kind) {
    case ScoreKind::logits:
      return "logits";
    case ScoreKind::softmax:
      return "softmax";
    case ScoreKind::log_softmax:
      return "log-softmax";
    case ScoreKind::sigmoid:
      return "sigmoid";
    case ScoreKind::sigmoid_logits:
      return "sigmoid-logits";
  }
  return "logits";
}

/// All kinds.
inline constexpr std::array kScoreKinds{ScoreKind::logits, ScoreKind::softmax, ScoreKind::log_softmax,
                                        ScoreKind::sigmoid, ScoreKind::sigmoid_logits};

/// The kind of this name; nullopt if there is none.
constexpr std::optional<ScoreKind> find_score_kind(std::string_view name) {
  for (const ScoreKind kind : kScoreKinds) {
    if (name == score_kind_name(kind)) return kind;
  }
  return std::nullopt;
}

/// Whether each score is about its class alone.
constexpr bool are_independent(ScoreKind kind) {
  return kind == ScoreKind::sigmoid || kind == ScoreKind::sigmoid_logits;
}

}  // namespace pipit
