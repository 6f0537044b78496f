// The parts of the extension module pipit._pipit. It binds pipit's public headers, and each struct has the names of its
// members; what is convenient in Python is written in Python (python/pipit).
#pragma once

#include <nanobind/nanobind.h>

#include <exception>

namespace pipit::internal::python {

namespace nb = nanobind;

/// The exception of Python for one of C++: one of python/pipit/_errors.py, or RuntimeError. The caller holds the GIL.
nb::object exception_of(const std::exception_ptr& thrown);  // errors.cpp

void bind_errors(nb::module_& module);          // errors.cpp
void bind_options(nb::module_& module);         // options.cpp
void bind_model(nb::module_& module);           // model.cpp
void bind_async_runner(nb::module_& module);    // async_runner.cpp
void bind_device_outputs(nb::module_& module);  // device_outputs.cpp
void bind_command(nb::module_& module);         // command.cpp
void bind_classifier(nb::module_& module);      // classifier.cpp
void bind_calibrator(nb::module_& module);      // calibrator.cpp
void bind_results(nb::module_& module);         // results.cpp
void bind_measured(nb::module_& module);        // measured.cpp
void bind_sweeps(nb::module_& module);          // sweeps.cpp
void bind_machine(nb::module_& module);         // machine.cpp
void bind_tools(nb::module_& module);           // tools.cpp

}  // namespace pipit::internal::python
