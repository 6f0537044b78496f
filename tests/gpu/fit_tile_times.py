#!/usr/bin/env python3
"""Fits what layers/cuda/conv/conv_tile.cpp takes for the times of the tiles of implicit_gemm.

    fit_tile_times.py [tests/gpu/tile-times.json.xz] [--precision int8] [--seed N]

Minimizes, by random steps from the constants that are compiled in, how much longer the tile that choose_tile() would
take is than the best of those that were timed, and a little of the squared error of the times. Prints the constants in
the order of struct Times, and the loss by batch before and after. Needs NumPy.
"""

import argparse
import json
import lzma
import pathlib
import re

import numpy as np

TILES = [(128, 128), (128, 64), (64, 64), (64, 32)]  # kConvTiles
DEPTH = 64  # kTileDepth
UNTIMED = 0.12  # the assumed loss of a tile that was not timed, as a logarithm
COMPILED = {
    "fp16": [0.465, 0.417, 2.158, 0.005, 0.364, 1.128, 0.239, 0.14, 0.715, 0.158, 0.148, 0.299,
             1.869, 0.187, 0.071, 0.245],
    "int8": [0.137, 0.482, 1.887, 0.564, 0.261, 0.924, 0.273, 0.168, 0.43, 0.347, 0.229, 0.514,
             1.015, 0.486, 0.0, 0.432],
}  # fmt: skip


def ceil_div(a, b):
    return -(-a // b)


def timed_tiles(us):
    """{(tile, splits): us} of implicit_gemm, launches that overlap or not, whichever were timed."""
    found = {}
    for name, time in us.items():
        match = re.fullmatch(r"implicit_gemm (\d+)x(\d+)(?:/(\d+))?(?:\+overlap)?", name)
        if match:
            tile = TILES.index((int(match[1]), int(match[2]))), int(match[3] or 1)
            found[tile] = min(time, found.get(tile, np.inf))
    return found


class Layers:
    """Every tile and splitting that choose_tile() compares, for all layers, as arrays."""

    def __init__(self, layers, precision, processors):
        rows = []
        self.batches = []
        for layer in layers:
            window = re.match(r"(\d+)x(\d+)", layer["geometry"])
            times = timed_tiles(layer["us"])
            channels = layer["input"][0] // (2 if precision == "int8" else 1)  # units of 16 bits
            if layer["precision"] != precision or not window or not times or channels <= 4:
                continue
            depth = channels * int(window[1]) * int(window[2])
            positions = layer["batch"] * layer["output"][1] * layer["output"][2]
            steps = ceil_div(depth, DEPTH)
            for tile, (tile_rows, columns) in enumerate(TILES):
                for splits in (1, 2, 4, 8):
                    if splits > steps:
                        break
                    blocks = ceil_div(positions, tile_rows) * ceil_div(layer["output"][0], columns) * splits
                    rows.append((len(self.batches), tile, splits, ceil_div(steps, splits), ceil_div(blocks, processors),
                                 times.get((tile, splits), np.nan), min(times.values())))  # fmt: skip
            self.batches.append(layer["batch"])
        table = np.array(rows, float)
        self.layer, self.tile = table[:, 0].astype(int), table[:, 1].astype(int)
        self.splits, self.steps, self.busiest, self.time, self.best = table[:, 2:].T
        self.starts = np.searchsorted(self.layer, np.arange(len(self.batches) + 1))
        self.timed = ~np.isnan(self.time)

    def costs(self, p):
        """tile_cost()."""
        lone, busy, block = (p[i:12:3][self.tile] for i in range(3))
        cost = p[12] + np.maximum(lone * self.steps, self.busiest * busy * self.steps) + self.busiest * block
        return cost + np.where(self.splits > 1, p[13] + (p[14] + p[15] * self.busiest) * self.splits, 0)

    def losses(self, costs):
        """Per layer the logarithm of chosen over best."""
        chosen = [a + np.argmin(costs[a:b]) for a, b in zip(self.starts, self.starts[1:])]
        return np.where(self.timed[chosen], np.log(self.time[chosen] / self.best[chosen]), UNTIMED)

    def objective(self, p):
        costs = self.costs(p)
        error = np.abs(np.log(costs[self.timed] / self.time[self.timed]))
        return 0.5 * np.mean(np.minimum(error, 0.5) ** 2) + self.losses(costs).mean()


def fit(layers, start, random, steps=9000):
    best = np.maximum(start, 0.005)
    least = layers.objective(best)
    for step in range(steps):
        changed = best.copy()
        which = random.choice(len(best), random.integers(1, 4), replace=False)
        changed[which] *= np.exp(random.normal(0, 0.2 * 0.5 ** (step * 3 // steps), len(which)))
        objective = layers.objective(changed)
        if objective < least:
            best, least = changed, objective
    return best, least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).with_name("tile-times.json.xz"),
                        help="times of layers, as JSON compressed with xz (default: those of an H200)")
    parser.add_argument("--precision", choices=sorted(COMPILED), default="fp16")
    parser.add_argument("--processors", type=int, default=132, help="multiprocessors of the card (default %(default)s)")
    parser.add_argument("--starts", type=int, default=8, help="the constants, then random ones (default 8)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with lzma.open(arguments.file, "rt", encoding="utf-8") as file:
        layers = Layers(json.load(file)["layers"], arguments.precision, arguments.processors)
    random = np.random.default_rng(arguments.seed)
    compiled = np.array(COMPILED[arguments.precision])
    starts = [compiled] + [compiled * np.exp(random.normal(0, 0.3, 16)) for _ in range(arguments.starts - 1)]
    found, _ = min((fit(layers, start, random) for start in starts), key=lambda result: result[1])
    batches = np.array(layers.batches)
    for name, p in (("compiled in", compiled), ("fitted", found)):
        losses = layers.losses(layers.costs(p))
        by_batch = ", ".join(f"batch {b}: {np.expm1(losses[batches == b].mean()):.1%}" for b in sorted(set(batches)))
        print(f"{name}: {np.expm1(losses.mean()):.1%} over the best of {len(batches)} layers ({by_batch})")
    print(", ".join(f"{value:.3f}" for value in found))


if __name__ == "__main__":
    main()
