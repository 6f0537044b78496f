// Files that a command writes when its work is done.
#pragma once

#include <string>
#include <vector>

namespace pipit::internal::apps {

/// For a file that is written when the work is done: throws CLI::ValidationError, naming `option`, when something that
/// the command reads or pipit keeps would be lost (tools::replaced_input), and Error when it could not be written
/// (check_writable). `inputs`: every file, folder and name of a model that the command was given. No `output`: nothing
/// to check.
void check_output(const std::string& option, const std::string& output,
                  const std::vector<std::string>& inputs);

/// Throws CLI::ValidationError, naming `option`, when `path` and `other`, which need not be there yet, are one file:
/// what is written last would replace the other. Without one of them: nothing to check.
void check_apart(const std::string& option, const std::string& path, const std::string& other_option,
                 const std::string& other);

}  // namespace pipit::internal::apps
