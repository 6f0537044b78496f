// What a user should know, on stderr.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipit/detail/preparation_notes.h"

namespace pipit::internal::apps {

/// Writes them to stderr.
void print_notes(const std::vector<std::string>& notes);
/// Writes one to stderr, for the library's options; nothing if `quiet`.
std::function<void(const std::string&)> note_printer(bool quiet);
/// How images are prepared, for a command that prints no answers of them; unless `quiet` a note says on stderr where it
/// was guessed, or where the model's weights are random.
Preprocess noted_preprocess(const Model& model, const detail::Preparation& preparation, bool quiet);

}  // namespace pipit::internal::apps
