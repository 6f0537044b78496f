"""Images per second of two Ray actors of one CPU each, beside one process with two threads, in turns; and the CPU time
of decoding and preparing an image, which docs/distributed.md counts with.

Not a test: PYTHONPATH=build/python-package python3 python/tests/bench_ray.py MODEL FOLDER [ROUNDS [COPIES]]
"""

from __future__ import annotations

import logging
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np
import ray

import pipit
import pipit.ray
from support import onnx_model

BATCH = 8
AT_ONCE = 64


class Timed(pipit.ray.Predictor):
    """When each batch began and ended, and the CPU time of the process."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        begin, cpu = time.time(), time.process_time()
        answers = super().__call__(batch)
        rows = len(answers["class"])
        used = np.full(rows, (time.process_time() - cpu) / rows)
        return {**answers, "begin": np.full(rows, begin), "end": np.full(rows, time.time()), "cpu": used}


def by_ray(model: str, dataset: ray.data.Dataset) -> tuple[float, float]:
    """Images per second, from the begin of the first batch to the end of the last one, and CPU ms per image."""
    rows = dataset.map_batches(
        Timed,
        fn_constructor_args=(model,),
        fn_constructor_kwargs={"batch": BATCH, "damaged": "name"},
        compute=ray.data.ActorPoolStrategy(size=2),
        batch_size=AT_ONCE,
        num_cpus=1,
    ).take_all()
    wall = max(row["end"] for row in rows) - min(row["begin"] for row in rows)
    return len(rows) / wall, 1e3 * statistics.fmean(row["cpu"] for row in rows)


def alone(classifier: pipit.Classifier, files: list[bytes]) -> tuple[float, float]:
    begin, cpu = time.time(), time.process_time()
    for start in range(0, len(files), AT_ONCE):
        classifier(files[start : start + AT_ONCE], top=1)
    return len(files) / (time.time() - begin), 1e3 * (time.process_time() - cpu) / len(files)


def decoding(files: list[bytes], side: int, resize: int) -> float:
    """CPU ms per image of a classifier that does next to nothing else."""
    nodes = [onnx_model.node("GlobalAveragePool", ["x"], "mean"), onnx_model.node("Flatten", ["mean"], "y")]
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        pathlib.Path(file.name).write_bytes(onnx_model.model((BATCH, 3, side, side), nodes))
        classifier = pipit.Classifier(file.name, threads=1, preset="torchvision", resize=resize, crop=side)
    return min(alone(classifier, files)[1] for _ in range(3))


def main() -> None:
    logging.getLogger("pipit").addHandler(logging.NullHandler())
    model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    copies = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    files = [path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()]
    classifier = pipit.Classifier(model, threads=2, batch=BATCH)
    side = classifier._native.model.inputs[0].shape[-1]
    mean = sum(map(len, files)) / len(files)
    print(f"{len(files)} files of {mean / 1e3:.1f} KB; decoding and preparing for {side}x{side}: ", end="")
    print(f"{decoding(files, side, max(side, 256 * side // 224)):.3f} CPU ms per image", flush=True)
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    files = files * copies
    dataset = ray.data.from_items([{"bytes": file} for file in files], override_num_blocks=8).materialize()
    alone(classifier, files[:AT_ONCE])
    ratios = []
    for _ in range(rounds):
        (one, one_cpu), (two, two_cpu) = alone(classifier, files), by_ray(model, dataset)
        ratios.append(two / one)
        print(f"one process {one:8.1f} images/s, {one_cpu:6.2f} CPU ms/image", end="; ")
        print(f"Ray {two:8.1f} images/s, {two_cpu:6.2f} CPU ms/image; ratio {two / one:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
