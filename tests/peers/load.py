#!/usr/bin/env python3
"""Times how long pipit and ONNX Runtime take to load models on the CPU, and until they have answered once.

For every model each round starts a fresh process per engine in turn, so that drift of the machine hits both, after
one process of each whose times do not count. `load` is the time from the file's name to a session that can run: of
pipit reading and planning, of ONNX Runtime the making of an InferenceSession with all optimizations and the same
number of threads. `answer` is that and a first run. Starting the process (Python's, libraries, imports) is not part
of it; pipit's own start is timed apart. Printed: medians over rounds with their ranges, and the ratio of pipit to
ONNX Runtime round by round (below 1: pipit is faster) with its median and range.

    load.py build/pipit zoo/* --threads 2 --rounds 7 --json load.json

--other NAME=PATH adds another build of pipit as an engine. Needs: pip install numpy onnx onnxruntime.
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
from importlib.metadata import version
from pathlib import Path

PEER = "onnxruntime"

# One load by ONNX Runtime, in a process of its own.
SESSION = """
import json, sys, time
import numpy, onnxruntime
path, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
options.log_severity_level = 3
for name in sys.argv[4:]:
    options.add_free_dimension_override_by_name(name, batch)
types = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64",
         "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(int8)": "int8",
         "tensor(bool)": "bool"}
begin = time.perf_counter()
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
loaded = time.perf_counter()
feeds = {x.name: numpy.ones([d if isinstance(d, int) else batch for d in x.shape], types[x.type])
         for x in session.get_inputs()}
ready = time.perf_counter()
session.run(None, feeds)
done = time.perf_counter()
load = 1e3 * (loaded - begin)
print(json.dumps({"load_ms": load, "answer_ms": load + 1e3 * (done - ready)}))
"""


def run(command: list[str], threads: int) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
    return done.stdout


def free_dimensions(model: Path) -> list[str]:
    """Names of symbolic extents of the inputs."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    return sorted({d.dim_param for x in graph.input for d in x.type.tensor_type.shape.dim if d.dim_param})


def load_peer(model: Path, free: list[str], a: argparse.Namespace) -> dict:
    return json.loads(run([sys.executable, "-c", SESSION, str(model), str(a.threads), str(a.batch), *free], a.threads))


def load_pipit(pipit: Path, model: Path, a: argparse.Namespace) -> dict:
    command = [str(pipit), "profile", str(model), "--runs", "1", "--json", "--quiet", "--threads", str(a.threads)]
    row = json.loads(run([*command, "--batch", str(a.batch), *a.option], a.threads))
    return {"load_ms": row["read_ms"] + row["load_ms"], "read_ms": row["read_ms"], "answer_ms": row["first_answer_ms"]}


def start_ms(pipit: Path, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run([str(pipit), "--version"], 1)
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def interval(values: list[float]) -> dict:
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}


def shown(values: dict, digits: int = 1) -> str:
    return f"{values['median']:.{digits}f} [{values['least']:.{digits}f}, {values['most']:.{digits}f}]"


def measure(model: Path, a: argparse.Namespace, engines: dict[str, Path | None]) -> dict:
    free = free_dimensions(model)
    rows: dict[str, list[dict]] = {engine: [] for engine in engines}
    for r in range(-1, a.rounds):
        order = list(engines)
        for engine in order[r % len(order):] + order[:r % len(order)]:
            pipit = engines[engine]
            row = load_pipit(pipit, model, a) if pipit else load_peer(model, free, a)
            if r >= 0:
                rows[engine].append(row)
    result: dict = {"model": model.parent.name if model.name == "model.onnx" else model.stem, "engines": {}}
    for engine, own in rows.items():
        entry = {key: interval([row[key] for row in own]) for key in own[0]}
        for key, ratio in (("load_ms", "load_ratio"), ("answer_ms", "answer_ratio")):
            if engine != PEER:
                entry[ratio] = interval([row[key] / peer[key] for row, peer in zip(own, rows[PEER])])
        result["engines"][engine] = entry
    return result


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or folders with a model.onnx")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="samples of a run where the model leaves them open [1]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=PATH", help="another build of pipit")
    parser.add_argument("--option", action="append", default=[], help="one more option for pipit: --option=--autotune")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    engines: dict[str, Path | None] = {"pipit": a.pipit}
    for other in a.other:
        name, equals, path = other.partition("=")
        if not equals or name in engines or name == PEER:
            parser.error(f"--other: '{other}' is not NAME=PATH with a name of its own")
        engines[name] = Path(path)
    engines[PEER] = None

    starts = {engine: interval(start_ms(path, 3 * a.rounds)) for engine, path in engines.items() if path}
    for engine, times in starts.items():
        print(f"{engine} starts in {shown(times)} ms")
    print("| model | engine | load, ms | of ONNX Runtime's | first answer, ms | of ONNX Runtime's |")
    print("|---|---|---|---|---|---|", flush=True)
    results, failed = [], []
    for path in a.models:
        try:
            result = measure(path / "model.onnx" if path.is_dir() else path, a, engines)
        except RuntimeError as problem:
            failed.append({"model": str(path), "problem": str(problem)})
            print(f"{path}: {problem}", file=sys.stderr, flush=True)
            continue
        results.append(result)
        for engine, row in result["engines"].items():
            ratios = [shown(row[key], 2) if key in row else "" for key in ("load_ratio", "answer_ratio")]
            print(f"| {result['model']} | {engine} | {shown(row['load_ms'])} | {ratios[0]} "
                  f"| {shown(row['answer_ms'])} | {ratios[1]} |", flush=True)
    for engine in [engine for engine in engines if engine != PEER and results]:
        ratios = [result["engines"][engine]["load_ratio"]["median"] for result in results]
        print(f"{engine}: {sum(ratio <= 1.5 for ratio in ratios)} of {len(ratios)} models load in at most 1.5 times "
              f"ONNX Runtime's time; median {statistics.median(ratios):.2f}, most {max(ratios):.2f}")
    if a.json:
        document = {"cpu": cpu_name(), "cpus": os.cpu_count(), "threads": a.threads, "batch": a.batch,
                    "rounds": a.rounds, "versions": {PEER: version(PEER)}, "start_ms": starts, "results": results,
                    "failed": failed}
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        temporary.replace(a.json)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
