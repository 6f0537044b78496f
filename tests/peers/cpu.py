#!/usr/bin/env python3
"""Times pipit against ONNX Runtime, OpenVINO and ncnn on the CPU, in float32, interleaved in one run.

For every model and batch, each round starts a fresh process per engine in turn, so that drift of the machine hits
all of them; a process warms up, times runs for --seconds, and reports the median. Printed per engine: the median
over rounds with its range, the ratio to pipit round by round (above 1: pipit is faster) with its range, and the
largest peak memory of its processes (Python and libraries included, see cpu_engines.py).

    cpu.py build/pipit resnet50.onnx squeezenet.onnx --batch 1,8 --threads 2 --rounds 5 --json result.json

Before that, every engine computes the same input; an engine whose output is more than 1e-3 (relative norm) away from
ONNX Runtime's is timed on something else, so it is left out and the exit code is 4. Engines that are not installed
or cannot take a model are skipped with the reason.

Needs: pip install numpy onnx onnxruntime; openvino; ncnn pnnx (pnnx converts, once per model, into --work).
--other NAME=PATH adds another build of pipit as an engine.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

try:
    import numpy as np
    import onnx
except ImportError as error:  # --help needs neither
    MISSING = error
else:
    MISSING = None

PEERS = ("onnxruntime", "openvino", "ncnn")
HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3


class Skip(Exception):
    """Why an engine takes no part."""


def call(command: list[str], threads: int, **options) -> str:
    """The stdout of a command; raises Skip with the end of its stderr when it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Skip(f"exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
    return done.stdout


@dataclass
class Case:
    """A model at one batch, and what an engine needs to know of it."""

    path: Path
    batch: int
    name: str = field(init=False)
    shape: list[int] = field(init=False)
    free: list[str] = field(init=False)  # symbolic extents: the batch

    def __post_init__(self) -> None:
        self.name = self.path.parent.name if self.path.name == "model.onnx" else self.path.stem
        graph = onnx.load(str(self.path), load_external_data=False).graph
        constants = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in constants]
        if len(inputs) != 1:
            sys.exit(f"{self.path}: {len(inputs)} inputs; this script knows models with one")
        self.input = inputs[0].name
        self.output = graph.output[0].name
        dims = inputs[0].type.tensor_type.shape.dim
        self.free = [dim.dim_param for dim in dims if dim.dim_param]
        self.shape = [dim.dim_value if dim.HasField("dim_value") else self.batch for dim in dims]
        if self.free != [dims[0].dim_param] and self.shape[0] != self.batch:
            sys.exit(f"{self.path}: the batch is fixed at {self.shape[0]}")


