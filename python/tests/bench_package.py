"""What the package adds to the library, and other packages of inference engines on the same model. Not a test:

PYTHONPATH=build/python-package python3 python/tests/bench_package.py [MODEL.onnx] --rounds 5 --seconds 0.5 --threads 1

Each round starts a process for each engine in turn, so that drift of the machine hits all of them: ONNX Runtime and
OpenVINO take part where they are installed. A process imports the package, loads the model, and times runs of batch 1
and batch 32 (the model needs an open batch). Tables show medians over rounds with their range. Times of engines are CPU
times of their processes: with one thread those of an idle machine, whatever else runs. "overhead" is the time of
Model.__call__() and of Session.run() on a model without arithmetic; runs from C++ are timed by C++ in the same process,
in turns with those of Python, and the fastest runs of all turns are compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TURNS = 12
ENGINES = {"pipit": "pipit", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def peak_mib() -> float:
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def cpu_ms(run: Callable[[], object], seconds: float) -> float:
    """The median over runs of the CPU time of all threads of the process."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.median(times)


def wall_us(run: Callable[[], object], seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begin))
    return times


def pipit_runs(model: str, batch: int, threads: int) -> Callable[[Any], Any]:
    import pipit

    return pipit.load(model, batch=batch, threads=threads)


def onnxruntime_runs(model: str, batch: int, threads: int) -> Callable[[Any], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda pixels: session.run(None, {name: pixels})


def openvino_runs(model: str, batch: int, threads: int) -> Callable[[Any], Any]:
    import openvino

    core = openvino.Core()
    network = core.read_model(model)
    network.reshape([batch, *[dim.get_length() for dim in list(network.input(0).partial_shape)[1:]]])
    hints = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(network, "CPU", hints).create_infer_request()
    return lambda pixels: request.infer([pixels], share_inputs=True)


def measure(engine: str, model: str, threads: int, seconds: float) -> dict[str, float]:
    """In a process of its own; `begin` is before the import."""
    begin = time.process_time()
    __import__(engine)
    found = {"import, ms": 1e3 * (time.process_time() - begin)}
    import numpy as np

    make = {"pipit": pipit_runs, "onnxruntime": onnxruntime_runs, "openvino": openvino_runs}[engine]
    shape = (3, 32, 32)
    pixels = np.random.default_rng(0).standard_normal((32, *shape)).astype(np.float32)
    one = np.ascontiguousarray(pixels[:1])
    run = make(model, 1, threads)
    run(one)
    found["import, load and first run, ms"] = 1e3 * (time.process_time() - begin)
    cpu_ms(lambda: run(one), seconds / 4)
    found["batch 1, ms"] = cpu_ms(lambda: run(one), seconds)
    found["memory at batch 1, MiB"] = peak_mib()
    many = make(model, 32, threads)
    many(pixels)
    found["batch 32, ms"] = cpu_ms(lambda: many(pixels), seconds)
    found["memory at batch 32 as well, MiB"] = peak_mib()
    return found


def against_cpp(model: str, threads: int, seconds: float) -> dict[str, float]:
    """Python's runs and those that C++ times, in turns in one process."""
    import numpy as np

    import pipit

    sys.path.insert(0, HERE)
    from support import onnx_model

    found: dict[str, float] = {}
    empty = pipit.load(onnx_model.model((1, 10), [onnx_model.node("Flatten", ["x"], "y")]), threads=1)
    scores, out, session = np.zeros((1, 10), np.float32), np.empty((1, 10), np.float32), empty.session()
    found["overhead of model(x), us"] = statistics.median(wall_us(lambda: empty(scores), seconds / 4))
    written = wall_us(lambda: session.run(scores, out=out), seconds / 4)
    found["overhead of session.run(x, out=y), us"] = statistics.median(written)
    compiled = pipit.load(model, batch=1, threads=threads)
    pixels = np.random.default_rng(0).standard_normal((32, 3, 32, 32)).astype(np.float32)
    one, answer, session = np.ascontiguousarray(pixels[:1]), np.empty((1, 10), np.float32), compiled.session()
    runs: dict[str, Callable[[], object]] = {
        "session.run(x, out=y)": partial(session.run, one, out=answer),
        "model(x)": partial(compiled, one),
    }
    least = dict.fromkeys(["C++", *runs], float("inf"))
    for _ in range(TURNS):
        row = pipit.bench(model, batch=1, threads=threads, seconds=seconds / TURNS, warmup=1).rows[0]
        least["C++"] = min(least["C++"], 1e3 * min(row.samples_ms))
        for name, run in runs.items():
            least[name] = min(least[name], *wall_us(run, seconds / TURNS))
    for name, value in least.items():
        found[f"fastest run of batch 1, {name}, us"] = value

    many = pipit.load(model, batch=32, threads=threads)

    def cpu_seconds(work: Callable[[int], object]) -> float:
        """Of a run: what 20 more runs take, so without loading."""
        begin = time.process_time()
        work(5)
        middle = time.process_time()
        work(25)
        return (time.process_time() - middle - (middle - begin)) / 20

    cpp, python = [], []
    for _ in range(TURNS):
        cpp.append(cpu_seconds(lambda n: pipit.bench(model, batch=32, threads=threads, runs=n, warmup=2)))
        python.append(cpu_seconds(lambda n: [many(pixels) for _ in range(n)]))
    found["images per CPU second at batch 32, C++"] = 32 / statistics.median(cpp)
    found["images per CPU second at batch 32, model(x)"] = 32 / statistics.median(python)
    return found


def in_process(what: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, options.model, "--threads", str(options.threads)]
    command += ["--seconds", str(options.seconds), "--only", what]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for name in ("PIPIT_SHORT_MEASUREMENTS", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def text(values: list[float]) -> str:
    values = sorted(values)
    digits = 3 if values[0] < 10 else 1
    return f"{statistics.median(values):.{digits}f} [{values[0]:.{digits}f}, {values[-1]:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "models/resnet20-cifar10.onnx"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        work = against_cpp if options.only == "C++" else None
        if work:
            print(json.dumps(work(options.model, options.threads, options.seconds)))
        else:
            print(json.dumps(measure(options.only, options.model, options.threads, options.seconds)))
        return
    engines = [name for name in ENGINES if importlib.util.find_spec(name)]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in [*engines, "C++"]}
    for name in engines:  # files are in memory, and Python has compiled its modules
        in_process(name, options)
    for _ in range(options.rounds):
        for name, results in rounds.items():
            results.append(in_process(name, options))
    keys = list(rounds[engines[0]][0])
    print(f"| | {' | '.join(ENGINES[name] for name in engines)} |\n|---{'|---' * len(engines)}|")
    for key in keys:
        print(f"| {key} | {' | '.join(text([one[key] for one in rounds[name]]) for name in engines)} |")
    print()
    for key in rounds["C++"][0]:
        print(f"| {key} | {text([one[key] for one in rounds['C++']])} |")


if __name__ == "__main__":
    main()
