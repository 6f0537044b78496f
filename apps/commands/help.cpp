// pipit help: what --help says, as manual pages, tables and completion scripts too.
#include <fmt/format.h>

#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/display/help_text.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/fetch.h"
#include "pipit/option_values.h"
#include "pipit/output_file.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::internal::apps {

namespace {

struct HelpOptions {
  std::vector<std::string> command;
  std::string format = "text";
  std::string output;  // folder
  bool json = false;
  bool quiet = false;
};

const DeclaredCommand& find_command(const DeclaredCommand& whole, const std::vector<std::string>& words) {
  const DeclaredCommand* at = &whole;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const DeclaredCommand* next = nullptr;
    for (const DeclaredCommand& below : at->commands) {
      names.push_back(below.name.substr(below.name.rfind(' ') + 1));
      if (names.back() == word) next = &below;
    }
    if (next == nullptr)
      throw CLI::ValidationError("COMMAND",
                                 fmt::format("there is no command '{}'{}", word, near_names(word, names)));
    at = next;
  }
  return *at;
}

void write_pages(const DeclaredCommand& whole, const std::filesystem::path& folder) {
  std::vector<const DeclaredCommand*> commands = whole.all();
  commands.push_back(&whole);
  for (const DeclaredCommand* command : commands)
    tools::write_file((folder / (man_page_name(*command) + ".1")).string(), man_page(*command, whole));
}

int help(const CLI::App& app, const HelpOptions& options) {
  const DeclaredCommand whole = declared(app);
  const DeclaredCommand& command = find_command(whole, options.command);
  const bool of_all = options.format != "text" && options.format != "man";
  if (of_all && !options.command.empty())
    throw CLI::ValidationError("--format",
                               options.format + " is of all commands together; leave COMMAND out");
  if (!options.output.empty()) {
    if (options.format != "man" || !options.command.empty())
      throw CLI::ValidationError("--output", "is for the pages of all commands, with --format man alone");
    write_pages(whole, options.output);
    return kExitOk;
  }
  if (options.json) {
    nlohmann::ordered_json json = {{"pipit", version()}, {"command", "help"}};
    json.update(declared_json(command));
    fmt::print("{}\n", json.dump(2));
    return kExitOk;
  }
  std::vector<std::string> models;
  for (const tools::NamedModel& model : tools::named_models()) models.push_back(model.name);
  const std::vector<std::string> kernels = tools::kernel_choices();
  std::string text;
  if (options.format == "man") {
    text = man_page(command, whole);
  } else if (options.format == "markdown") {
    text = option_tables(whole);
  } else if (options.format == "bash") {
    text = bash_completion(whole, models, kernels);
  } else if (options.format == "zsh") {
    text = zsh_completion(whole, models, kernels);
  } else {
    text = help_text(command, help_width());
  }
  fmt::print("{}", text);
  return kExitOk;
}

}  // namespace

void add_help(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<HelpOptions>();
  CLI::App* command =
      app.add_subcommand("help", "Explain a command; write manual pages and completion for shells");
  command->add_option("COMMAND", options->command, "The command to explain; without it, a summary of all")
      ->type_name("COMMAND");
  one_of(command->add_option("--format", options->format,
                             "The text of --help, a manual page, the tables of docs/cli.md, or a completion "
                             "script for a shell"),
         {"text", "man", "markdown", "bash", "zsh"})
      ->capture_default_str();
  command
      ->add_option("--output", options->output,
                   "With --format man: write the pages of all commands into this existing folder")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory.description(""));
  add_output_flags(*command, options->json, options->quiet);
  command->footer(
      "cmake --install has already installed the pages and completion.\n"
      "Examples:\n"
      "  pipit help sweep conv\n"
      "  pipit help evaluate --format man > pipit-evaluate.1\n"
      "  pipit help --format bash > pipit.bash");
  command->callback([&app, options, &exit_code] { exit_code = help(app, *options); });
}

}  // namespace pipit::internal::apps
