#!/usr/bin/env python3
"""Packs what tests/gpu/record_layers.py wrote into the file that fit_costs.py and test_choice.py read.

    pack_layers.py [--onto FILE.json.xz] RECORDED.json[.xz]... [--out FILE.json.xz]
    pack_layers.py --likely FILE.json    kernels that took at most a fifth longer alone than the fastest of some layer of a
                                         network, for record_layers.py --forced

With --onto the recordings are added to what that file holds; layers that are recorded again lose their times in it. Of
a layer that several recordings hold, the least time of each kernel is kept, with three digits. A step of a network that
computes one convolution, or one with the global average after it, gives its kernel's time in networks: the median over
all layers of that shape. It is that of the variant that was timed first, because variants are timed in the order of
their estimates. Chains of layers are those of the file, with their times in the recordings, which do not name their
layers. Networks whose layers are not named in the file are left out, and counted on stderr.
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
from collections.abc import Iterator

import recorded

LEAST_US = 0.8  # a step below that ran in the shadow of the one before it


def read(path: pathlib.Path) -> dict:
    data = path.read_bytes()
    return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)


def shape_of(key: str) -> tuple | None:
    """Type, whether it is in half precision, input, output, kernel, strides, groups, whether there is a residual and
    what the result is bounded to, of a convolution's key."""
    line = recorded.described(key)
    if line is None:
        return None
    words = line.split()
    rank = int(words[1])
    operands = key.split("; ")[1]
    inputs, output = operands.split(" -> ")
    inputs = inputs.split(", ")
    extents = [tuple(map(int, text.split()[1].split("x"))) for text in (inputs[0], output)]
    return (words[0], inputs[0].startswith("f16"), *extents, tuple(map(int, words[2:2 + rank])), tuple(map(int, words[5:5 + rank])), int(words[17]), len(inputs) > 3, bounds_of(words[18:20]))


def bounds_of(low_high: list[str]) -> str:
    low, high = low_high
    if high != "inf":
        return "clip"
    return "" if low == "-inf" else "relu"


