// C++ exceptions as those of python/pipit/_errors.py.
#include <exception>

#include "pipit/error.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

void raise(const char* type, const char* message) {
  try {
    const nb::object raised = nb::module_::import_("pipit._errors").attr(type);
    // Names of files may be any bytes.
    const nb::object text = nb::steal(PyUnicode_DecodeFSDefault(message));
    PyErr_SetObject(raised.ptr(), text.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ArgumentError& error) {
    raise("ArgumentError", error.what());
  } catch (const UnsupportedError& error) {
    raise("UnsupportedError", error.what());
  } catch (const Error& error) {
    raise("Error", error.what());
  }
}

}  // namespace

nb::object exception_of(const std::exception_ptr& thrown) {
  try {
    translate(thrown, nullptr);
    const nb::python_error raised;
    return nb::borrow(raised.value());
  } catch (const std::exception& error) {
    return nb::module_::import_("builtins").attr("RuntimeError")(error.what());
  }
}

void bind_errors(nb::module_&) {
  nb::register_exception_translator(translate);
}

}  // namespace pipit::internal::python
