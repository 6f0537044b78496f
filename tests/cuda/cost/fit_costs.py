#!/usr/bin/env python3
"""Fits the constants of the GPU kernels to recorded layers and writes layers/cuda/cost/hopper.cpp. Needs NumPy.

    fit_costs.py PRINT_ESTIMATES [RECORDED.json.xz] [--out FILE.cpp]

PRINT_ESTIMATES is the test program of that name, from a build without CUDA. A kernel's time is a sum of its factors
(layers/cuda/cost/launch_cost.h) with constants of at least 0.

First each kernel by itself: its constants minimize the squares of log(estimated / recorded), by a damped Gauss-Newton
method on the constants' logarithms, and are scaled so that the mean of recorded / estimated is 1. Kernels of which few
layers were recorded have the constants of one like them, scaled. Then those of all kernels of single layers together:
what counts is that the least estimate of a layer's variants is that of one that takes little longer than the fastest.
So they go down the gradient of two sums: of the networks' losses, where each variant is chosen with a probability that
falls with its estimate, and of the squares of each kernel's errors. Chains of layers have few records, which count once
for each layer, and six constants: start, steps, rounds and blocks times steps, megabytes, megabytes read again.
"""

from __future__ import annotations

import argparse
import collections
import math
import pathlib
import sys
import textwrap

import numpy as np
import recorded

FACTORS = 13
FEW, TOO_FEW = 60, 15  # layers; with less than the first, constants say nothing of larger layers
IN_NETWORKS = 3  # what a time in networks counts for, in times that are derived from a time alone
# Of groups no library kernel but those of 4 to 32 channels was recorded: five times as long as these, as measured of
# 24 groups of 96 to 1008 channels before. Kernels that stream their operands were recorded in
# networks, and of Gemm 36 layers.
MEGABYTES = 6
OF_CHAINS = [0, 1, 3, 5, MEGABYTES, 9]
ROUNDS_OF_TRAINING, LOSS, ERROR = 600, 800.0, 2.5
HOT, COLD, RATE = 0.2, 0.03, 0.05
SLOW_TO_MAKE = 1.1  # engine/plan/candidate_order.cpp
# A global average of 112 x 112 positions took "windows" 0.135 us a tap.
ASSUMED = {"streaming": {0: 1.8, MEGABYTES: 0.4}, "windows": {0: 1.8, 1: 0.135, MEGABYTES: 0.4},
           "skinny_gemm": {0: 1.2, MEGABYTES: 0.12, 11: 600},
           # By count: 4 MB a microsecond, instructions of a step, and reads of x from the second cache.
           "packed_gemm": {0: 1.8, 1: 0.003, 3: 0.015, MEGABYTES: 0.25, 9: 0.2},
           "packed_gemm many": {0: 1.8, 2: 1.5, 3: 0.045, MEGABYTES: 0.4, 9: 0.2},
           # A product like those of "im2col_gemm f16 1x1", and beside it a launch bound by memory.
           "unpacked_gemm": {0: 1.89, 2: 0.813, 3: 0.0668, 4: 0.765, MEGABYTES: 0.147, 9: 0.23, 10: 1.96, 11: 1.11},
           "unpacked_gemm odd": {0: 2.58, 1: 0.151, 4: 0.836, MEGABYTES: 0.307, 9: 0.23, 10: 1.95, 11: 1.55},
           "cublaslt": {0: 3.0, MEGABYTES: 0.35}}
LIKE = {"cudnn f16 groups": ("cudnn f16 groups of 4 to 32", 5), "cudnn f32 groups": ("cudnn f32 groups of 4 to 32", 5),
        "im2col_gemm f16 groups": ("im2col_gemm f16 groups of 4 to 32", 1), "im2col_gemm f32 groups": ("im2col_gemm f32 groups of 4 to 32", 1)}
# cuDNN has no ready kernel for results that are bounded from above: 1x1 layers took 10 to 260 times as long.
BOUNDED = 20


def scaled(constants: np.ndarray, factors: np.ndarray, times: np.ndarray) -> np.ndarray:
    return constants * np.mean(times / (factors @ constants))


