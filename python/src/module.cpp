#include "python/src/module.h"

#include <nanobind/stl/string_view.h>

#include "pipit/pipit.h"

NB_MODULE(_pipit, module) {
  using namespace pipit::internal::python;
  module.doc() = "The C++ library, member by member. Use the package pipit instead.";
  module.def("version", &pipit::version, "'0.1.0': major, minor and patch.");
  bind_errors(module);
  bind_options(module);
  bind_device_outputs(module);
  bind_model(module);
  bind_async_runner(module);
  bind_classifier(module);
  bind_results(module);
  bind_calibrator(module);
  bind_measured(module);
  bind_sweeps(module);
  bind_machine(module);
  bind_tools(module);
  bind_command(module);
}
