#include "apps/display/notes.h"

#include "apps/display/terminal.h"

namespace pipit::internal::apps {

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_error("note: " + note);
}

std::function<void(const std::string&)> note_printer(bool quiet) {
  if (quiet) return {};
  return [](const std::string& note) { print_notes({note}); };
}

}  // namespace pipit::internal::apps
