#include "apps/display/declared.h"

#include <fmt/format.h>

namespace pipit::internal::apps {

namespace {

// CLI11 puts what its validators say after a ':', and names types as C++ does.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  const std::string value = type.substr(0, type.find(':'));
  return value == "INT" || value == "UINT" || value == "FLOAT" ? "N" : value;
}

DeclaredOption declared_option(const CLI::Option& option) {
  DeclaredOption result;
  result.operand = option.get_positional();
  result.name = result.operand ? option.get_name(true) : "--" + option.get_lnames().at(0);
  result.value = value_of(option);
  result.text = option.get_description();
  if (const std::string usual = option.get_default_str(); !usual.empty() && !result.value.empty())
    result.text += fmt::format(" [{}]", usual);
  result.required = option.get_required();
  result.repeatable = option.get_expected_max() > 1 || option.get_type_size_max() > 1;
  return result;
}

// A footer is notes, then "Example:" or "Examples:" with a command line after it, or on each of the lines that follow.
void read_footer(const std::string& footer, DeclaredCommand& command) {
  bool examples = false;
  for (const std::string& line : CLI::detail::split(footer, '\n')) {
    std::string rest = line;
    for (const std::string_view title : {"Examples:", "Example:"}) {
      if (!line.starts_with(title)) continue;
      examples = true;
      rest = line.substr(title.size());
    }
    if (!examples) {
      command.notes += rest + "\n";
    } else if (const std::string example = CLI::detail::trim_copy(rest); !example.empty()) {
      command.examples.push_back(example);
    }
  }
}

DeclaredCommand declared(const CLI::App& app, const std::string& name) {
  DeclaredCommand command;
  command.name = name;
  command.text = app.get_description();
  read_footer(app.get_footer(), command);
  for (const CLI::Option* option : app.get_options()) {
    if (option != app.get_help_ptr()) command.options.push_back(declared_option(*option));
  }
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    command.commands.push_back(declared(*below, (name.empty() ? "" : name + " ") + below->get_name()));
  return command;
}

}  // namespace

std::string DeclaredOption::usage() const {
  return value.empty() || operand ? name : name + " " + value;
}

std::string DeclaredCommand::usage() const {
  std::string usage = "pipit" + (name.empty() ? "" : " " + name) + " [OPTIONS]";
  for (const DeclaredOption& option : options) {
    if (!option.operand) continue;
    const std::string operand = option.name + (option.repeatable ? "..." : "");
    usage += option.required ? " " + operand : fmt::format(" [{}]", operand);
  }
  return commands.empty() ? usage : usage + " COMMAND";
}

std::vector<const DeclaredCommand*> DeclaredCommand::all() const {
  std::vector<const DeclaredCommand*> all;
  for (const DeclaredCommand& command : commands) {
    all.push_back(&command);
    const auto below = command.all();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

DeclaredCommand declared(const CLI::App& app) {
  return declared(app, "");
}

nlohmann::ordered_json declared_json(const DeclaredCommand& command) {
  nlohmann::ordered_json json = {{"name", command.name},
                                 {"usage", command.usage()},
                                 {"text", command.text},
                                 {"notes", command.notes},
                                 {"examples", command.examples}};
  json["options"] = nlohmann::ordered_json::array();
  for (const DeclaredOption& option : command.options)
    json["options"].push_back({{"name", option.name},
                               {"value", option.value},
                               {"text", option.text},
                               {"operand", option.operand},
                               {"required", option.required},
                               {"repeatable", option.repeatable}});
  json["commands"] = nlohmann::ordered_json::array();
  for (const DeclaredCommand& below : command.commands) json["commands"].push_back(declared_json(below));
  return json;
}

}  // namespace pipit::internal::apps
