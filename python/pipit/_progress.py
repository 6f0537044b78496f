"""Progress of long work: a tqdm bar if tqdm is installed, or a function of the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """The progress of some work."""

    stage: str
    """The current part, 'comparing'."""
    done: int
    """Steps done, of total."""
    total: int
    """Steps of that part."""
    found: str
    """Results so far, in words: 'top-1 76.20 %'. May be empty."""


ProgressOption = bool | Callable[[Progress], object] | None
Report = Callable[[str, int, int, str], None]


class _Bars:
    """A bar for each stage."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int, found: str) -> None:
        if stage != self._stage:
            self.close()
            self._stage, self._bar = stage, self._tqdm(total=total, desc=stage, leave=False, mininterval=0)
        self._bar.total = total
        self._bar.set_postfix_str(found, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _is_watched() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def reporting(option: ProgressOption, title: str) -> Iterator[Report | None]:
    """Gives a function that reports progress to the caller, or None.

    A function is called with a Progress, in the calling thread, at most about 25 times a second; an exception from it
    ends the work. True shows tqdm bars, None does so in terminals and notebooks if tqdm is installed.
    """
    if callable(option):
        yield lambda stage, done, total, found: (option(Progress(stage or title, done, total, found)), None)[1]
        return
    if not option and (option is False or not _is_watched()):
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if option:
            raise
        yield None
        return
    bars = _Bars(tqdm)
    try:
        yield lambda stage, done, total, found: bars(stage or title, done, total, found)
    finally:
        bars.close()
