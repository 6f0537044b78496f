"""Layers whose kernels were timed on a GPU (hopper-layers.json.xz), and what their candidates estimate today.

The file: "layers": [key, {"KERNEL VARIANT": microseconds}], where a key is engine/plan/tuner.h's node_key(), and
"KERNEL VARIANT in its network" is its time in networks; "; then average" after a key: the global average that follows is
fused. "networks": {"NAME PRECISION BATCH": {"layers": {index of a layer: how often}, "not_recorded": convolutions}}. "chains":
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

IN_NETWORK = " in its network"
FILE = pathlib.Path(__file__).with_name("hopper-layers.json.xz")


def load(path: pathlib.Path = FILE) -> dict:
    return json.loads(lzma.open(path).read())


def tile_of(name: str) -> str:
    """A kernel with its tile, of a recorded name: without what does not change its code."""
    words = name.removesuffix(IN_NETWORK).split()
    if words[0] not in ("implicit_gemm", "pipelined_gemm", "resident_gemm"):
        return words[0]
    return " ".join([words[0], *(word.split("+")[0].split("/")[0] for word in words[1:2])])


def kinds_of(key: str, name: str) -> list[tuple]:
    """What a kernel's time in networks beyond its time alone depends on, the finest first."""
    operands = key.split("; ")[1].split(" -> ")[0].split(", ")
    kinds = [(words, key.startswith("QConv{")) for words in (tile_of(name), name.split()[0])]
    if not key.startswith(("Conv{", "QConv{")):
        return kinds
    alone = operands[0].split()[1].startswith("1x")
    is_1x1 = " ".join(key.split("[")[1].split()[:2]) == "1 1"
    return [of for kind in kinds for of in ((*kind, alone, is_1x1, len(operands) > 3), (*kind, alone), kind)]


def as_in_networks(document: dict) -> list[list]:
    """The layers, with the times of kernels alone as they are in networks: with the median of what layers of the same
    kind took longer there, half and half with the layer's own time there if that was recorded. Alone a kernel is its
    own neighbour: its instructions are in the caches, and its launch overlaps with blocks of its own size."""
    found = collections.defaultdict(list)
    for key, times in document["layers"]:
        for name, us in times.items():
            if name.endswith(IN_NETWORK) and (alone := times.get(name.removesuffix(IN_NETWORK))) is not None:
                for kind in kinds_of(key, name):
                    found[kind].append(us - alone)
    longer = {kind: statistics.median(values) for kind, values in found.items() if len(values) >= 8}

    def as_there(key: str, name: str, us: float, times: dict[str, float]) -> float:
        if not is_choice(name):
            return us
        added = next((longer[kind] for kind in kinds_of(key, name) if kind in longer), 0.0)
        there = times.get(name + IN_NETWORK, us + added)
        return max((there + us + added) / 2, 0.7 * us)  # where a launch overlaps, its part of the time is uncertain

    return [[key, {name: as_there(key, name, us, times) for name, us in times.items()}] for key, times in document["layers"]]


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
    """For every chain [["", kernel, microseconds or None, factors], [[node, candidate, microseconds or None],
    ...]]; the latter of the kernels that compute its nodes otherwise."""
    lines = "".join(f"{described_chain(*chain)}\n" for chain in chains)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def estimates(program: str, keys: list[str]) -> list[list]:
    return estimates_of_lines(program, [described(key) for key in keys])


def estimates_of_lines(program: str, described_layers: list[str]) -> list[list]:
    """For every layer [[candidate, [[variant, kernel, microseconds or None, factors], ...]], ...] in the order in which
    the candidates are asked; the first variant, "", is the candidate's choice."""
    lines = "".join(f"{layer}\n" for layer in described_layers)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_int8(candidates: list) -> bool:
    """Whether what candidates estimate is of a layer in INT8."""
    return any(" i8" in kernel for _, variants in candidates for _, kernel, _, _ in variants)


def name_of(candidate: str, variant: str) -> str:
    """What was recorded of a candidate: of libraries their first proposal."""
    return f"{candidate} proposal 0" if candidate in ("cudnn", "im2col_gemm") else f"{candidate} {variant}".strip()


def time_of(times: dict[str, float], candidate: str, variant: str) -> float | None:
    return times.get(name_of(candidate, variant))


def is_choice(name: str) -> bool:
    """Whether what was timed can be chosen without timing: a kernel alone, of libraries their first proposal."""
    return not name.endswith(IN_NETWORK) and ("proposal" not in name or name.endswith("proposal 0"))


def time_in_networks(times: dict[str, float], candidate: str, variant: str) -> float | None:
    return times.get(name_of(candidate, variant) + IN_NETWORK)
