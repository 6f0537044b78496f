#!/usr/bin/env python3
"""Measures what each GPU kernel is worth: how much longer a network takes without it.

    removals.py --build FOLDER --out FILE.json [--precision fp16,int8] [--batch 1,32,128] MODEL.onnx...

Each network is timed as it is (`pipit profile`), and without each of the kernels that it uses, one at a time
(`--kernel no-NAME`), in turns on one GPU: as it is, without one, without another, as it is, ... All GPUs of --gpus work
at once, each on networks of its own. "worth" is the median time without the kernel over the median time with it. INT8
uses scales that `pipit calibrate` finds on random images: times do not depend on their values.

    removals.py --table FILE.json    prints the networks in which each kernel is worth most

Exits with 4 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import json
import pathlib
import queue
import statistics
import sys
import tempfile

import int8
from record_layers import Recorder

# The last candidate of its layer, and libraries: they are there for what others refuse.
ALWAYS = {"reference", "cudnn", "cublaslt", "im2col_gemm"}


class Removals(Recorder):
    def measure(self, gpu: int, model: pathlib.Path, precision: str, batch: int) -> dict:
        row: dict = {"model": model.stem, "precision": precision, "batch": batch}
        options = []
        if precision == "int8":
            plan = self.plan(gpu, model)
            if isinstance(plan, str):
                return row | {"problem": f"calibrate: {plan}"}
            options = ["--plan", plan]
        profile = ["profile", model, "--device", "cuda", "--precision", precision, *options, "--batch", batch, "--json",
                   "--quiet", "--runs", 20, "--warmup", 5]
        first = self.run(gpu, *profile)
        if isinstance(first, str):
            return row | {"problem": first}
        row["machine"] = first["machine"]
        times = [first["graph_ms"]]
        used = collections.Counter(layer["kernel"] for layer in first["layers"])
        wanted = set(self.a.kernels.split(",")) if self.a.kernels else set(used) - ALWAYS
        row["kernels"] = {kernel: {"steps": used[kernel], "ms": []} for kernel in sorted(set(used) & wanted)}
        for _ in range(self.a.turns):
            for n, (kernel, entry) in enumerate(row["kernels"].items()):
                if "problem" in entry:
                    continue
                done = self.run(gpu, *profile, "--kernel", f"no-{kernel}")
                if isinstance(done, str):
                    entry["problem"] = done
                    continue
                entry["ms"].append(round(done["graph_ms"], 5))
                if n % 2 == 1 and not isinstance(again := self.run(gpu, *profile), str):
                    times.append(again["graph_ms"])
        row["ms"] = [round(ms, 5) for ms in times]
        for entry in row["kernels"].values():
            if entry["ms"]:
                entry["worth"] = round(statistics.median(entry["ms"]) / statistics.median(times), 4)
        return row


def print_table(document: dict) -> None:
    worth = collections.defaultdict(list)
    for row in document["networks"]:
        for kernel, entry in row.get("kernels", {}).items():
            worth[kernel].append((entry.get("worth", float("inf")), f"{row['model']} {row['precision']} batch {row['batch']}"))
    print("| kernel | runs that use it | worth most | next |\n|---|---:|---|---|")
    for kernel, rows in sorted(worth.items(), key=lambda item: -max(item[1])[0]):
        networks: dict[str, tuple[float, str]] = {}  # the best run of each
        for ratio, name in sorted(rows, reverse=True):
            networks.setdefault(name.split()[0], (ratio, name))
        best = [f"{name}: {'refused' if ratio == float('inf') else f'{ratio:.3f}'}" for ratio, name in networks.values()]
        print(f"| {kernel} | {len(rows)} | {best[0]} | {'; '.join(best[1:3])} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.json", help="print a table of such a file")
    parser.add_argument("--build", type=pathlib.Path, help="holds pipit and the libraries that it needs")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--precision", default="fp16,int8", help="[fp16,int8]")
    parser.add_argument("--batch", default="1,32,128", help="[1,32,128]")
    parser.add_argument("--kernels", metavar="NAMES", help="only these [all that a network uses]")
    parser.add_argument("--turns", type=int, default=2, help="timings without each kernel [2]")
    parser.add_argument("--gpus", default="0", help="ordinals of the GPUs that work at once, separated by commas [0]")
    parser.add_argument("--minutes", type=float, default=60, help="what is not measured by then is left out, and named")
    a = parser.parse_args()
    if a.table:
        print_table(json.loads(a.table.read_text(encoding="utf-8")))
        return 0
    if not a.models or not a.build or not a.out:
        parser.error("models, --build and --out are needed")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "images").mkdir()
        for seed in range(2):
            int8.write_image(folder / "images" / f"{seed}.bmp", seed)
        removals = Removals(a, folder)
        free: queue.SimpleQueue[int] = queue.SimpleQueue()
        gpus = [int(gpu) for gpu in a.gpus.split(",")]
        for gpu in gpus:
            free.put(gpu)

        def one(task):
            gpu = free.get()
            try:
                row = removals.measure(gpu, *task)
            finally:
                free.put(gpu)
            print(row["model"], row["precision"], row["batch"], row.get("problem", ""), file=sys.stderr, flush=True)
            return row

        tasks = [(model, precision, int(batch)) for batch in a.batch.split(",") for precision in a.precision.split(",")
                 for model in a.models]
        with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
            rows = list(pool.map(one, tasks))
    document = {"date": datetime.date.today().isoformat(), "networks": rows}
    temporary_file = a.out.with_suffix(".tmp")
    temporary_file.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    temporary_file.replace(a.out)
    return 0 if any("kernels" in row for row in rows) else 4


if __name__ == "__main__":
    sys.exit(main())
