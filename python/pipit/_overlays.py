"""Measurements of nodes as files for programs that draw models: Model Explorer and Netron."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipit import _pipit
from pipit._errors import ArgumentError, Error
from pipit._options import model_name
from pipit._records import write_bytes

if TYPE_CHECKING:
    from pipit._types import StrPath

# Model Explorer colours a node by where its value lies between the least and the largest one.
_BAD_IF_LARGE = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e07b1a"}]
_BAD_IF_SMALL = [{"stop": 0, "bgColor": "#e07b1a"}, {"stop": 1, "bgColor": "#ffffff"}]


def write_node_data(
    output: StrPath,
    *,
    profile: _pipit.Profile | None = None,
    difference: _pipit.Difference | None = None,
) -> list[str]:
    """Writes files for Model Explorer ("custom node data", by the names of ONNX nodes), and returns their names.

    A file holds one number for each node, so `output`, which must end in .json, becomes 'NAME.time.json' with the
    median time in ms, 'NAME.floor.json' with the least possible time in ms (if the profile has floors) and
    'NAME.sqnr.json' with the signal to quantization noise in dB. Nodes that a kernel computes together have the time of
    that kernel at one of them, and the others 0. Raises ArgumentError if there is nothing to write, and Error for files
    that cannot be written.

    >>> import os, pipit, tempfile
    >>> times = pipit.profile("resnet20-cifar10", runs=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [os.path.basename(name) for name in pipit.write_node_data(folder + "/resnet.json", profile=times)]
    ['resnet.time.json']
    """
    import json

    name = os.fspath(output)
    if not name.endswith(".json"):
        raise ArgumentError(f"{name!r} must end in .json")
    values: dict[str, dict[str, float]] = {}
    if profile is not None:
        values["time"] = _spread(profile, [layer.median_ms for layer in profile.layers])
        if profile.floors is not None:
            values["floor"] = _spread(profile, [layer.floor.ms if layer.floor else 0 for layer in profile.layers])
    if difference is not None:
        values["sqnr"] = {layer.name: layer.error.sqnr_db for layer in difference.layers if layer.error.sqnr_db < 1e9}
    if not values:
        raise ArgumentError("there is nothing to write: give a profile, a difference, or both")
    written = []
    for what, numbers in values.items():
        file = f"{name.removesuffix('.json')}.{what}.json"
        gradient = _BAD_IF_SMALL if what == "sqnr" else _BAD_IF_LARGE
        results = {node: {"value": value} for node, value in numbers.items()}
        write_bytes(file, json.dumps({"results": results, "gradient": gradient}, indent=1).encode())
        written.append(file)
    return written


def write_annotated_nodes(
    model: StrPath,
    output: StrPath,
    *,
    profile: _pipit.Profile | None = None,
    difference: _pipit.Difference | None = None,
) -> int:
    """Writes a copy of an ONNX file whose nodes have what was measured as metadata, which Netron shows with a node's
    properties, and returns the number of these nodes.

    Keys: pipit.kernel, pipit.time_ms, pipit.share and pipit.floor_ms, pipit.computed_by for a node that the kernel of
    another one computes, pipit.precision and pipit.sqnr_db. Values that the file has under these keys are replaced;
    everything else keeps its bytes, so the copy computes the same. Weights in other files are found if the copy is in
    the same folder. Raises ArgumentError if there is nothing to write or `model` is no file, and Error for files that
    cannot be read or written and for nodes that the file does not have.
    """
    entries = _entries(profile, difference)
    if not entries:
        raise ArgumentError("there is nothing to write: give a profile, a difference, or both")
    name = model_name(model)
    try:
        with open(name, "rb") as file:
            onnx = file.read()
    except FileNotFoundError:
        raise ArgumentError(f"{name!r} is no file: a model that has a name has no nodes to annotate") from None
    except OSError as error:
        raise Error(f"{name}: cannot be read: {error.strerror}") from error
    if os.path.exists(os.fspath(output)) and os.path.samefile(name, os.fspath(output)):
        raise ArgumentError(f"{os.fspath(output)!r} is the model itself; name another file")
    try:
        annotated, found = _annotated_model(onnx, entries)
    except (IndexError, ValueError) as error:
        raise Error(f"{name}: not an ONNX model ({error})") from error
    if not found:
        raise Error(f"{name}: has none of the {len(entries)} measured nodes, such as {next(iter(entries))!r}")
    write_bytes(os.fspath(output), annotated)
    return found


def _spread(profile: _pipit.Profile, numbers: list[float]) -> dict[str, float]:
    """A number for each node: that of a layer at its own node, 0 at those fused into it."""
    values: dict[str, float] = {}
    for layer, number in zip(profile.layers, numbers, strict=True):
        values[layer.name] = values.get(layer.name, 0) + number
        for node in layer.nodes:
            values.setdefault(node, 0)
    return values


def _entries(profile: _pipit.Profile | None, difference: _pipit.Difference | None) -> dict[str, dict[str, str]]:
    """The metadata of each node."""
    entries: dict[str, dict[str, str]] = {}
    if profile is not None:
        whole = profile.layers_ms or 1
        for layer in profile.layers:
            own = entries.setdefault(layer.name, {})
            own["pipit.kernel"] = layer.kernel
            own["pipit.time_ms"] = f"{layer.median_ms:.6g}"
            own["pipit.share"] = f"{100 * layer.median_ms / whole:.2f} %"
            if layer.floor is not None:
                own["pipit.floor_ms"] = f"{layer.floor.ms:.6g}"
            for node in layer.nodes:
                if node != layer.name:
                    entries.setdefault(node, {})["pipit.computed_by"] = layer.name
    if difference is not None:
        for error in difference.layers:
            own = entries.setdefault(error.name, {})
            own["pipit.precision"] = error.precision
            own["pipit.sqnr_db"] = f"{error.error.sqnr_db:.2f}"
    return entries


# The few messages of ONNX's protobuf that lie around a node's metadata: numbers of fields.
_MODEL_GRAPH, _GRAPH_NODE, _NODE_NAME, _NODE_METADATA, _ENTRY_KEY, _ENTRY_VALUE = 7, 1, 3, 9, 1, 2
_LENGTH_DELIMITED = 2


def _annotated_model(onnx: bytes, entries: dict[str, dict[str, str]]) -> tuple[bytes, int]:
    parts: list[bytes | memoryview] = []
    found = 0
    for number, whole, content in _fields(memoryview(onnx)):
        if number == _MODEL_GRAPH and content is not None:
            graph, found = _annotated_graph(content, entries)
            parts.append(_field(number, graph))
        else:
            parts.append(whole)
    return b"".join(parts), found


def _annotated_graph(graph: memoryview, entries: dict[str, dict[str, str]]) -> tuple[bytes, int]:
    parts: list[bytes | memoryview] = []
    found = 0
    for number, whole, content in _fields(graph):
        own = None
        if number == _GRAPH_NODE and content is not None:
            own = entries.get(_text_of(content, _NODE_NAME))
        if own and content is not None:
            parts.append(_field(number, _annotated_node(content, own)))
            found += 1
        else:
            parts.append(whole)
    return b"".join(parts), found


def _annotated_node(node: memoryview, own: dict[str, str]) -> bytes:
    parts: list[bytes | memoryview] = []
    for number, whole, content in _fields(node):
        is_old = number == _NODE_METADATA and content is not None and _text_of(content, _ENTRY_KEY) in own
        if not is_old:
            parts.append(whole)
    for key, value in own.items():
        parts.append(_field(_NODE_METADATA, _field(_ENTRY_KEY, key.encode()) + _field(_ENTRY_VALUE, value.encode())))
    return b"".join(parts)


def _text_of(message: memoryview, wanted: int) -> str:
    for number, _, content in _fields(message):
        if number == wanted and content is not None:
            return bytes(content).decode("utf-8", "replace")
    return ""


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """The number, all bytes and the content (of what has a length) of each field. Raises ValueError and IndexError."""
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        content = None
        kind = key & 7
        if kind == _LENGTH_DELIMITED:
            size, at = _varint(message, at)
            content = message[at : at + size]
            at += size
        elif kind == 0:
            _, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind} at byte {start}")
        if at > len(message):
            raise ValueError(f"a field at byte {start} ends behind its message")
        yield key >> 3, message[start:at], content


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"a number of more than 64 bits at byte {at}")


def _field(number: int, content: bytes) -> bytes:
    def varint(value: int) -> bytes:
        written = bytearray()
        while value > 0x7F:
            written.append(value & 0x7F | 0x80)
            value >>= 7
        written.append(value)
        return bytes(written)

    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content
