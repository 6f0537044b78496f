#include "apps/options/list_option.h"

#include "apps/options/values.h"

namespace pipit::internal::apps {

std::vector<std::string> split_list(const std::string& option, std::string_view text) {
  std::vector<std::string> entries;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    entries.emplace_back(text.substr(begin, comma == text.npos ? comma : comma - begin));
    if (entries.back().empty())
      throw CLI::ValidationError(option, "'" + std::string(text) + "' has an empty entry");
    if (comma == text.npos) return entries;
    begin = comma + 1;
  }
}

CLI::Option* add_choices(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                         const std::vector<std::string>& words, const std::string& help) {
  return add_list(command, name, values, one_of(words), help)->type_name(alternatives(words) + ",...");
}

}  // namespace pipit::internal::apps
