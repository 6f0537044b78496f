// What the command's declarations say of it, for everything that is made of them: --help, manual pages, tables,
// completion.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipit::internal::apps {

struct DeclaredOption {
  std::string name;  ///< "--plan"; of an operand "MODEL"
  /// Words in capitals say what it takes (FILE, FOLDER, IMAGES, MODEL, KERNEL, N), no-KERNEL is a kernel with "no-"
  /// before its name, other words are taken themselves, with | between: "fp32|fp16|bf16|MODEL"; "N,..." is a list;
  /// empty: a flag
  std::string value;
  std::string text;  ///< what it does, and in brackets what holds without it
  bool operand = false;
  bool required = false;
  bool repeatable = false;

  /// "--plan FILE"
  std::string usage() const;
};

struct DeclaredCommand {
  std::string name;  ///< "sweep conv"; of the whole empty
  std::string text;
  std::string notes;                  ///< paragraphs; lines that begin with spaces stand as they are
  std::vector<std::string> examples;  ///< command lines
  std::vector<DeclaredOption> options;
  std::vector<DeclaredCommand> commands;

  /// "pipit sweep sparsity [OPTIONS] [MODEL]"
  std::string usage() const;
  /// All commands below, in the order of --help, each before its own.
  std::vector<const DeclaredCommand*> all() const;
};

DeclaredCommand declared(const CLI::App& app);
nlohmann::ordered_json declared_json(const DeclaredCommand& command);

}  // namespace pipit::internal::apps
