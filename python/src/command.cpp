// The `pipit` command in this process: a program of its own would have a second copy of all kernels.
#include <string>
#include <vector>

#include "python/src/casters.h"
#include "python/src/module.h"
#ifdef PIPIT_HAVE_COMMAND
#include "apps/command.h"
#endif

namespace pipit::internal::python {

namespace {

int command([[maybe_unused]] std::vector<std::string> arguments) {
#ifdef PIPIT_HAVE_COMMAND
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const nb::gil_scoped_release release;
  return apps::run_command(static_cast<int>(arguments.size()), pointers.data());
#else
  throw Error("this build of the package has no command (PIPIT_APPS=OFF)");
#endif
}

}  // namespace

void bind_command(nb::module_& module) {
  module.def("command", &command, nb::arg("arguments"), "Runs the command and returns its exit code.");
}

}  // namespace pipit::internal::python