def fit(factors: np.ndarray, times: np.ndarray) -> np.ndarray:
    used: list[int] = []
    for j in range(factors.shape[1]):
        column = factors[:, j]
        if column.any() and not any(np.allclose(column * factors[0, i], factors[:, i] * column[0]) for i in used if column[0]):
            used.append(j)
    scale = factors[:, used].max(0)
    x = factors[:, used] / scale
    relative = x / times[:, None]
    w = np.full(len(used), 0.1 * times.mean())
    gram, right = relative.T @ relative, relative.T @ np.ones(len(times))
    for _ in range(3000):  # non-negative least squares of the relative errors: where to begin
        w *= right / np.maximum(gram @ w, 1e-12)
    u, damping = np.log(np.maximum(w, 1e-7)), 1e-2
    residual = np.log(x @ np.exp(u)) - np.log(times)
    for _ in range(400):
        w = np.exp(u)
        jacobian = x * w / (x @ w)[:, None]
        hessian = jacobian.T @ jacobian
        step = -np.linalg.solve(hessian + damping * (np.diag(np.diag(hessian)) + 1e-6 * np.eye(len(u))), jacobian.T @ residual)
        moved = np.maximum(u + np.clip(step, -2, 2), -25)
        now = np.log(x @ np.exp(moved)) - np.log(times)
        if now @ now < residual @ residual:
            finished = residual @ residual - now @ now < 1e-9 * (residual @ residual)
            u, residual, damping = moved, now, max(damping / 3, 1e-9)
            if finished:
                break
        elif damping < 1e9:
            damping *= 4
        else:
            break
    constants = np.zeros(factors.shape[1])
    constants[used] = np.exp(u) / scale
    constants[constants < 1e-6] = 0
    return scaled(constants, factors, times)


def is_fitted(key: str) -> bool:
    """With a fused average the variant that ran is not recorded."""
    return recorded.described(key) is not None and not key.endswith("; then average")


def rows_of(estimated: list, times: list[dict[str, float]]) -> dict[str, list]:
    """By kernel (factors, microseconds). Where too few layers were timed alone, those in networks count, too."""
    rows, only_there = collections.defaultdict(list), collections.defaultdict(list)
    for candidates, recorded_times in zip(estimated, times):
        for candidate, variants in candidates:
            named = variants[1:] or variants  # the first is one of them
            for variant, kernel, _, factors in named:
                there = recorded.time_in_networks(recorded_times, candidate, variant)
                if (us := recorded.time_of(recorded_times, candidate, variant)) is not None:
                    rows[kernel] += (1 if there is None else IN_NETWORKS) * [(factors, us)]
                elif there is not None:
                    only_there[kernel].append((factors, there))
    return {kernel: rows[kernel] + (only_there[kernel] if len(rows[kernel]) < TOO_FEW else [])
            for kernel in rows.keys() | only_there.keys()}


class Choices:
    """What the layers are chosen from: variants with their factors and times, as arrays."""

    def __init__(self, kernels: list[str], estimated: list, times: list[dict[str, float]]):
        index = {kernel: i for i, kernel in enumerate(kernels)}
        found = []
        for layer, (candidates, recorded_times) in enumerate(zip(estimated, times)):
            for candidate, variants in candidates:
                of = [(variant, index[kernel], factors, recorded.time_of(recorded_times, candidate, variant))
                      for variant, kernel, _, factors in variants[1:] or variants if kernel in index]
                slowest = max((us for *_, us in of if us), default=None)
                if slowest is None:
                    continue
                made = SLOW_TO_MAKE if candidate == "cudnn" and recorded.is_int8(candidates) else 1.0
                # What was not timed was not worth it.
                found += [(layer, kernel, factors, us or slowest, us is not None, made) for _, kernel, factors, us in of]
        layer, kernel, factors, us, timed, made = zip(*found)
        self.layer, self.kernel, self.factors = np.array(layer), np.array(kernel), np.array(factors, float)
        self.us, self.timed, self.made = np.array(us), np.array(timed), np.log(made)
        self.fastest = np.full(len(times), np.inf)
        np.minimum.at(self.fastest, self.layer[self.timed], self.us[self.timed])

    def shares(self, networks: dict, positions: dict[int, int]) -> np.ndarray:
        """Of every layer in the time of a network, in the mean of the networks of a precision and batch."""
        shares = np.zeros(len(self.fastest))
        groups = collections.defaultdict(list)
        for name, network in networks.items():
            groups[tuple(name.split()[1:])].append(network)
        for group in groups.values():
            for network in group:
                layers = [(positions[int(i)], n) for i, n in network["layers"].items()
                          if int(i) in positions and np.isfinite(self.fastest[positions[int(i)]])]
                total = sum(self.fastest[at] * n for at, n in layers)
                for at, n in layers:
                    shares[at] += self.fastest[at] * n / total / len(group)
        return shares


