#!/usr/bin/env python3
"""Records what every kernel takes for every layer of networks on the GPUs of this machine.

    record_layers.py --build FOLDER --out FILE.json [--precision fp16,int8,fp32] [--batch 1,32,128] MODEL.onnx...

For each network, precision and batch, on one of the GPUs (all of them work at once, each on networks of its own):
  - "timed": every candidate and variant of every layer alone, replayed from a CUDA graph (`--autotune`), by the key
    under which the tuner keeps a layer (engine/plan/tuner.h, node_key), in microseconds;
  - "rule": the network with kernels chosen by rule: `graph_ms`, and every step with its kernel, the nodes that it
    computes and its time (medians over --repeats runs of the command);
  - "fused": the same with each fused group of layers of --groups wanted wherever it is possible, of which the steps of
    that kernel are kept;
  - "measured": `graph_ms` with the fastest kernels;
  - "layers": the keys of its layers.
With --forced FILE.json no kernel is timed alone: "forced" kernels, {"NETWORK PRECISION BATCH": [kernel, ...]}, are timed
in the networks instead of --groups (pack_layers.py --likely writes such a file).
INT8 uses scales that `pipit calibrate` finds on random images: times do not depend on their values.

A model that a step cannot take is recorded with the reason. Exits with 4 when nothing could be recorded.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import int8

GROUPS = "pooled_stem,resident_block,row_chain,projected_sum,squeeze_excite"


def steps_of(document: dict, kernel: str | None = None) -> list[dict]:
    return [{"nodes": layer["nodes"], "type": layer["type"], "kernel": layer["kernel"], "variant": layer.get("variant", ""),
             "input": layer["input"], "output": layer["output"], "geometry": layer["geometry"],
             "us": round(1e3 * layer["median_ms"], 3)}
            for layer in document["layers"] if kernel in (None, layer["kernel"])]


def median_of(documents: list[dict]) -> dict:
    """The first document, with the medians of all of `graph_ms` and of every step's time."""
    first = documents[0]
    first["graph_ms"] = statistics.median(document["graph_ms"] for document in documents)
    for layer, *others in zip(first["layers"], *(document["layers"] for document in documents[1:]), strict=True):
        layer["median_ms"] = statistics.median([layer["median_ms"], *(other["median_ms"] for other in others)])
    return first


class Recorder:
    def __init__(self, a: argparse.Namespace, folder: pathlib.Path):
        self.a, self.folder, self.deadline = a, folder, time.monotonic() + a.minutes * 60
        self.locks = {model.stem: threading.Lock() for model in a.models}
        self.plans: dict[str, pathlib.Path | str] = {}
        self.pipit = a.build / "pipit"
        self.environment = dict(os.environ)
        old = self.environment.get("LD_LIBRARY_PATH")
        self.environment["LD_LIBRARY_PATH"] = ":".join([str(a.build), *([old] if old else [])])

    def run(self, gpu: int, *command) -> dict | str:
        """The JSON of a command, or why there is none."""
        left = self.deadline - time.monotonic()
        if left < 2:
            return "the time for all of it was used up"
        environment = self.environment | {"CUDA_VISIBLE_DEVICES": str(gpu)}
        try:
            done = subprocess.run([str(self.pipit), *map(str, command)], env=environment, capture_output=True, text=True,
                                  timeout=min(left, 120), check=False)
        except subprocess.TimeoutExpired:
            return "it took too long"
        if done.returncode:
            return f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        return json.loads(done.stdout) if "--json" in command else {}

    def plan(self, gpu: int, model: pathlib.Path) -> pathlib.Path | str:
        """INT8 scales of a model, calibrated once, or why there are none."""
        with self.locks[model.stem]:
            if model.stem not in self.plans:
                plan = self.folder / f"{model.stem}.plan.json"
                done = self.run(gpu, "calibrate", model, self.folder / "images", "--no-histograms", "--quiet", "--output", plan)
                self.plans[model.stem] = done if isinstance(done, str) else plan
            return self.plans[model.stem]

    def forced(self, name: str, precision: str, batch: int) -> list[str]:
        if self.a.forced is not None:
            return self.a.forced.get(f"{name} {precision} {batch}", [])
        return self.a.groups.split(",") if not self.a.grouped or name in self.a.grouped.split(",") else []

    def network(self, gpu: int, model: pathlib.Path, precision: str, batch: int) -> dict:
        row: dict = {"model": model.stem, "precision": precision, "batch": batch}
        options = []
        if precision == "int8":
            plan = self.plan(gpu, model)
            if isinstance(plan, str):
                return row | {"problem": f"calibrate: {plan}"}
            options = ["--plan", plan]
        cache = self.folder / f"{model.stem}-{precision}-{batch}.tuning.json"
        profile = ["profile", model, "--device", "cuda", "--precision", precision, *options, "--batch", batch, "--json",
                   "--quiet", "--runs", 20, "--warmup", 5]
        rules = []
        for _ in range(self.a.repeats):
            rule = self.run(gpu, *profile)
            if isinstance(rule, str):
                return row | {"problem": rule}
            rules.append(rule)
        rule = median_of(rules)
        row["rule"] = {"graph_ms": rule["graph_ms"], "steps": steps_of(rule)}
        row["machine"] = rule["machine"]
        if self.a.forced is None:
            measured = self.run(gpu, *profile, "--autotune", "--tuning-cache", cache)
            if isinstance(measured, str):
                row["measured"] = {"problem": measured}
            else:
                row["measured"] = {"graph_ms": measured["graph_ms"]}
                row["timed"] = json.loads(cache.read_text(encoding="utf-8"))
        row["fused"] = {}
        for kernel in self.forced(model.stem, precision, batch):
            done = self.run(gpu, *profile, "--kernel", kernel)
            if not isinstance(done, str) and (found := steps_of(done, kernel)):
                row["fused"][kernel] = {"graph_ms": done["graph_ms"], "steps": found}
        return row


