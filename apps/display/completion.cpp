#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "apps/display/help_text.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

// The first part of what an option does: menus have a line for each.
std::string in_short(const std::string& text) {
  std::string part =
      text.substr(0, std::min({text.find(';'), text.find(':'), text.find(" ["), text.find(" (")}));
  return part;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_below(const DeclaredCommand& command) {
  std::vector<std::string> names;
  for (const DeclaredCommand& below : command.commands)
    names.push_back(below.name.substr(below.name.rfind(' ') + 1));
  return names;
}

constexpr std::string_view kBash = R"(# Completion of pipit for bash, as `pipit help --format bash` writes it.

# Fills COMPREPLY with what begins as $2 of the values $1: words and kinds with | between, a list where ",..." ends it.
_pipit_values() {
  local kinds=$1 current=$2 before= words= files= kind word
  if [[ $kinds == *,... ]]; then
    kinds=${kinds%,...}
    if [[ $current == *,* ]]; then before=${current%,*}, current=${current##*,}; fi
  fi
  while [[ -n $kinds ]]; do
    kind=${kinds%%|*}
    if [[ $kinds == *'|'* ]]; then kinds=${kinds#*|}; else kinds=; fi
    case $kind in
      MODEL) words+=" $_pipit_models" files=-f ;;
      KERNEL) words+=" $_pipit_kernels" ;;
      no-KERNEL) for word in $_pipit_kernels; do words+=" no-$word"; done ;;
      FILE|IMAGE|IMAGES) files=-f ;;
      FOLDER) files=-d ;;
      [A-Z]*) ;;
      *) words+=" $kind" ;;
    esac
  done
  while IFS= read -r word; do COMPREPLY+=("$before$word"); done < <(compgen -W "$words" -- "$current")
  if [[ -n $files ]]; then
    compopt -o filenames 2> /dev/null
    while IFS= read -r word; do COMPREPLY+=("$before$word"); done < <(compgen "$files" -- "$current")
  fi
}

