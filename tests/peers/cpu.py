#!/usr/bin/env python3
"""Times pipit against ONNX Runtime on the same models, threads and batch, interleaved in one run.

Each round starts a fresh process per engine and model, in turn, so that drift of the machine hits both. A process
warms up, then times runs on one random input; the round's figure is the median. Prints the median over rounds with
its range, the ratio per round (onnxruntime / pipit: above 1 means that pipit is faster), and the peak memory of the
processes.

    cpu.py build/pipit resnet50.onnx squeezenet.onnx --threads 2 --rounds 5 --json result.json

Needs: pip install onnxruntime numpy
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

PEER = """
import sys, time, json, numpy, onnxruntime
model, batch, threads, runs, warmup = sys.argv[1], *map(int, sys.argv[2:])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
info = session.get_inputs()[0]
shape = [batch if i == 0 and not isinstance(d, int) else d for i, d in enumerate(info.shape)]
x = numpy.random.default_rng(1).standard_normal(shape, dtype=numpy.float32)
times = []
for i in range(warmup + runs):
    begin = time.perf_counter()
    session.run(None, {info.name: x})
    times.append(1e3 * (time.perf_counter() - begin))
print(json.dumps({"ms": sorted(times[warmup:])[runs // 2], "version": onnxruntime.__version__}))
"""


def run(command: list[str]) -> tuple[dict, float]:
    """The JSON a command prints, and its peak resident memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command[:3])} failed with status {status}")
    return json.loads(text), usage.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()

    results = []
    for model in a.models:
        pipit_ms, peer_ms, pipit_mib, peer_mib, version = [], [], [], [], ""
        for _ in range(a.rounds):
            ours, mib = run(
                [str(a.pipit), "profile", str(model), "--json", "--quiet", "--threads", str(a.threads)]
                + ["--runs", str(a.runs), "--warmup", str(a.warmup)]
                + (["--batch", str(a.batch)] if a.batch != 1 else [])
            )
            pipit_ms.append(ours["end_to_end_ms"])
            pipit_mib.append(mib)
            numbers = [a.batch, a.threads, a.runs, a.warmup]
            theirs, mib = run([sys.executable, "-c", PEER, str(model), *map(str, numbers)])
            peer_ms.append(theirs["ms"])
            peer_mib.append(mib)
            version = theirs["version"]
            time.sleep(0.2)
        ratios = [p / o for o, p in zip(pipit_ms, peer_ms)]
        results.append(
            {
                "model": model.name if model.name != "model.onnx" else model.parent.name,
                "batch": a.batch,
                "threads": a.threads,
                "pipit_ms": pipit_ms,
                "onnxruntime_ms": peer_ms,
                "ratio": ratios,
                "pipit_peak_mib": max(pipit_mib),
                "onnxruntime_peak_mib": max(peer_mib),
                "onnxruntime": version,
            }
        )
        print(
            f"{results[-1]['model']}: pipit {statistics.median(pipit_ms):.2f} ms "
            f"[{min(pipit_ms):.2f}, {max(pipit_ms):.2f}], {max(pipit_mib):.0f} MiB; "
            f"onnxruntime {version} {statistics.median(peer_ms):.2f} ms [{min(peer_ms):.2f}, {max(peer_ms):.2f}], "
            f"{max(peer_mib):.0f} MiB; ratio {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]",
            flush=True,
        )
    if a.json:
        document = {"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "results": results}
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=2) + "\n")
        temporary.replace(a.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
