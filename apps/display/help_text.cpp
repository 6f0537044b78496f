#include "apps/display/help_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/terminal.h"

namespace pipit::internal::apps {

namespace {

constexpr std::size_t kIndent = 26;  // of what options do

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// `text` after `begun`, wrapped, with `indent` spaces before all lines but the first.
std::string continued(std::string begun, const std::string& text, std::size_t indent, std::size_t width) {
  std::string lines;
  std::string line = std::move(begun);
  bool empty = true;  // of words
  for (const std::string& word : words_of(text)) {
    if (!empty && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line = std::string(indent, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return lines + line + "\n";
}

std::string entry(const std::string& name, const std::string& text, std::size_t width) {
  std::string begun = "  " + name;
  std::string above;
  if (begun.size() + 2 > kIndent) {
    above = begun + "\n";
    begun.clear();
  }
  begun.resize(kIndent, ' ');
  return above + continued(std::move(begun), text, kIndent, width);
}

// Lines that begin with spaces stay, the others between them are paragraphs.
std::string notes_text(const std::string& notes, std::size_t width) {
  std::string text, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) text += continued({}, paragraph, 0, width);
    paragraph.clear();
  };
  for (const std::string& line : CLI::detail::split(notes, '\n')) {
    if (line.starts_with(' ')) {
      flush();
      text += line + "\n";
    } else {
      paragraph += " " + line;
    }
  }
  flush();
  return text;
}

}  // namespace

std::string help_text(const DeclaredCommand& command, int given_width) {
  const auto width = static_cast<std::size_t>(std::max(given_width, 60));
  std::string text = continued({}, command.text, 0, width) + "\nUsage: " + command.usage() + "\n\n";
  const auto list = [&](bool operands) {
    for (const DeclaredOption& option : command.options) {
      if (option.operand == operands) text += entry(option.usage(), option.text, width);
    }
  };
  list(true);
  if (std::ranges::any_of(command.options, &DeclaredOption::operand)) text += "\n";
  text += "Options:\n" + entry("-h,--help", "This text", width);
  list(false);
  if (!command.commands.empty()) {
    text += "\nSubcommands:\n";
    for (const DeclaredCommand& below : command.commands)
      text += entry(below.name.substr(below.name.rfind(' ') + 1), below.text, width);
  }
  if (const std::string notes = notes_text(command.notes, width); notes.size() > 1) text += "\n" + notes;
  if (!command.examples.empty()) text += "\nExamples:\n";
  for (const std::string& example : command.examples) text += "  " + example + "\n";
  return text;
}

int help_width() {
  constexpr int kUsual = 100, kWidest = 120;
  const int width = terminal_width();
  return width == 0 ? kUsual : std::min(width, kWidest);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  DeclaredCommand command = declared(*app);
  // The name is that of the whole command line.
  std::string name;
  for (const CLI::App* at = app; at->get_parent() != nullptr; at = at->get_parent())
    name = fmt::format("{}{}{}", at->get_name(), name.empty() ? "" : " ", name);
  command.name = name;
  return help_text(command, help_width());
}

}  // namespace pipit::internal::apps
