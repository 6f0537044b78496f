// The parts of the extension module pipit._pipit. It binds pipit's public headers, and each struct has the names of its
// members; what is convenient in Python is written in Python (python/pipit).
#pragma once

#include <nanobind/nanobind.h>

namespace pipit::internal::python {

namespace nb = nanobind;

void bind_errors(nb::module_& module);      // errors.cpp
void bind_options(nb::module_& module);     // options.cpp
void bind_model(nb::module_& module);       // model.cpp
void bind_classifier(nb::module_& module);  // classifier.cpp
void bind_results(nb::module_& module);     // results.cpp
void bind_measured(nb::module_& module);    // measured.cpp
void bind_tools(nb::module_& module);       // tools.cpp

}  // namespace pipit::internal::python