def train(constants: np.ndarray, own: np.ndarray, choices: Choices, shares: np.ndarray, others: tuple) -> np.ndarray:
    """own: kernels with constants of their own; others have one factor each. others: (kernels, factors, microseconds)
    in networks, which count as errors only."""
    live = constants > 0
    u = np.where(live, np.log(np.maximum(constants, 1e-12)), -40.0)
    first, second = np.zeros_like(u), np.zeros_like(u)
    kernels, factors, times = others
    counts = np.bincount(choices.kernel[choices.timed], minlength=len(u)) + IN_NETWORKS * np.bincount(kernels, minlength=len(u))
    weight = ERROR / np.sqrt(np.maximum(counts, 1))
    slower = choices.us / choices.fastest[choices.layer]
    for step in range(ROUNDS_OF_TRAINING):
        part = step / ROUNDS_OF_TRAINING
        heat = HOT * (COLD / HOT) ** part
        w = np.where(live, np.exp(u), 0.0)
        terms = choices.factors * w[choices.kernel]
        estimated = terms.sum(1)
        log = np.log(estimated)
        z = -(log + choices.made) / heat
        most = np.full(len(shares), -np.inf)
        np.maximum.at(most, choices.layer, z)
        p = np.exp(z - most[choices.layer])
        total = np.zeros(len(shares))
        np.add.at(total, choices.layer, p)
        p /= total[choices.layer]
        mean = np.zeros(len(shares))
        np.add.at(mean, choices.layer, p * slower)
        gradient = LOSS * shares[choices.layer] * p * (mean[choices.layer] - slower) / heat
        gradient = gradient + np.where(choices.timed, 2 * (log - np.log(choices.us)) * weight[choices.kernel], 0)
        g = np.zeros_like(u)
        np.add.at(g, choices.kernel, gradient[:, None] * terms / estimated[:, None])
        terms = factors * w[kernels]
        estimated = terms.sum(1)
        gradient = 2 * IN_NETWORKS * np.log(estimated / times) * weight[kernels]
        np.add.at(g, kernels, gradient[:, None] * terms / estimated[:, None])
        g[~own] = g[~own].sum(1, keepdims=True) / np.maximum(live[~own].sum(1, keepdims=True), 1)
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        moved = first / (1 - 0.9 ** (step + 1)) / (np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-3)
        u -= np.where(live, RATE * (1 - 0.9 * part) * moved, 0)
    w = np.where(live, np.exp(u), 0.0)
    w[w < 1e-6] = 0
    return w


def least_over_recorded(choices: Choices, shares: np.ndarray, constants: np.ndarray) -> float:
    """The mean of the chosen variants' estimates over their times: the least of many estimates is too low."""
    estimated = (choices.factors * constants[choices.kernel]).sum(1) * np.exp(choices.made)
    chosen: dict[int, int] = {}
    for row, layer in enumerate(choices.layer):
        if layer not in chosen or estimated[row] < estimated[chosen[layer]]:
            chosen[layer] = row
    of = [(shares[layer], np.log(estimated[row] / choices.us[row])) for layer, row in chosen.items() if choices.timed[row]]
    weights, logs = np.array(of).T
    return float(np.exp(np.average(logs, weights=weights)))


def fit_averages(program: str, layers: list, constants: dict[str, np.ndarray]) -> None:
    """Of global averages, timed alone."""
    timed = [(line, times["global_average"]) for key, times in layers
             if "global_average" in times and (line := recorded.line_of(key)) is not None]
    rows = collections.defaultdict(list)
    for candidates, (_, us) in zip(recorded.estimates_of_lines(program, [line for line, _ in timed]), timed):
        _, kernel, _, factors = candidates[0][1][0]
        rows[kernel].append((factors, us))
    for kernel, of in sorted(rows.items()):
        factors, times = (np.array(column, float) for column in zip(*of))
        constants[kernel] = fit(factors, times)
        report(kernel, factors, times, constants[kernel])


