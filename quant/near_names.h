// The likely meaning of a name that does not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pipit::internal {

/// "; did you mean 'a', 'b'?" with the (at most three) candidates nearest to `name` by edit distance, those that
/// contain it first; "" where none is near.
std::string near_names(std::string_view name, std::span<const std::string> candidates);

}  // namespace pipit::internal