def shape_of_step(step: dict, precision: str) -> tuple | None:
    """The same of a step of a profile; None where it computes more than a convolution and an average."""
    text, average = step["geometry"], "then Pool global average" in step["geometry"]
    kernel = re.match(r"(\d+)x(\d+)", text)
    if step["type"] not in ("Conv", "QConv") or not kernel or len(step["input"]) != 4 or step["us"] < LEAST_US:
        return None
    if len(step["nodes"]) > 1 and not (average and text.count("then") <= 2):
        return None
    stride = int(match[1]) if (match := re.search(r" s(\d+)", text)) else 1
    groups = int(match[1]) if (match := re.search(r" g(\d+)", text)) else 1
    bounds = "clip" if re.search(r"\+(relu6|clip)", text) else "relu" if "+relu" in text else ""
    output = tuple(step["output"])
    if average:  # the convolution's own
        output = (*output[:2], *(-(-extent // stride) for extent in step["input"][2:]))
    return (step["type"], precision == "fp16", tuple(step["input"]), output, tuple(map(int, kernel.groups())), (stride, stride), groups, "+add" in text, bounds)


def steps_of(documents: list[dict]) -> Iterator[tuple[dict, str]]:
    """The steps of all networks and their precisions, with kernels chosen by rule and forced."""
    for row in (row for document in documents for row in document["networks"]):
        for part in (row.get("rule", {}), *row.get("fused", {}).values()):
            yield from ((step, row["precision"]) for step in part.get("steps", []))


def times_in_networks(documents: list[dict], keys_by_shape: dict) -> dict[tuple[str, str], list[float]]:
    found = collections.defaultdict(list)
    for step, precision in steps_of(documents):
        shape = shape_of_step(step, precision)
        after = "; then average" if "then Pool" in step["geometry"] else ""
        for key in keys_by_shape.get(shape, []):
            found[key + after, step["kernel"]].append(step["us"])
    return found


def chains_in_networks(documents: list[dict], chains: list[list]) -> list[list]:
    """The chains, with their times in these documents where no other chain looks the same from outside."""
    def outside(kernel: str, keys: list[str]) -> tuple:
        extents = [tuple(map(int, text.split()[1].split("x"))) for text in
                   (keys[0].split("; ")[1].split(" -> ")[0].split(", ")[0], keys[-1].split("; ")[1].split(" -> ")[1])]
        return (kernel, keys[0].split("{")[0], len(keys), *extents)

    found = collections.defaultdict(list)
    for step, _ in steps_of(documents):
        found[step["kernel"], step["type"], len(step["nodes"]), tuple(step["input"]), tuple(step["output"])].append(step["us"])
    alike = collections.Counter(outside(kernel, keys) for kernel, keys, *_ in chains)

    def time_of(kernel: str, keys: list[str], us: float) -> float:
        of = outside(kernel, keys)
        return float(f"{statistics.median(found[of]):.3g}") if alike[of] == 1 and of in found else us

    return [[kernel, keys, sources, time_of(kernel, keys, us)] for kernel, keys, sources, us in chains]


def likely_kernels(document: dict) -> dict[str, list[str]]:
    chained = collections.defaultdict(set)
    for kernel, keys, *_ in document["chains"]:
        for key in keys:
            chained[key].add(kernel)
    found = {}
    for name, network in document["networks"].items():
        kernels = set()
        for index in network["layers"]:
            key, times = document["layers"][int(index)]
            kernels |= chained[key]
            alone = {kernel: us for kernel, us in times.items() if recorded.is_choice(kernel)}
            kernels |= {kernel.split()[0] for kernel, us in alone.items() if us <= 1.2 * min(alone.values())}
        found[name] = sorted(kernels)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", nargs="*", type=pathlib.Path)
    parser.add_argument("--onto", type=pathlib.Path, metavar="FILE.json.xz", help="a packed file [none: begin with nothing]")
    parser.add_argument("--out", type=pathlib.Path, default=recorded.FILE)
    parser.add_argument("--likely", type=pathlib.Path, metavar="FILE.json", help="write the likely kernels of --onto or the packed file")
    a = parser.parse_args()
    if a.likely:
        a.likely.write_text(json.dumps(likely_kernels(recorded.load(a.onto or recorded.FILE))), encoding="utf-8")
        return 0
    if not a.recorded:
        parser.error("recordings are needed")
    documents = [read(path) for path in a.recorded]
    before = recorded.load(a.onto) if a.onto else {"layers": [], "networks": {}, "chains": recorded.load()["chains"]}
    layers: dict[str, dict[str, float]] = {}
    for document in documents:
        for key, times in document["layers"].items():
            of = layers.setdefault(key, {})
            for kernel, us in times.items():
                of[kernel] = min(float(f"{us:.3g}"), of.get(kernel, math.inf))
    layers = dict(before["layers"]) | layers
    keys_by_shape = collections.defaultdict(list)
    for key in layers:
        if not key.endswith("; then average") and (shape := shape_of(key)) is not None:
            keys_by_shape[shape].append(key)
    for (key, kernel), times in times_in_networks(documents, keys_by_shape).items():
        alone = layers.get(key.removesuffix("; then average"), {})
        if (first := next((name for name in alone if name.split()[0] == kernel), None)) is not None:
            layers.setdefault(key, {})[first.removesuffix(recorded.IN_NETWORK) + recorded.IN_NETWORK] = float(f"{statistics.median(times):.3g}")
    keys = sorted(layers)
    index = {key: i for i, key in enumerate(keys)}
    old = [key for key, _ in before["layers"]]
    networks = {name: network | {"layers": {index[old[int(i)]]: n for i, n in network["layers"].items()}}
                for name, network in before["networks"].items()}
    nameless = 0
    for row in (row for document in documents for row in document["networks"]):
        name = f"{row['model']} {row['precision']} {row['batch']}"
        if row.get("layers"):
            networks[name] = {"layers": {index[key]: 1 for key in row["layers"]}, "not_recorded": 0}
        else:
            nameless += 1
    machines = [row["machine"] for document in documents for row in document["networks"] if "machine" in row]
    machine = ", and ".join(dict.fromkeys([*(before["machine"].split(", and ") if a.onto else []), *machines])) or "unknown"
    packed = {"machine": machine, "date": max(document["date"] for document in documents),
              "made_by": "tests/gpu/record_layers.py, tests/cuda/cost/pack_layers.py",
              "layers": [[key, layers[key]] for key in keys], "networks": networks, "chains": chains_in_networks(documents, before["chains"])}
    data = lzma.compress(json.dumps(packed, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    a.out.write_bytes(data)
    print(f"{a.out}: {len(keys)} layers, {len(networks)} networks; {nameless} without their layers; {len(data) / 1e3:.0f} kB",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
