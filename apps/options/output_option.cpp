#include "apps/options/output_option.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/output_files.h"
#include "pipit/output_file.h"

namespace pipit::internal::apps {

namespace {

struct Ending {
  std::string_view text;
  OutputForm form;
  std::string_view what;
};

// A longer one stands before its own end.
constexpr Ending kEndings[] = {
    {".trace.json", OutputForm::trace, "one run for Perfetto and chrome://tracing"},
    {".trtexec.json", OutputForm::trtexec, "layers as trtexec --exportProfile writes them"},
    {".json", OutputForm::json, "the document of --json"},
    {".csv", OutputForm::csv, "a table for spreadsheets"},
    {".html", OutputForm::html, "a report, one page that works offline"},
};

const Ending* ending_of(std::string_view path) {
  const auto* found = std::ranges::find_if(kEndings, [&](const Ending& e) { return path.ends_with(e.text); });
  return found == std::end(kEndings) ? nullptr : found;
}

}  // namespace

void OutputOption::add_to(CLI::App& command, const std::vector<OutputForm>& forms) {
  std::string list, explained;
  for (const Ending& ending : kEndings) {
    if (std::ranges::find(forms, ending.form) == forms.end()) continue;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", ending.text);
    explained += fmt::format("{}{} {}", explained.empty() ? "" : "; ", ending.text, ending.what);
  }
  const auto take = [this, forms, list](const std::vector<std::string>& paths) {
    files_.clear();
    for (const std::string& path : paths) {
      const Ending* ending = ending_of(path);
      if (ending == nullptr || std::ranges::find(forms, ending->form) == forms.end())
        throw CLI::ValidationError("--output", fmt::format("'{}' must end in one of {}", path, list));
      for (const File& other : files_) {
        if (tools::same_file(other.path, path))
          throw CLI::ValidationError("--output", fmt::format("'{}' is named twice", path));
      }
      files_.push_back({path, ending->form});
    }
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--output", take,
          "Also write the result to this file, in the format of its extension: " + explained +
              ". May be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
}

bool OutputOption::has(OutputForm form) const {
  return std::ranges::find(files_, form, &File::form) != files_.end();
}

std::vector<std::string> OutputOption::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

void OutputOption::check(const std::vector<std::string>& inputs) const {
  for (const File& file : files_) check_output("--output", file.path, inputs);
}

void OutputOption::write(const std::string& json, const std::string& sweep) const {
  write([&](OutputForm form) { return tools::report(json, form, sweep); });
}

void OutputOption::write(const std::function<std::string(OutputForm)>& content) const {
  for (const File& file : files_) tools::write_file(file.path, content(file.form));
}

}  // namespace pipit::internal::apps
