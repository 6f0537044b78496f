"""Layers whose kernels were timed on a GPU (h100-layers.json.xz), and what their candidates estimate today.

The file: "layers": [key, {"KERNEL VARIANT": microseconds}], where a key is engine/plan/tuner.h's node_key(), and
"KERNEL in its network" is its time in networks, in the variant that it chooses itself; "; then average" after a key: the
global average that follows is fused. "networks": {"NAME PRECISION BATCH": {"layers": {index of a layer: how often}, "not_recorded": convolutions}}. "chains":
[kernel, keys of its layers, of each layer where its inputs come from, microseconds in networks]; an input is "n0" of the
chain's first layer, "i0" the first input of that, "o0" another value, "-" a constant.
"""

from __future__ import annotations

import collections
import json
import lzma
import pathlib
import re
import statistics
import subprocess

FILE = pathlib.Path(__file__).with_name("h100-layers.json.xz")


def load(path: pathlib.Path = FILE) -> dict:
    return json.loads(lzma.open(path).read())


def kinds_of(key: str, name: str) -> list[tuple]:
    """What a kernel's time in networks over its time alone depends on, the finest first."""
    operands = key.split("; ")[1].split(" -> ")[0].split(", ")
    kind = (name.split()[0], key.startswith("QConv{"))
    if not key.startswith(("Conv{", "QConv{")):
        return [kind]
    alone = operands[0].split()[1].startswith("1x")
    return [(*kind, alone, " ".join(key.split("[")[1].split()[:2]) == "1 1", len(operands) > 3), (*kind, alone), kind]


def as_in_networks(document: dict) -> list[list]:
    """The layers, with the times of kernels alone as they are in networks: times what networks took over what was taken
    alone. Where a layer was not recorded in networks with a candidate, this is the median over its layers of the same
    kind. Alone a kernel is its own neighbour, and what its launch overlaps with is not what it is in a network."""
    found, own = collections.defaultdict(list), {}
    for key, times in document["layers"]:
        first: dict[str, float] = {}  # the variant that networks run is the first that was timed
        for name, us in times.items():
            if is_choice(name):
                first.setdefault(name.split()[0], us)
        for name, us in times.items():
            if name.endswith(" in its network") and name.split()[0] in first:
                own[key, name.split()[0]] = us / first[name.split()[0]]
                for kind in kinds_of(key, name):
                    found[kind].append(us / first[name.split()[0]])
    ratios = {kind: statistics.median(values) for kind, values in found.items() if len(values) >= 10}

    def ratio(key: str, name: str) -> float:
        of_kinds = (ratios[kind] for kind in kinds_of(key, name) if kind in ratios)
        return own.get((key, name.split()[0]), next(of_kinds, 1.0))

    return [[key, {name: us * (ratio(key, name) if is_choice(name) else 1) for name, us in times.items()}]
            for key, times in document["layers"]]


def described(key: str) -> str | None:
    """The line that print_estimates reads; None where the layer is no convolution."""
    if not key.startswith(("Conv{", "QConv{")):
        return None
    return line_of(key)


def line_of(key: str) -> str | None:
    """The same of any layer that a chain may hold."""
    body, rest = key.split("; ", 1)
    rest, average = rest.removesuffix("; then average"), rest.endswith("; then average")
    operands, precision = rest.rsplit("; ", 1)
    match = re.fullmatch(r"(Conv|QConv|Pool|QAveragePool|Unary|QUnary)(\{.*\})", body)
    if not match:
        return None
    words = re.sub(r"[{}\[\]]", " ", match[2]).split()
    if match[1] in ("Conv", "QConv"):  # window, groups, bounds; of ceil_mode nothing is said
        scales = [word for i in range(3) for word in words[20 + 4 * i:23 + 4 * i]] if match[1] == "QConv" else ["1", "0", "0"] * 3
        words = [*words[:16], *words[17:20], *scales]
    elif match[1] in ("Pool", "QAveragePool"):  # kind, window, global
        words = [*words[:19], *words[23:26], *words[27:30]]
    elif match[1] == "QUnary":
        words = [*words[:6], *words[7:10]]

    def operand(text: str) -> str:
        text = text.strip()
        if text == "-":
            return "-"
        constant = text.startswith("constant ")
        dtype, extents, *layout = text.removeprefix("constant ").split()
        dims = extents.split("x")
        return f"+ {dtype} {layout[0] if layout else 'rows'} {int(constant)} {len(dims)} {' '.join(dims)}"

    inputs, output = operands.split(" -> ")
    operands = [operand(text) for text in inputs.split(",")]
    return " ".join([match[1], *words, precision, str(len(operands)), *operands, operand(output), str(int(average))])


def described_chain(kernel: str, keys: list[str], sources: list[list[str]]) -> str | None:
    """The line of a chain of layers; None where one of them is not described."""
    lines = [line_of(key) for key in keys]
    if None in lines:
        return None
    return " ".join(["chain", kernel, str(len(keys)), *(f"{line} {' '.join(of)}" for line, of in zip(lines, sources))])


def chain_estimates(program: str, chains: list) -> list[list]:
    """For every chain [["", kernel, microseconds or None, factors], [[node, candidate, microseconds], ...]]; the latter
    of the kernels that compute its nodes otherwise."""
    lines = "".join(f"{described_chain(*chain)}\n" for chain in chains)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def estimates(program: str, keys: list[str]) -> list[list]:
    """For every key [[candidate, [[variant, kernel, microseconds or None, factors], ...]], ...] in the order in which
    the candidates are asked; the first variant, "", is the candidate's choice."""
    lines = "".join(f"{described(key)}\n" for key in keys)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_int8(candidates: list) -> bool:
    """Whether what candidates estimate is of a layer in INT8."""
    return any(" i8" in kernel for _, variants in candidates for _, kernel, _, _ in variants)


def time_of(times: dict[str, float], candidate: str, variant: str) -> float | None:
    """What was recorded of a candidate alone: of libraries their first proposal."""
    return times.get(f"{candidate} proposal 0" if candidate in ("cudnn", "im2col_gemm") else f"{candidate} {variant}".strip())


def is_choice(name: str) -> bool:
    """Whether what was timed can be chosen without timing: a kernel alone, of libraries their first proposal."""
    return not name.endswith(" in its network") and ("proposal" not in name or name.endswith("proposal 0"))


def time_in_networks(times: dict[str, float], candidate: str) -> float | None:
    return times.get(f"{candidate} in its network")


def chosen_time(times: dict[str, float], candidate: str, variants: list) -> float | None:
    """Of the variant that the candidate chooses itself: the first one of those that it names."""
    return time_of(times, candidate, variants[1][0] if len(variants) > 1 else "")
