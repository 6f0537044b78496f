"""Measurements of nodes as files for programs that draw models: Model Explorer and Netron."""

from __future__ import annotations

import os
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
    all else stays, so the copy computes the same. Weights in other files are found if the copy is in the same folder.
    Raises ArgumentError if there is nothing to write or `model` is no file, and Error for files that cannot be read or
    written, for nodes that the file does not have, and without the package onnx (1.16 or later).
    """
    entries = _entries(profile, difference)
    if not entries:
        raise ArgumentError("there is nothing to write: give a profile, a difference, or both")
    name = model_name(model)
    try:
        with open(name, "rb") as file:
            onnx_bytes = file.read()
    except FileNotFoundError:
        raise ArgumentError(f"{name!r} is no file: a model that has a name has no nodes to annotate") from None
    except OSError as error:
        raise Error(f"{name}: cannot be read: {error.strerror}") from error
    if os.path.exists(os.fspath(output)) and os.path.samefile(name, os.fspath(output)):
        raise ArgumentError(f"{os.fspath(output)!r} is the model itself; name another file")
    try:
        annotated, found = _annotated(onnx_bytes, entries)
    except ValueError as error:
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


def _annotated(onnx_bytes: bytes, entries: dict[str, dict[str, str]]) -> tuple[bytes, int]:
    """The model with the entries at its nodes, and their number. Raises ValueError for bytes that are no model."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise Error("write_annotated_nodes() needs the package onnx: pip install onnx") from error
    if "metadata_props" not in onnx.NodeProto.DESCRIPTOR.fields_by_name:
        raise Error(f"write_annotated_nodes() needs onnx 1.16 or later; onnx is {onnx.__version__}")
    try:
        model = onnx.ModelProto.FromString(onnx_bytes)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    found = 0
    for node in model.graph.node:
        own = entries.get(node.name)
        if not own:
            continue
        kept = [entry for entry in node.metadata_props if entry.key not in own]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in own.items())
        found += 1
    return model.SerializeToString(deterministic=True), found