def converted(case: Case, work: Path) -> Path:
    """The model in ncnn's format, made once with pnnx in a folder named after the file's contents."""
    pnnx = shutil.which("pnnx", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if pnnx is None:
        raise Skip("pnnx, which converts to ncnn's format, is not installed")
    with case.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    # The flattened shapes of some exports hold the batch.
    folder = work / f"{case.name}-{digest}-b{case.batch}"
    if not (folder / "model.ncnn.param").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            (Path(temporary) / "model.onnx").symlink_to(case.path.resolve())
            extents = ",".join(map(str, case.shape))
            call([pnnx, "model.onnx", f"inputshape=[{extents}]", "fp16=0"], 1, cwd=temporary)
            if not (Path(temporary) / "model.ncnn.param").exists():
                raise Skip("pnnx could not convert it")
            done = Path(temporary) / "done"
            done.mkdir()
            for suffix in ("param", "bin"):
                (Path(temporary) / f"model.ncnn.{suffix}").rename(done / f"model.ncnn.{suffix}")
            done.rename(folder)
    return folder / "model.ncnn.param"


def run_peer(engine: str, case: Case, a: argparse.Namespace, seconds: float, output: Path | None = None) -> dict:
    model = converted(case, a.work) if engine == "ncnn" else case.path
    command = [sys.executable, str(HERE / "cpu_engines.py"), engine, str(model), "x".join(map(str, case.shape))]
    command += [str(a.threads), str(seconds)]
    for name in case.free:
        command += ["--free", name]
    if output:
        command += ["--output", str(output)]
    return json.loads(call(command, a.threads))


def run_pipit(pipit: Path, case: Case, a: argparse.Namespace) -> dict:
    command = [str(pipit), "bench", str(case.path), "--json", "--quiet", "--threads", str(a.threads), "--warmup", "3"]
    command += ["--batch", str(case.batch), "--seconds", str(a.seconds)]
    row = json.loads(call(command, a.threads))["results"][0]
    return row | {"peak_mib": row["peak_rss_bytes"] / 2**20}


def check_pipit(pipit: Path, case: Case, a: argparse.Namespace, x: np.ndarray, expected: np.ndarray) -> float:
    """The relative error of pipit's answer, through `pipit verify`."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "case"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        # A hard link or copy: external data would have to lie beside it.
        (folder / "model.onnx").symlink_to(case.path.resolve())
        for file, name, value in (("input_0.pb", case.input, x), ("output_0.pb", case.output, expected)):
            (data / file).write_bytes(onnx.numpy_helper.from_array(value, name).SerializeToString())
        command = [str(pipit), "verify", str(folder), "--json", "--norm", "1e30", "--threads", str(a.threads)]
        return json.loads(call(command, a.threads))["tests"][0]["relative_error"]


def agreeing(case: Case, a: argparse.Namespace, engines: dict[str, Path | None]) -> tuple[dict, dict, bool]:
    """Relative errors of the engines that agree with ONNX Runtime, reasons why others are skipped, and whether one
    of these computed something else."""
    errors: dict[str, float] = {}
    skipped: dict[str, str] = {}
    wrong = False
    x = np.random.default_rng(1).standard_normal(case.shape, dtype=np.float32)
    expected = None
    with tempfile.TemporaryDirectory() as temporary:
        for engine, pipit in sorted(engines.items(), key=lambda item: item[0] != "onnxruntime"):
            try:
                if pipit is None:
                    if importlib.util.find_spec(engine) is None:
                        raise Skip("not installed")
                    file = Path(temporary) / f"{engine}.npy"
                    run_peer(engine, case, a, 0, file)
                    y = np.load(file)
                    if engine == "onnxruntime":
                        expected = y
                    if expected is None:
                        raise Skip("no ONNX Runtime to compare its output with")
                    if y.size != expected.size:
                        raise Skip(f"its output has {y.size} values, not {expected.size}")
                    errors[engine] = float(np.linalg.norm(y.ravel() - expected.ravel()) / np.linalg.norm(expected))
                else:
                    errors[engine] = 0.0 if expected is None else check_pipit(pipit, case, a, x, expected)
                if not errors[engine] <= TOLERANCE:
                    wrong = True
                    raise Skip(f"its output differs: relative error {errors[engine]:.2g}")
            except Skip as reason:
                errors.pop(engine, None)
                skipped[engine] = str(reason)
    return errors, skipped, wrong


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def measure(case: Case, a: argparse.Namespace, engines: dict[str, Path | None]) -> tuple[dict, bool]:
    errors, skipped, wrong = agreeing(case, a, engines)
    for engine, reason in skipped.items():
        print(f"{case.name}, batch {case.batch}: {engine} is left out: {reason}", file=sys.stderr, flush=True)
    rounds: dict[str, list[dict]] = {engine: [] for engine in engines if engine in errors}
    for r in range(a.rounds):
        order = list(rounds)
        for engine in order[r % len(order):] + order[:r % len(order)]:
            pipit = engines[engine]
            row = run_pipit(pipit, case, a) if pipit else run_peer(engine, case, a, a.seconds)
            rounds[engine].append(row)
    result: dict = {"model": case.name, "batch": case.batch, "threads": a.threads, "engines": {}, "skipped": skipped}
    ours = [row["median_ms"] for row in rounds.get("pipit", [])]
    for engine, rows in rounds.items():
        times = [row["median_ms"] for row in rows]
        ratios = [theirs / own for theirs, own in zip(times, ours)]
        entry = {"ms": times, "ratio": ratios, "load_ms": [row["load_ms"] for row in rows],
                 "peak_mib": max(row["peak_mib"] for row in rows), "relative_error": errors[engine]}
        result["engines"][engine] = entry
        print(f"| {case.name} | {case.batch} | {engine} | {spread(times, 2)} | {spread(ratios, 2) if ratios else ''} "
              f"| {entry['peak_mib']:.0f} |", flush=True)
    return result, wrong


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> int:
    def batches(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or folders with a model.onnx")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=batches, default=[1], help="one or more, separated by commas [1]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="timed runs of each engine in a round [1]")
    parser.add_argument("--engines", default=",".join(PEERS), help=f"peers, separated by commas [{','.join(PEERS)}]")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=PATH", help="another build of pipit")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / "build" / "peers", help="converted models")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install numpy onnx\n")
    peers = [name for name in a.engines.split(",") if name]
    for name in peers:
        if name not in PEERS:
            parser.error(f"--engines: there is no '{name}'; there are {', '.join(PEERS)}")
    engines: dict[str, Path | None] = {"pipit": a.pipit}
    for other in a.other:
        name, equals, path = other.partition("=")
        if not equals or name in engines or name in PEERS:
            parser.error(f"--other: '{other}' is not NAME=PATH with a name of its own")
        engines[name] = Path(path)
    engines |= dict.fromkeys(peers)

    print("| model | batch | engine | ms, median of rounds [range] | ratio to pipit | peak MiB |")
    print("|---|---|---|---|---|---|", flush=True)
    results, wrong = [], False
    for path in a.models:
        for batch in a.batch:
            file = path / "model.onnx" if path.is_dir() else path
            result, bad = measure(Case(file, batch), a, engines)
            results.append(result)
            wrong |= bad
    if a.json:
        versions = {name: version(name) for name in peers if importlib.util.find_spec(name)}
        document = {"cpu": cpu_name(), "cpus": os.cpu_count(), "rounds": a.rounds, "seconds": a.seconds,
                    "versions": versions, "results": results}
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        temporary.replace(a.json)
    return 4 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as reason:
        sys.exit(f"a run failed: {reason}")
