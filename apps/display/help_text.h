// --help, and the manual pages, tables and completion scripts that say the same.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/display/declared.h"

namespace pipit::internal::apps {

/// What --help prints, in lines of at most `width` columns where words allow it.
std::string help_text(const DeclaredCommand& command, int width);

/// The columns of what is printed: the terminal's, but no more than reads well.
int help_width();

/// Makes CLI11 print that, as wide as the terminal is.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

/// "pipit", "pipit-sweep-conv".
std::string man_page_name(const DeclaredCommand& command);

/// A page of section 1, in roff's man macros.
std::string man_page(const DeclaredCommand& command, const DeclaredCommand& whole);

/// Tables in Markdown: options that several commands share once, then those of each command.
std::string option_tables(const DeclaredCommand& whole);

/// A script for bash (3.2 or later), without bash-completion, and one for zsh. `models` and `kernels`: what MODEL and
/// KERNEL may be besides files.
std::string bash_completion(const DeclaredCommand& whole, const std::vector<std::string>& models,
                            const std::vector<std::string>& kernels);
std::string zsh_completion(const DeclaredCommand& whole, const std::vector<std::string>& models,
                           const std::vector<std::string>& kernels);

}  // namespace pipit::internal::apps
