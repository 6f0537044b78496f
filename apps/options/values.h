// What values options take: checks, and what their help says of it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pipit::internal::apps {

/// Checks of values. CLI11's own accept nan and print limits of 309 digits.
CLI::Validator finite_number();
CLI::Validator positive_number();
CLI::Validator nonnegative_number();
/// An integer from 0 to 2^63 - 1.
CLI::Validator count_value();
/// Threads that do not only wait for each other: up to 16 for each of the machine's CPUs, at least 64, at most 1024.
CLI::Validator thread_count();
/// One of these words.
CLI::Validator one_of(const std::vector<std::string>& words);

/// The option takes one of these words, and its value is called "a|b|c", which help and completion go by
/// (apps/display/declared.h).
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words);

/// Throws CLI::ValidationError where the option was given although it `means_nothing` here, for the reason `why`.
void refuse_given(const CLI::App& command, const std::string& option, bool means_nothing,
                  const std::string& why);

/// "a|b|c".
std::string alternatives(const std::vector<std::string>& words);

}  // namespace pipit::internal::apps
