// Options that take a list.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pipit::internal::apps {

/// The entries of "a,b,c". Throws CLI::ValidationError, naming `option`, when one is empty: CLI11's own delimiter drops
/// such entries.
std::vector<std::string> split_list(const std::string& option, std::string_view text);

/// An option with a list: separated by commas, or the option repeated. Every entry passes `check`.
template <typename T>
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<T>& values,
                      const CLI::Validator& check, const std::string& help) {
  const auto take = [&values, name, check](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts) {
      for (std::string& entry : split_list(name, text)) {
        if (const std::string problem = check(entry); !problem.empty())
          throw CLI::ValidationError(name, problem);
        T value{};
        if (!CLI::detail::lexical_cast(entry, value)) throw CLI::ConversionError(entry, name);
        values.push_back(std::move(value));
      }
    }
  };
  return command.add_option_function<std::vector<std::string>>(name, take, help)
      ->allow_extra_args(false)
      ->type_name("N,...");
}

/// The same for a list of words.
CLI::Option* add_choices(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                         const std::vector<std::string>& words, const std::string& help);

}  // namespace pipit::internal::apps