def compact(rows: list[dict]) -> tuple[list[dict], dict]:
    """The rows with the keys of their layers instead of their tuning caches, and all of these together:
    {key: {"kernel variant": us}}."""
    layers: dict[str, dict[str, float]] = {}
    for row in rows:
        for device in row.pop("timed", {}).get("devices", {}).values():
            row["layers"] = sorted(device)
            for key, entry in device.items():
                times = layers.setdefault(key, {})
                for timed in entry["timed"]:
                    if "ms" in timed:
                        name = f"{timed['kernel']} {timed['variant']}".strip()
                        us = round(1e3 * timed["ms"], 3)
                        times[name] = min(us, times.get(name, us))
    return rows, layers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="holds pipit and the libraries that it needs")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--precision", default="fp16,int8", help="[fp16,int8]")
    parser.add_argument("--batch", default="1,32,128", help="[1,32,128]")
    parser.add_argument("--groups", default=GROUPS, help="kernels of several layers that are forced [all of Conv]")
    parser.add_argument("--grouped", metavar="NAMES", help="networks for which these are forced, by file name [all]")
    parser.add_argument("--forced", type=lambda path: json.loads(pathlib.Path(path).read_text(encoding="utf-8")), metavar="FILE.json",
                        help="kernels to time in networks; none is timed alone")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each network with kernels chosen by rule, of which the medians are kept [1]")
    parser.add_argument("--gpus", default="0", help="ordinals of the GPUs that work at once, separated by commas [0]")
    parser.add_argument("--minutes", type=float, default=60, help="what is not recorded by then is left out, and named")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "images").mkdir()
        for seed in range(2):
            int8.write_image(folder / "images" / f"{seed}.bmp", seed)
        recorder = Recorder(a, folder)
        free: queue.SimpleQueue[int] = queue.SimpleQueue()
        gpus = [int(gpu) for gpu in a.gpus.split(",")]
        for gpu in gpus:
            free.put(gpu)

        def one(task):
            gpu = free.get()
            try:
                row = recorder.network(gpu, *task)
            except Exception as problem:  # noqa: BLE001: one network must not end the others
                row = {"model": task[0].stem, "precision": task[1], "batch": task[2], "problem": repr(problem)}
            finally:
                free.put(gpu)
            print(row["model"], row["precision"], row["batch"], row.get("problem", f"{row.get('rule', {}).get('graph_ms')} ms"),
                  file=sys.stderr, flush=True)
            return row

        tasks = [(model, precision, int(batch)) for batch in a.batch.split(",") for precision in a.precision.split(",")
                 for model in a.models]
        with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
            rows, layers = compact(list(pool.map(one, tasks)))
    document = {"date": datetime.date.today().isoformat(), "networks": rows, "layers": layers}
    temporary_file = a.out.with_suffix(".tmp")
    temporary_file.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    temporary_file.replace(a.out)
    return 0 if layers or any("rule" in row for row in rows) else 4


if __name__ == "__main__":
    sys.exit(main())
