#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/display/help_text.h"

namespace pipit::internal::apps {

namespace {

// Code in a cell: the bars are the table's own otherwise.
std::string code(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return "`" + escaped + "`";
}

std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct Shared {
  const DeclaredOption* option = nullptr;
  std::vector<std::string> commands;

  bool says(const DeclaredOption& other) const {
    return option->name == other.name && option->value == other.value && option->text == other.text;
  }
};

std::vector<Shared> options_of_all(const std::vector<const DeclaredCommand*>& commands) {
  std::vector<Shared> all;
  for (const DeclaredCommand* command : commands) {
    for (const DeclaredOption& option : command->options) {
      auto at = std::ranges::find_if(all, [&](const Shared& shared) { return shared.says(option); });
      if (at == all.end()) at = all.insert(all.end(), {&option, {}});
      at->commands.push_back(command->name);
    }
  }
  return all;
}

}  // namespace

std::string option_tables(const DeclaredCommand& whole) {
  const std::vector<const DeclaredCommand*> commands = whole.all();
  const std::vector<Shared> all = options_of_all(commands);
  std::string text = "### Options of several commands\n\n| option | what | commands |\n|---|---|---|\n";
  for (const Shared& shared : all) {
    if (shared.commands.size() < 2) continue;
    text += fmt::format("| {} | {} | {} |\n", code(shared.option->usage()), cell(shared.option->text),
                        fmt::join(shared.commands, ", "));
  }
  for (const DeclaredCommand* command : commands) {
    if (!command->commands.empty()) continue;
    std::string rows;
    for (const DeclaredOption& option : command->options) {
      const auto at = std::ranges::find_if(all, [&](const Shared& shared) { return shared.says(option); });
      if (at->commands.size() == 1)
        rows += fmt::format("| {} | {} |\n", code(option.usage()), cell(option.text));
    }
    text += fmt::format("\n### Options of {}\n", command->name);
    text += fmt::format("\n`{}`\n", command->usage());
    if (!rows.empty()) text += "\n| option | what |\n|---|---|\n" + rows;
  }
  return text;
}

}  // namespace pipit::internal::apps
