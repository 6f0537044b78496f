"""Results, whose members are those of the C++ structs, as text and as dicts."""

from __future__ import annotations

from typing import Any


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


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return to_dict(value) if hasattr(value, "__match_args__") else value
