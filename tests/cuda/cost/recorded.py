"""Layers whose kernels were timed on a GPU (h100-layers.json.xz), and what their candidates estimate today.

The file: "layers": [key, {"KERNEL VARIANT": microseconds}], where a key is engine/plan/tuner.h's node_key(), and
"KERNEL in its network" is its time in networks, in the variant that it chooses itself; "; then average" after a key: the
global average that follows is fused. "networks": {"NAME PRECISION BATCH": {"layers": {index of a layer: how often}, "not_recorded": convolutions}}.
"""

from __future__ import annotations

import json
import lzma
import pathlib
import re
import subprocess

FILE = pathlib.Path(__file__).with_name("h100-layers.json.xz")


def load(path: pathlib.Path = FILE) -> dict:
    return json.loads(lzma.open(path).read())


def described(key: str) -> str | None:
    """The line that print_estimates reads; None where the layer is no convolution."""
    body, rest = key.split("; ", 1)
    rest, average = rest.removesuffix("; then average"), rest.endswith("; then average")
    operands, precision = rest.rsplit("; ", 1)
    match = re.fullmatch(r"(Conv|QConv)(\{.*\})", body)
    if not match:
        return None
    words = re.sub(r"[{}\[\]]", " ", match[2]).split()
    window, groups, low, high, quantized = words[:16], *words[17:20], words[20:]
    scales = [word for i in range(3) for word in quantized[4 * i:4 * i + 3]] if match[1] == "QConv" else ["1", "0", "0"] * 3

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
    return " ".join([match[1], *window, groups, low, high, *scales, precision, str(len(operands)), *operands, operand(output), str(int(average))])


def estimates(program: str, keys: list[str]) -> list[list]:
    """For every key [[candidate, [[variant, kernel, microseconds or None, factors], ...]], ...] in the order in which
    the candidates are asked; the first variant, "", is the candidate's choice."""
    lines = "".join(f"{described(key)}\n" for key in keys)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def time_of(times: dict[str, float], candidate: str, variant: str) -> float | None:
    """What was recorded of a candidate alone: of libraries their first proposal."""
    return times.get(f"{candidate} proposal 0" if candidate in ("cudnn", "im2col_gemm") else f"{candidate} {variant}".strip())


def time_in_networks(times: dict[str, float], candidate: str) -> float | None:
    return times.get(f"{candidate} in its network")


def chosen_time(times: dict[str, float], candidate: str, variants: list) -> float | None:
    """Of the variant that the candidate chooses itself: the first one of those that it names."""
    return time_of(times, candidate, variants[1][0] if len(variants) > 1 else "")
