#!/usr/bin/env python3
"""Packs what tests/gpu/record_layers.py wrote into the file that fit_costs.py and test_choice.py read.

    pack_layers.py RECORDED.json[.xz]... [--out FILE.json.xz]

Of a layer that several files hold, the least time of each kernel is kept, with three digits. A step of a network that
computes one convolution, or one with the global average after it, gives its kernel's time in networks: the median over
all layers of that shape. Chains of layers are kept from the file as it is: a recording does not name their layers. Networks whose layers are not named in the file are left out, and counted on stderr.
"""

from __future__ import annotations

import argparse
import collections
import json
import lzma
import math
import pathlib
import re
import statistics
import sys

import recorded

LEAST_US = 0.8  # a step below that ran in the shadow of the one before it


def read(path: pathlib.Path) -> dict:
    data = path.read_bytes()
    return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)


def shape_of(key: str) -> tuple | None:
    """Type, input, output, kernel, strides, groups and whether there is a residual, of a convolution's key."""
    line = recorded.described(key)
    if line is None:
        return None
    words = line.split()
    rank = int(words[1])
    operands = key.split("; ")[1]
    inputs, output = operands.split(" -> ")
    inputs = inputs.split(", ")
    extents = [tuple(map(int, text.split()[1].split("x"))) for text in (inputs[0], output)]
    return (words[0], *extents, tuple(map(int, words[2:2 + rank])), tuple(map(int, words[5:5 + rank])), int(words[17]), len(inputs) > 3)


def shape_of_step(step: dict) -> tuple | None:
    """The same of a step of a profile; None where it computes more than a convolution and an average."""
    text, average = step["geometry"], "then Pool global average" in step["geometry"]
    kernel = re.match(r"(\d+)x(\d+)", text)
    if step["type"] not in ("Conv", "QConv") or not kernel or len(step["input"]) != 4 or step["us"] < LEAST_US:
        return None
    if len(step["nodes"]) > 1 and not (average and text.count("then") <= 2):
        return None
    stride = int(match[1]) if (match := re.search(r" s(\d+)", text)) else 1
    groups = int(match[1]) if (match := re.search(r" g(\d+)", text)) else 1
    output = tuple(step["output"])
    if average:  # the convolution's own
        output = (*output[:2], *(-(-extent // stride) for extent in step["input"][2:]))
    return (step["type"], tuple(step["input"]), output, tuple(map(int, kernel.groups())), (stride, stride), groups, "+add" in text)


def times_in_networks(documents: list[dict], keys_by_shape: dict) -> dict[tuple[str, str], list[float]]:
    found = collections.defaultdict(list)
    for document in documents:
        for row in document["networks"]:
            for step in row.get("rule", {}).get("steps", []):
                shape = shape_of_step(step)
                after = "; then average" if "then Pool" in step["geometry"] else ""
                for key in keys_by_shape.get(shape, []):
                    found[key + after, step["kernel"]].append(step["us"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=recorded.FILE)
    a = parser.parse_args()
    documents = [read(path) for path in a.recorded]
    layers: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for document in documents:
        for key, times in document["layers"].items():
            for kernel, us in times.items():
                layers[key][kernel] = min(float(f"{us:.3g}"), layers[key].get(kernel, math.inf))
    keys_by_shape = collections.defaultdict(list)
    for key in layers:
        if (shape := shape_of(key)) is not None:
            keys_by_shape[shape].append(key)
    for (key, kernel), times in times_in_networks(documents, keys_by_shape).items():
        layers[key][f"{kernel} in its network"] = float(f"{statistics.median(times):.3g}")
    keys = sorted(layers)
    index = {key: i for i, key in enumerate(keys)}
    networks, nameless = {}, 0
    for row in (row for document in documents for row in document["networks"]):
        name = f"{row['model']} {row['precision']} {row['batch']}"
        if row.get("layers"):
            networks[name] = {"layers": {index[key]: 1 for key in row["layers"]}, "not_recorded": 0}
        else:
            nameless += 1
    machine = next((row["machine"] for document in documents for row in document["networks"] if "machine" in row), "unknown")
    packed = {"machine": machine, "date": max(document["date"] for document in documents),
              "made_by": "tests/gpu/record_layers.py, tests/cuda/cost/pack_layers.py",
              "layers": [[key, layers[key]] for key in keys], "networks": networks, "chains": recorded.load()["chains"]}
    data = lzma.compress(json.dumps(packed, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    a.out.write_bytes(data)
    print(f"{a.out}: {len(keys)} layers, {len(networks)} networks; {nameless} without their layers; {len(data) / 1e3:.0f} kB",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
