"""Results, whose members are those of the C++ structs, as text and as dicts."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from pipit import _pipit
from pipit._errors import ArgumentError, Error


def _short(value: object) -> str:
    text = repr(value)
    if isinstance(value, (list, dict)) and len(text) > 60:
        return f"<{len(value)} items>"
    return text


def show(record: Any) -> str:
    """'Share(count=46, of=50, ...)'; long lists are counted."""
    members = ", ".join(f"{name}={_short(getattr(record, name))}" for name in record.__match_args__ if name != "json")
    return f"{type(record).__name__}({members})"


def to_dict(record: Any) -> dict[str, Any]:
    """All of a result as plain dicts, lists, numbers and text."""
    if hasattr(record, "json"):
        import json

        document: dict[str, Any] = json.loads(record.json)
        return document
    return {name: _plain(getattr(record, name)) for name in record.__match_args__}


# What `pipit profile --output` and the like take for the end of a file's name; a longer one stands before its own end.
FORMS = {
    ".trace.json": "trace",
    ".trtexec.json": "trtexec",
    ".json": "json",
    ".csv": "csv",
    ".html": "html",
    ".svg": "svg",
}
REPORTED = ("Profile", "ConvSweep", "SparsitySweep")  # what the library has a page of


def _written(record: Any, form: str) -> str:
    if form == "svg":
        if not hasattr(record, "pareto_svg"):
            raise ArgumentError(f"a {type(record).__name__} has no plot of accuracy against time; .html may have more")
        return str(record.pareto_svg())
    if form == "html" and type(record).__name__ not in REPORTED and hasattr(record, "_repr_html_"):
        from pipit import _notebook

        return _notebook.page(record)
    return _pipit.report(record.json, form)


def save(record: Any, path: str | os.PathLike[str]) -> None:
    """Writes a result in the form of the path's end, in full or not at all."""
    name = os.fspath(path)
    form = next((form for end, form in FORMS.items() if name.endswith(end)), None)
    if form is None:
        raise ArgumentError(f"{name!r} must end in one of {', '.join(FORMS)}")
    text = _written(record, form)
    write_bytes(name, text.encode("utf-8"))


def write_bytes(name: str, content: bytes) -> None:
    """Writes a file in full or not at all."""
    target = os.path.realpath(name)
    beside = f"{target}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            file.write(content)
        os.replace(beside, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            raise Error(f"{name}: cannot be written: {error.strerror}") from error
        raise


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return to_dict(value) if hasattr(value, "__match_args__") else value
