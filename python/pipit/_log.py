"""Notes for the user go to the logger "pipit"."""

from __future__ import annotations

from collections.abc import Iterable


def note(text: str) -> None:
    import logging

    logging.getLogger("pipit").warning("%s", text)


class Notes:
    """Passes each note on once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._seen:
            self._seen.add(text)
            note(text)

    def all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self(text)
