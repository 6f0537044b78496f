"""The exceptions of pipit."""

from __future__ import annotations


class Error(Exception):
    """Something went wrong at run time: a file, a value, a device.

    The message names the offending values and, where it can, what to do about it.
    """

    index: int | None = None
    """Of several images that were given, the one that cannot be used, counted from 0."""


class UnsupportedError(Error):
    """The input is well-formed but asks for something that pipit does not implement."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """One reason for each thing that is not supported; the whole message if there is only one."""
        message = str(self)
        return tuple(message.split("\n  ")[1:]) or (message,)


class ArgumentError(Error, ValueError):
    """Invalid arguments, independent of the contents of files. Nothing was written."""


for _exception in (Error, UnsupportedError, ArgumentError):
    _exception.__module__ = "pipit"  # its module in tracebacks and pickles