_pipit() {
  local current=${COMP_WORDS[COMP_CWORD]} command= value= operand=0 word i
  local options= operands= commands=
  COMPREPLY=()
  _pipit_command "$command"
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then continue; fi  # bash takes --option=value for three words
    if [[ -n $value ]]; then
      value=
    elif [[ $word == -* ]]; then
      _pipit_option "$command" "$word"
    elif [[ -n $commands ]]; then
      command=${command:+$command }$word
      _pipit_command "$command"
    else
      ((++operand))
    fi
  done
  if [[ $current == = ]]; then current=; fi
  if [[ -n $value ]]; then
    _pipit_values "$value" "$current"
  elif [[ $current == -* ]]; then
    _pipit_values "${options// /|}" "$current"
  elif [[ -n $commands ]]; then
    _pipit_values "${commands// /|}" "$current"
  else
    local kinds=($operands)
    if ((${#kinds[@]} > 0)); then
      if ((operand >= ${#kinds[@]})); then operand=$((${#kinds[@]} - 1)); fi
      _pipit_values "${kinds[operand]}" "$current"
    fi
  fi
}

complete -F _pipit pipit
)";

}  // namespace

std::string bash_completion(const DeclaredCommand& whole, const std::vector<std::string>& models,
                            const std::vector<std::string>& kernels) {
  std::vector<const DeclaredCommand*> commands = whole.all();
  commands.insert(commands.begin(), &whole);
  std::string of_commands;
  std::map<std::string, std::vector<std::string>> options_with;  // what takes the same
  for (const DeclaredCommand* command : commands) {
    std::vector<std::string> options = {"--help"}, operands;
    for (const DeclaredOption& option : command->options) {
      (option.operand ? operands : options).push_back(option.operand ? option.value : option.name);
      if (!option.operand && !option.value.empty())
        options_with[option.value].push_back(shell_word(command->name + " " + option.name));
    }
    of_commands += fmt::format("    {}) options={} operands={} commands={} ;;\n", shell_word(command->name),
                               shell_word(joined(options)), shell_word(joined(operands)),
                               shell_word(joined(names_below(*command))));
  }
  std::string of_options;
  for (const auto& [value, options] : options_with)
    of_options += fmt::format("    {}) value={} ;;\n", fmt::join(options, "|"), shell_word(value));
  return fmt::format(
      "{}\n_pipit_models={}\n_pipit_kernels={}\n\n"
      "# Sets options, operands and commands of the command $1.\n_pipit_command() {{\n  options= operands= "
      "commands=\n"
      "  case $1 in\n{}  esac\n}}\n\n"
      "# Sets value to what the option $2 of the command $1 takes.\n_pipit_option() {{\n  case \"$1 $2\" "
      "in\n{}  esac\n}}\n",
      kBash, shell_word(joined(models)), shell_word(joined(kernels)), of_commands, of_options);
}

namespace {

// In the specifications of _arguments.
std::string in_brackets(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == ']' || c == '[' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return escaped;
}

// What completes such a value.
std::string zsh_action(const std::string& given) {
  std::string value = given;
  const bool list = value.ends_with(",...");
  if (list) value.resize(value.size() - 4);
  std::vector<std::string> words;
  std::string kind;
  for (const std::string& part : CLI::detail::split(value, '|')) {
    if (!part.empty() && part[0] >= 'A' && part[0] <= 'Z') {
      kind = part;
    } else if (part == "no-KERNEL") {
      words.emplace_back("${_pipit_kernels/#/no-}");
    } else {
      words.push_back(part);
    }
  }
  if (list && (!words.empty() || kind == "KERNEL"))
    return fmt::format("_values -s , value {}{}", joined(words), kind == "KERNEL" ? " $_pipit_kernels" : "");
  if (kind == "MODEL") return fmt::format("{{_pipit_model {}}}", joined(words));
  if (kind == "KERNEL") return fmt::format("{{compadd {} -- $_pipit_kernels}}", joined(words));
  if (kind == "FILE" || kind == "IMAGE" || kind == "IMAGES") return "_files";
  if (kind == "FOLDER") return "_files -/";
  return words.empty() ? " " : fmt::format("({})", joined(words));
}

std::string zsh_arguments(const DeclaredCommand& command) {
  std::string specifications = "'(- *)'{-h,--help}'[what it does]'";
  for (const DeclaredOption& option : command.options) {
    std::string spec;
    if (option.operand) {
      spec = fmt::format("{}:{}:{}", option.repeatable ? "*" : "", option.name, zsh_action(option.value));
    } else {
      spec = fmt::format("{}{}{}[{}]", option.repeatable ? "*" : "", option.name,
                         option.value.empty() ? "" : "=", in_brackets(in_short(option.text)));
      if (!option.value.empty())
        spec += fmt::format(":{}:{}", in_brackets(option.value), zsh_action(option.value));
    }
    specifications += " \\\n    " + shell_word(spec);
  }
  return specifications;
}

std::string function_name(const DeclaredCommand& command) {
  std::string name = command.name.empty() ? "_pipit" : "_pipit " + command.name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::string zsh_function(const DeclaredCommand& command) {
  const std::string name = function_name(command);
  if (command.commands.empty())
    return fmt::format("{}() {{\n  _arguments -s -S {}\n}}\n\n", name, zsh_arguments(command));
  std::string listed, calls;
  for (const DeclaredCommand& below : command.commands) {
    const std::string word = below.name.substr(below.name.rfind(' ') + 1);
    listed += "\n    " + shell_word(word + ":" + in_brackets(below.text));
    calls += fmt::format("      {}) {} ;;\n", word, function_name(below));
  }
  return fmt::format(
      "{0}() {{\n  local context state state_descr line\n  typeset -A opt_args\n  local -a commands=({1}\n  "
      ")\n"
      "  _arguments -C {2} \\\n    '1:command:->command' '*::argument:->arguments'\n"
      "  case $state in\n    command) _describe -t commands command commands ;;\n"
      "    arguments) case $line[1] in\n{3}    esac ;;\n  esac\n}}\n\n",
      name, listed, zsh_arguments(command), calls);
}

}  // namespace

std::string zsh_completion(const DeclaredCommand& whole, const std::vector<std::string>& models,
                           const std::vector<std::string>& kernels) {
  std::string script = fmt::format(
      "#compdef pipit\n# Completion of pipit for zsh, as `pipit help --format zsh` writes it.\n\n"
      "typeset -ga _pipit_kernels=({})\n\n_pipit_model() {{\n  local -a names=($@ {})\n"
      "  _alternative 'models:model:compadd -a names' 'files:file:_files'\n}}\n\n",
      joined(kernels), joined(models));
  for (const DeclaredCommand* command : whole.all()) script += zsh_function(*command);
  return script + zsh_function(whole) + "_pipit \"$@\"\n";
}

}  // namespace pipit::internal::apps