def fit_chains(program: str, chains: list, constants: dict[str, np.ndarray], scale: float) -> None:
    rows = collections.defaultdict(list)
    estimated = recorded.chain_estimates(program, [chain[:3] for chain in chains])
    for (name, keys, _, us), (together, _) in zip(chains, estimated):
        if together is None:
            sys.exit(f"fit_costs.py: {name} takes a chain no longer that was recorded")
        rows[together[1]] += len(keys) * [(together[3], us)]
    for kernel, of in sorted(rows.items()):
        factors, times = (np.array(column, float) for column in zip(*of))
        kept = np.zeros_like(factors)
        kept[:, OF_CHAINS] = factors[:, OF_CHAINS]
        constants[kernel] = fit(kept, times)
        report(kernel, kept, times, constants[kernel])
        constants[kernel] *= scale  # as low as the estimates that they are compared with


def card_lines(machines: str) -> str:
    return "\n".join(f"// {line}" for line in textwrap.wrap(f"({machines})", 110))


def report(kernel: str, factors: np.ndarray, times: np.ndarray, constants: np.ndarray) -> None:
    error = np.log(factors @ constants / times)
    print(f"{kernel:36} {len(times):5} records, error {math.sqrt(np.mean(error ** 2)):.1%}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("print_estimates")
    parser.add_argument("recorded", nargs="?", type=pathlib.Path, default=recorded.FILE)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("layers/cuda/cost/hopper.cpp"))
    a = parser.parse_args()
    document = recorded.load(a.recorded)
    layers = [(key, times) for key, times in recorded.as_in_networks(document) if is_fitted(key)]
    estimated = recorded.estimates(a.print_estimates, [key for key, _ in layers])
    times = [times for _, times in layers]
    rows = rows_of(estimated, times)
    constants, own = {}, []
    for kernel, kernel_rows in sorted(rows.items()):  # so that "stem f16 4x8" comes before "stem f16 4x8 f32"
        factors, of = (np.array(column, float) for column in zip(*kernel_rows))
        like = constants.get(kernel.rpartition(" ")[0])
        if len(of) >= (FEW if like is not None else TOO_FEW):
            constants[kernel] = fit(factors, of)
            own.append(kernel)
        elif like is not None:
            constants[kernel] = scaled(like, factors, of)
        else:
            sys.exit(f"fit_costs.py: {len(of)} layers of {kernel} are too few, and no kernel is like it")
    names = list(constants)
    choices = Choices(names, estimated, times)
    indices = [i for i, (key, _) in enumerate(document["layers"]) if is_fitted(key)]
    shares = choices.shares(document["networks"], {i: at for at, i in enumerate(indices)})
    in_networks = [(names.index(kernel), factors, us) for candidates, of in zip(estimated, times)
                   for candidate, variants in candidates for variant, kernel, _, factors in variants[1:] or variants
                   if (us := recorded.time_in_networks(of, candidate, variant)) is not None and kernel in constants
                   and recorded.time_of(of, candidate, variant) is not None]
    kernels, factors, of = zip(*in_networks)
    trained = train(np.array([constants[name] for name in names]), np.isin(names, own), choices, shares,
                    (np.array(kernels), np.array(factors, float), np.array(of)))
    for name, values in zip(names, trained):
        constants[name] = values
        report(name, *(np.array(column, float) for column in zip(*rows[name])), values)
    for kernel, (other, ratio) in LIKE.items():
        constants.setdefault(kernel, constants[other] * ratio)
    for kernel in [name for name in constants if name.startswith(("cudnn f16", "cudnn f32"))]:
        if not kernel.endswith(" bounded"):
            constants.setdefault(f"{kernel} bounded", constants[kernel] * BOUNDED)
    for kernel, values in ASSUMED.items():
        constants[kernel] = np.array([values.get(i, 0) for i in range(FACTORS)])
    fit_averages(a.print_estimates, document["layers"], constants)
    scale = least_over_recorded(choices, shares, trained)
    print(f"least estimates over times: {scale:.3f}", file=sys.stderr)
    fit_chains(a.print_estimates, document["chains"], constants, scale)
    lines = [f"    {{\"{kernel}\",\n     {{{', '.join(f'{v:.3g}' for v in values)}}}}},"
             for kernel, values in sorted(constants.items())]
    a.out.write_text(f"""// Made by tests/cuda/cost/fit_costs.py from layers that were timed on {document['date']}
{card_lines(document['machine'])}. Do not edit.
#include "layers/cuda/cost/launch_cost.h"

namespace pipit::internal::cuda {{

namespace {{

// clang-format off
constexpr KernelConstants kHopper[] = {{
{chr(10).join(lines)}
}};
// clang-format on

}}  // namespace

std::span<const KernelConstants> card_constants() {{
  return kHopper;
}}

}}  // namespace pipit::internal::cuda
""", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
