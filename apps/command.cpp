// The `pipit` command.
#include <fmt/format.h>
#include <csignal>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>

#include "apps/command.h"
#include "apps/commands/commands.h"
#include "apps/display/help_text.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "pipit/error.h"
#include "pipit/machine.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace {

using namespace pipit;
using namespace pipit::internal;
using namespace pipit::internal::apps;

int report(std::string_view message, int code) {
  std::fflush(stdout);
  print_error(message);
  return code;
}

// `code`, unless what was printed has not arrived.
int flushed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return report("could not write to stdout", kExitRuntime);
}

std::string not_taken(const CLI::App& command, const std::vector<std::string>& extra) {
  const auto option =
      std::ranges::find_if(extra, [](const std::string& word) { return word.starts_with('-'); });
  if (option == extra.end()) return fmt::format("unexpected argument '{}'", extra[0]);
  std::vector<std::string> options;
  for (const CLI::Option* known : command.get_options()) {
    for (const std::string& long_name : known->get_lnames()) options.push_back("--" + long_name);
  }
  // What another command takes is no slip of the fingers.
  const CLI::App* whole = &command;
  while (whole->get_parent() != nullptr) whole = whole->get_parent();
  const bool known_elsewhere = std::ranges::any_of(declared(*whole).all(), [&](const DeclaredCommand* other) {
    return std::ranges::find(other->options, *option, &DeclaredOption::name) != other->options.end();
  });
  return fmt::format("unknown option {}{}", *option, known_elsewhere ? "" : near_names(*option, options));
}

std::string usage_of(const CLI::App& command, const std::string& name) {
  DeclaredCommand declaration = declared(command);
  declaration.name = name.substr(std::min<std::size_t>(1, name.size()));
  return declaration.usage();
}

// --help and --version end here too. CLI11 reports an unknown subcommand as a missing one.
int exit_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands()[0];
    name += " " + command->get_name();
  }
  const std::vector<std::string> extra = command->remaining();
  std::vector<std::string> below;
  for (const CLI::App* known : command->get_subcommands([](const CLI::App*) { return true; }))
    below.push_back(known->get_name());
  if (!below.empty() && !extra.empty()) {
    return report(fmt::format("'{}' is not a subcommand or option{}; see pipit{} --help", extra[0],
                              near_names(extra[0], below), name),
                  kExitUsage);
  }
  if (error.get_exit_code() == 0) {
    app.exit(error);
    return flushed(kExitOk);
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !extra.empty())
    return report(fmt::format("{}; see pipit{} --help", not_taken(*command, extra), name), kExitUsage);
  // What is required and missing is seen best in its place.
  const std::string usage = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)
                                ? fmt::format(": {}", usage_of(*command, name))
                                : "";
  return report(fmt::format("{}{}; see pipit{} --help", error.what(), usage, name), kExitUsage);
}

// What `pipit` alone says.
void print_first_steps() {
  fmt::print(
      "pipit {} runs ONNX image classifiers and shows where their time goes. Three things to try:\n\n"
      "  pipit classify photo.jpg                 what your photograph shows\n"
      "  pipit profile resnet50                   how long each layer takes on this machine\n"
      "  pipit inspect model.onnx                 the layers of your model, and which kernels run them\n\n"
      "classify uses EfficientNet-Lite0 if no model is named, and fetches it once (18 MB). pipit --help "
      "lists all\ncommands; pipit COMMAND --help explains one.\n",
      version());
}

// CLI11 would take the value of an option before the subcommand for the subcommand.
bool belongs_after_subcommand(const CLI::App& app, const std::string& argument) {
  const std::string option = argument.substr(0, argument.find('='));
  if (!option.starts_with('-') || app.get_option_no_throw(option) != nullptr) return false;
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(subcommands.begin(), subcommands.end(), [&](const CLI::App* subcommand) {
    return subcommand->get_option_no_throw(option) != nullptr;
  });
}

// CLI11 takes an empty value for none at all.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled(
      [](const std::string& value) { return value.empty() ? "is empty" : std::string{}; }, "");
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_items_expected_max() > 0) option->check(filled);
    }
  }
}

int run(int argc, char** argv) {
  int exit_code = kExitOk;
  CLI::App app("Run ONNX image classifiers and see where their time goes.", "pipit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", tools::build_text, "Show the version and what this build includes");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 runtime error, 2 usage, 3 unsupported model, 4 a check failed.\n"
      "'pipit SUBCOMMAND --help' explains each. Results go to stdout, notes and progress to stderr.");
  add_classify(app, exit_code);
  add_evaluate(app, exit_code);
  add_inspect(app, exit_code);
  add_verify(app, exit_code);
  add_profile(app, exit_code);
  add_bench(app, exit_code);
  add_compare(app, exit_code);
  add_calibrate(app, exit_code);
  add_quantize(app, exit_code);
  add_annotate(app, exit_code);
  add_diff(app, exit_code);
  add_tune(app, exit_code);
  add_prune(app, exit_code);
  add_sweep(app, exit_code);
  add_models(app, exit_code);
  add_fetch(app, exit_code);
  add_doctor(app, exit_code);
  add_ceilings(app, exit_code);
  add_help(app, exit_code);
  refuse_empty_values(app);
  if (argc > 1 && belongs_after_subcommand(app, argv[1])) {
    return report(fmt::format("{} comes before the subcommand; options go after it: pipit SUBCOMMAND ... {}",
                              argv[1], argv[1]),
                  kExitUsage);
  }
  if (argc == 1) {
    print_first_steps();
    return flushed(kExitUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return exit_of(app, e);
  } catch (const ArgumentError& e) {
    return report(e.what(), kExitUsage);
  } catch (const UnsupportedError& e) {
    return report(e.what(), kExitUnsupported);
  } catch (const Error& e) {
    return report(e.what(), kExitRuntime);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kExitRuntime);
  } catch (const std::filesystem::filesystem_error& e) {
    return report(fmt::format("{}: {}", e.path1().string(), e.code().message()), kExitRuntime);
  } catch (const std::exception& e) {
    return std::ferror(stdout) != 0 ? flushed(kExitRuntime) : report(e.what(), kExitRuntime);
  }
  return flushed(exit_code);
}

}  // namespace

namespace pipit::internal::apps {

int run_command(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is an error of writing like others
  try {
    return run(argc, argv);
  } catch (const Error& e) {  // before the command line is read: PIPIT_ISA
    return report(e.what(), kExitUsage);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kExitRuntime);
  }
}

}  // namespace pipit::internal::apps
