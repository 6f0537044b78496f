// Structs as Python classes with the same members.
#pragma once

#include <string>
#include <vector>

#include "python/src/casters.h"

namespace pipit::internal::python {

/// Binds options: a class made without arguments, whose members can be set.
template <typename T>
class OptionFields {
 public:
  OptionFields(nb::module_& module, const char* name, const char* doc) : class_(module, name, doc) {
    class_.def(nb::init<>());
  }
  template <typename M>
  OptionFields& field(const char* name, M member) {
    class_.def_rw(name, member);
    return *this;
  }
  /// A member of a group of options, which Python has as one of the struct itself.
  template <typename Group, typename M>
  OptionFields& field(const char* name, Group T::*group, M Group::*member) {
    class_.def_prop_rw(
        name, [=](const T& options) { return options.*group.*member; },
        [=](T& options, const M& value) { options.*group.*member = value; });
    return *this;
  }
  /// A function that sets members.
  template <typename Set>
  OptionFields& set(const char* name, Set set) {
    class_.def(name, set);
    return *this;
  }

 private:
  nb::class_<T> class_;
};

/// Binds a result: a class whose members can be read; `__match_args__` names them in order. python/pipit/_records.py
/// shows it and makes a dict of it.
template <typename T>
class ResultFields {
 public:
  ResultFields(nb::module_& module, const char* name, const char* doc) : class_(module, name, doc) {
    const auto by = [](const char* function) {
      return
          [function](nb::handle self) { return nb::module_::import_("pipit._records").attr(function)(self); };
    };
    class_.def("__repr__", by("show"), nb::sig("def __repr__(self) -> str"));
    class_.def(
        "to_dict", by("to_dict"), nb::sig("def to_dict(self) -> dict[str, typing.Any]"),
        "All of it as the command's --json writes it, where that has such a document; else the members.");
  }
  ~ResultFields() { class_.attr("__match_args__") = nb::tuple(nb::cast(names_)); }
  ResultFields(const ResultFields&) = delete;
  ResultFields& operator=(const ResultFields&) = delete;

  /// It can be written in the forms of tools::report().
  ResultFields& saved() {
    return method(
        "save", "pipit._records", "def save(self, path: str | os.PathLike[str]) -> None",
        "Writes it in the form of the path's end: .json, .csv, .html, .trace.json, .trtexec.json or .svg, "
        "of what has such a form. The file is written in full or not at all.");
  }
  /// Notebooks show it, and its rows are a table of pandas.
  ResultFields& shown() {
    return method("_repr_html_", "pipit._notebook", "def _repr_html_(self) -> str", "What a notebook shows.")
        .method("to_pandas", "pipit._notebook", "def to_pandas(self) -> typing.Any",
                "Its rows as a pandas.DataFrame, with the keys of to_dict() as columns; those of nested "
                "objects are "
                "joined with a dot. Raises Error without pandas.");
  }
  /// It has steps that are points in a plot of accuracy against time.
  ResultFields& pareto() {
    return method(
        "pareto_svg", "pipit._notebook", "def pareto_svg(self) -> str",
        "Accuracy against time, with the Pareto front, as an SVG document. Raises ArgumentError if no step "
        "was measured.");
  }
  /// A method that is the function of this name in a module of Python.
  ResultFields& method(const char* name, const char* module, const char* signature, const char* doc) {
    class_.def(
        name,
        [name, module](nb::handle self, const nb::args& arguments, const nb::kwargs& named) {
          return nb::module_::import_(module).attr(name)(self, *arguments, **named);
        },
        nb::sig(signature), doc);
    return *this;
  }
  template <typename M>
  ResultFields& field(const char* name, M member, const char* doc) {
    class_.def_ro(name, member, doc);
    names_.emplace_back(name);
    return *this;
  }

 private:
  nb::class_<T> class_;
  std::vector<std::string> names_;
};

}  // namespace pipit::internal::python
