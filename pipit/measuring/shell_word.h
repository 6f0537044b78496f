// Words as shells read them.
#pragma once

#include <string>
#include <string_view>

namespace pipit::internal::detail {

/// The word itself where a shell takes it as it stands, else in single quotes.
std::string shell_word(std::string_view word);

}  // namespace pipit::internal::detail
