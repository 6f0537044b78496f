#!/usr/bin/env python3
"""Fits the constants of the GPU kernels to recorded layers and writes layers/cuda/cost/h100.cpp. Needs NumPy.

    fit_costs.py PRINT_ESTIMATES [RECORDED.json.xz] [--out FILE.cpp]

PRINT_ESTIMATES is the test program of that name, from a build without CUDA. A kernel's time is a sum of its factors
(layers/cuda/cost/launch_cost.h) with constants of at least 0. They minimize the squares of log(estimated / recorded), by
a damped Gauss-Newton method on the constants' logarithms. Then they are scaled so that the mean of recorded / estimated is
1, and by half of the relative error more: the least of several estimates is most likely one that is too low, the more so
the less they are worth. Kernels of which few layers were recorded have the constants of one like them, scaled.
"""

from __future__ import annotations

import argparse
import collections
import math
import pathlib
import sys

import numpy as np
import recorded

FACTORS = 13
FEW, TOO_FEW = 60, 15  # layers; with less than the first, constants say nothing of larger layers
IN_NETWORKS = 3  # what a time in networks counts for, in times alone: beside other layers kernels take longer or less
# Of groups no library kernel but those of 4 to 32 channels was recorded: five times as long as these, as measured of
# 24 groups of 96 to 1008 channels before. Kernels that stream their operands were recorded in
# networks, and of Gemm 36 layers.
MEGABYTES = 6
ASSUMED = {"streaming": {0: 1.8, MEGABYTES: 0.4}, "skinny_gemm": {0: 1.2, MEGABYTES: 0.12, 11: 600}, "cublaslt": {0: 3.0, MEGABYTES: 0.35}}
LIKE = {"cudnn f16 groups": ("cudnn f16 groups of 4 to 32", 5), "cudnn f32 groups": ("cudnn f32 groups of 4 to 32", 5),
        "im2col_gemm f16 groups": ("im2col_gemm f16 groups of 4 to 32", 1), "im2col_gemm f32 groups": ("im2col_gemm f32 groups of 4 to 32", 1)}
# cuDNN has no ready kernel for results that are bounded from above: 1x1 layers took 10 to 260 times as long.
BOUNDED = 20


def scaled(constants: np.ndarray, factors: np.ndarray, times: np.ndarray) -> np.ndarray:
    constants = constants * np.mean(times / (factors @ constants))
    error = math.sqrt(np.mean(np.log(factors @ constants / times) ** 2))
    return constants * math.exp(0.5 * error)


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


def rows_of(estimated: list, times: list[dict[str, float]]) -> dict[str, list]:
    """By kernel (factors, microseconds)."""
    rows = collections.defaultdict(list)
    for candidates, recorded_times in zip(estimated, times):
        for candidate, variants in candidates:
            named = variants[1:] or variants  # the first is one of them
            for variant, kernel, _, factors in named:
                if (us := recorded.time_of(recorded_times, candidate, variant)) is not None:
                    rows[kernel].append((factors, us))
            _, kernel, _, factors = variants[0]
            if (us := recorded.time_in_networks(recorded_times, candidate)) is not None:
                rows[kernel] += IN_NETWORKS * [(factors, us)]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("print_estimates")
    parser.add_argument("recorded", nargs="?", type=pathlib.Path, default=recorded.FILE)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("layers/cuda/cost/h100.cpp"))
    a = parser.parse_args()
    document = recorded.load(a.recorded)
    layers = [(key, times) for key, times in document["layers"] if recorded.described(key)]
    rows = rows_of(recorded.estimates(a.print_estimates, [key for key, _ in layers]), [times for _, times in layers])
    constants = {}
    for kernel, kernel_rows in sorted(rows.items()):  # so that "stem f16 4x8" comes before "stem f16 4x8 f32"
        factors, times = (np.array(column, float) for column in zip(*kernel_rows))
        like = constants.get(kernel.rpartition(" ")[0])
        if len(times) >= (FEW if like is not None else TOO_FEW):
            constants[kernel] = fit(factors, times)
        elif like is not None:
            constants[kernel] = scaled(like, factors, times)
        else:
            sys.exit(f"fit_costs.py: {len(times)} layers of {kernel} are too few, and no kernel is like it")
        error = np.log(factors @ constants[kernel] / times)
        print(f"{kernel:36} {len(times):5} layers, error {math.sqrt(np.mean(error ** 2)):.1%}", file=sys.stderr)
    for kernel, (other, ratio) in LIKE.items():
        constants.setdefault(kernel, constants[other] * ratio)
    for kernel in [name for name in constants if name.startswith(("cudnn f16", "cudnn f32"))]:
        if not kernel.endswith(" bounded"):
            constants.setdefault(f"{kernel} bounded", constants[kernel] * BOUNDED)
    for kernel, values in ASSUMED.items():
        constants[kernel] = np.array([values.get(i, 0) for i in range(FACTORS)])
    lines = [f"    {{\"{kernel}\",\n     {{{', '.join(f'{v:.3g}' for v in values)}}}}},"
             for kernel, values in sorted(constants.items())]
    a.out.write_text(f"""// Made by tests/cuda/cost/fit_costs.py from layers that were timed on {document['date']}
// ({document['machine']}). Do not edit.
#include "layers/cuda/cost/card_constants.h"

namespace pipit::internal::cuda {{

namespace {{

// clang-format off
constexpr KernelConstants kH100[] = {{
{chr(10).join(lines)}
}};
// clang-format on

}}  // namespace

std::span<const KernelConstants> card_constants() {{
  return kH100;
}}

}}  // namespace pipit::internal::cuda
""", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
