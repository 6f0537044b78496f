#include "apps/options/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <thread>

namespace pipit::internal::apps {

namespace {

// An option's value as a double that `accepts` it. Values beyond float, the type of all that is computed with
// them, are refused as well.
CLI::Validator number(const std::string& what, bool (*accepts)(float)) {
  return {[what, accepts](const std::string& text) {
            double value = 0;
            const bool parsed = CLI::detail::lexical_cast(text, value);
            const auto narrow = static_cast<float>(value);
            if (parsed && std::isfinite(value) && !std::isfinite(narrow))
              return fmt::format("'{}' is beyond float, which ends at 3.4e38", text);
            return parsed && std::isfinite(narrow) && accepts(narrow)
                       ? std::string{}
                       : fmt::format("'{}' is not {}", text, what);
          },
          "NUMBER"};
}

}  // namespace

CLI::Validator finite_number() {
  return number("a finite number", [](float) { return true; });
}

CLI::Validator positive_number() {
  return number("a positive number", [](float value) { return value > 0; });
}

CLI::Validator nonnegative_number() {
  return number("a number of 0 or more", [](float value) { return value >= 0; });
}

CLI::Validator count_value() {
  return {[](const std::string& text) {
            std::int64_t value = -1;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            return error == std::errc{} && stop == end && value >= 0
                       ? std::string{}
                       : fmt::format("'{}' is not an integer from 0 to 2^63 - 1", text);
          },
          ""};
}

CLI::Validator thread_count() {
  return {[](const std::string& text) {
            const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
            const int most = std::clamp(16 * cpus, 64, 1024);
            int value = -1;
            const bool parsed = CLI::detail::lexical_cast(text, value);
            return parsed && value >= 0 && value <= most
                       ? std::string{}
                       : fmt::format("'{}' is not a number from 0 to {} (the machine has {} CPUs)", text,
                                     most, cpus);
          },
          ""};
}

namespace {

// Some names have commas in them.
std::string listed(const std::vector<std::string>& words) {
  const bool commas = std::ranges::any_of(words, [](const std::string& w) { return w.find(',') != w.npos; });
  return fmt::format("{}", fmt::join(words, commas ? "; " : ", "));
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[words](const std::string& value) {
            return std::ranges::find(words, value) != words.end()
                       ? std::string{}
                       : fmt::format("there is no '{}'; there are {}", value, listed(words));
          },
          ""};
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words) {
  return option->type_name(alternatives(words))->check(one_of(words));
}

void refuse_given(const CLI::App& command, const std::string& option, bool means_nothing,
                  const std::string& why) {
  if (means_nothing && command.count(option) > 0) throw CLI::ValidationError(option, why);
}

std::string alternatives(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "|"));
}

}  // namespace pipit::internal::apps
