#include <fmt/format.h>

#include <algorithm>

#include "apps/display/help_text.h"
#include "pipit/version.h"

namespace pipit::internal::apps {

namespace {

// Text that roff takes for nothing else: '-' that can be copied, no escapes, no requests.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

// Lines that begin with spaces stay as they are.
std::string roff_notes(const std::string& notes) {
  std::string text;
  bool example = false;
  for (const std::string& line : CLI::detail::split(notes, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with(' ') != example) text += example ? ".EE\n" : ".EX\n";
    example = line.starts_with(' ');
    text += roff(line) + "\n";
  }
  return example ? text + ".EE\n" : text;
}

std::string option_entries(const DeclaredCommand& command, bool operands) {
  std::string text;
  for (const DeclaredOption& option : command.options) {
    if (option.operand != operands) continue;
    text += operands || option.value.empty()
                ? fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(option.name), roff(option.text))
                : fmt::format(".TP\n\\fB{}\\fR \\fI{}\\fR\n{}\n", roff(option.name), roff(option.value),
                              roff(option.text));
  }
  return text;
}

}  // namespace

std::string man_page_name(const DeclaredCommand& command) {
  std::string name = command.name.empty() ? "pipit" : "pipit-" + command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const DeclaredCommand& command, const DeclaredCommand& whole) {
  const std::string name = man_page_name(command);
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  std::string page =
      fmt::format(".TH {} 1 \"\" \"pipit {}\" \"pipit\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR\n",
                  roff(title), version(), roff(name), roff(command.text), roff(command.usage()));
  if (const std::string operands = option_entries(command, true); !operands.empty())
    page += ".SH OPERANDS\n" + operands;
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const DeclaredCommand& below : command.commands)
      page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(man_page_name(below)), roff(below.text));
  }
  page += ".SH OPTIONS\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nThe same in short\n" +
          option_entries(command, false);
  if (const std::string notes = roff_notes(command.notes); !notes.empty()) page += ".SH NOTES\n" + notes;
  page +=
      ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\na runtime error\n.TP\n2\nwrong usage\n.TP\n3\nan "
      "unsupported "
      "model\n.TP\n4\na check failed\n";
  if (!command.examples.empty()) {
    page += ".SH EXAMPLES\n.EX\n";
    for (const std::string& example : command.examples) page += roff(example) + "\n";
    page += ".EE\n";
  }
  if (command.name.empty()) return page;
  page += ".SH SEE ALSO\n\\fBpipit\\fR(1)";
  for (const DeclaredCommand* other : whole.all()) {
    if (other != &command) page += fmt::format(", \\fB{}\\fR(1)", roff(man_page_name(*other)));
  }
  return page + "\n";
}

}  // namespace pipit::internal::apps
