#!/usr/bin/env python3
"""Times pipit against ONNX Runtime, OpenVINO and ncnn on the CPU, interleaved in one run.

Rows are pipit in fp32 and bf16, and each peer in fp32 and with its default settings: OpenVINO
computes in bf16 where the CPU multiplies it, ncnn stores halves. A row names what the engine says that it computes in;
where that is f32 by default, the peer has one row.

For every model and batch, each round starts a fresh process per engine in turn, so that drift of the machine hits
all of them; a process warms up, times runs for --seconds, and reports the median. Printed per engine: the median
over rounds with its range, the ratios to pipit in fp32 and in bf16 round by round (above 1: pipit is faster) with
their ranges, and the largest peak memory of its processes (Python and libraries included, see cpu_engines.py).

    cpu.py build/pipit resnet50.onnx squeezenet.onnx --batch 1,8 --threads 2 --rounds 5 --json result.json

Before that, every engine computes the same input; an engine whose output is more than 1e-3 (relative norm; 1e-2 in f16,
0.1 in bf16) away from ONNX Runtime's is timed on something else, so it is left out and the exit code is 4. Engines that are not installed
or cannot take a model are skipped with the reason.

Needs: pip install numpy onnx onnxruntime; openvino; ncnn pnnx (pnnx converts, once per model, into --work).
--other NAME=PATH adds another build of pipit as an engine, in fp32.
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
TOLERANCE = {"f32": 1e-3, "f16": 1e-2, "bf16": 0.1}


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
class Engine:
    """What is timed in a row."""

    name: str  # without what it computes in
    precision: str  # "fp32", of a peer also "default", of pipit also "bf16"
    pipit: Path | None = None  # none: a peer

    @property
    def key(self) -> str:
        return f"{self.name} {self.precision}"

    def run(self, case: Case, a: argparse.Namespace) -> dict:
        if self.pipit:
            return run_pipit(self.pipit, case, a, self.precision)
        return run_peer(self.name, case, a, a.seconds, precision=self.precision)


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


def run_peer(engine: str, case: Case, a: argparse.Namespace, seconds: float, output: Path | None = None,
             precision: str = "fp32") -> dict:
    model = converted(case, a.work) if engine == "ncnn" else case.path
    command = [sys.executable, str(HERE / "cpu_engines.py"), engine, str(model), "x".join(map(str, case.shape))]
    command += [str(a.threads), str(seconds), "--precision", precision]
    for name in case.free:
        command += ["--free", name]
    if output:
        command += ["--output", str(output)]
    return json.loads(call(command, a.threads))


def run_pipit(pipit: Path, case: Case, a: argparse.Namespace, precision: str) -> dict:
    command = [str(pipit), "bench", str(case.path), "--json", "--quiet", "--threads", str(a.threads), "--warmup", "3"]
    command += ["--batch", str(case.batch), "--seconds", str(a.seconds), "--precision", precision]
    row = json.loads(call(command, a.threads))["results"][0]
    return row | {"peak_mib": row["peak_rss_bytes"] / 2**20}


def check_pipit(pipit: Path, case: Case, a: argparse.Namespace, x: np.ndarray, expected: np.ndarray,
                precision: str) -> float:
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
        command += ["--precision", precision]
        return json.loads(call(command, a.threads))["tests"][0]["relative_error"]


@dataclass
class Agreement:
    """What the engines answer before they are timed."""

    errors: dict[str, float] = field(default_factory=dict)  # relative, of those that agree with ONNX Runtime
    computed: dict[str, str] = field(default_factory=dict)  # what they compute in: "f32", "bf16", ...
    skipped: dict[str, str] = field(default_factory=dict)  # why others take no part
    wrong: bool = False  # one of these computed something else


def agreeing(case: Case, a: argparse.Namespace, engines: list[Engine]) -> Agreement:
    found = Agreement()
    x = np.random.default_rng(1).standard_normal(case.shape, dtype=np.float32)
    expected = None
    # ONNX Runtime in fp32 goes first, and every peer's fp32 before its default.
    order = sorted(engines, key=lambda e: (e.name != "onnxruntime", e.precision != "fp32"))
    with tempfile.TemporaryDirectory() as temporary:
        for engine in order:
            key = engine.key
            try:
                if engine.pipit is None:
                    if importlib.util.find_spec(engine.name) is None:
                        raise Skip("not installed")
                    file = Path(temporary) / f"{engine.name}.npy"
                    computed = run_peer(engine.name, case, a, 0, file, engine.precision)["precision"]
                    if engine.precision == "default" and computed == "f32" and f"{engine.name} fp32" in found.errors:
                        raise Skip(f"its default is f32: the row '{engine.name} fp32'")
                    y = np.load(file)
                    if expected is None and key == "onnxruntime fp32":
                        expected = y
                    if expected is None:
                        raise Skip("no ONNX Runtime to compare its output with")
                    if y.size != expected.size:
                        raise Skip(f"its output has {y.size} values, not {expected.size}")
                    error = float(np.linalg.norm(y.ravel() - expected.ravel()) / np.linalg.norm(expected))
                else:
                    computed = engine.precision.replace("fp32", "f32")
                    error = 0.0 if expected is None else check_pipit(engine.pipit, case, a, x, expected, engine.precision)
                if not error <= TOLERANCE[computed]:
                    found.wrong = True
                    raise Skip(f"its output differs: relative error {error:.2g}")
                found.errors[key], found.computed[key] = error, computed
            except Skip as reason:
                found.skipped[key] = str(reason)
    return found


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def measure(case: Case, a: argparse.Namespace, engines: list[Engine]) -> tuple[dict, bool]:
    found = agreeing(case, a, engines)
    for key, reason in found.skipped.items():
        print(f"{case.name}, batch {case.batch}: {key} is left out: {reason}", file=sys.stderr, flush=True)
    order = [engine for engine in engines if engine.key in found.errors]
    rounds: dict[str, list[dict]] = {engine.key: [] for engine in order}
    for r in range(a.rounds):
        turn = r % max(len(order), 1)
        for engine in order[turn:] + order[:turn]:
            rounds[engine.key].append(engine.run(case, a))
    result: dict = {"model": case.name, "batch": case.batch, "threads": a.threads, "engines": {}, "skipped": found.skipped}

    def ratios(times: list[float], to: str) -> list[float]:
        return [theirs / own["median_ms"] for theirs, own in zip(times, rounds.get(to, []))]

    for key, rows in rounds.items():
        times = [row["median_ms"] for row in rows]
        entry = {"precision": found.computed[key], "ms": times, "ratio": ratios(times, "pipit fp32"),
                 "ratio_to_bf16": ratios(times, "pipit bf16"), "load_ms": [row["load_ms"] for row in rows],
                 "peak_mib": max(row["peak_mib"] for row in rows), "relative_error": found.errors[key]}
        result["engines"][key] = entry
        name = f"{key} ({entry['precision']})" if key.endswith(" default") else key
        if f"{key.removesuffix(' fp32')} default" in found.skipped and found.computed[key] == "f32":
            name += ", its default"
        cells = [spread(entry[ratio], 2) if entry[ratio] else "" for ratio in ("ratio", "ratio_to_bf16")]
        print(f"| {case.name} | {case.batch} | {name} | {spread(times, 2)} | {cells[0]} | {cells[1]} "
              f"| {entry['peak_mib']:.0f} |", flush=True)
    return result, found.wrong


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
    engines = [Engine("pipit", precision, a.pipit) for precision in ("fp32", "bf16")]
    for other in a.other:
        name, equals, path = other.partition("=")
        if not equals or name in PEERS or name in [engine.name for engine in engines]:
            parser.error(f"--other: '{other}' is not NAME=PATH with a name of its own")
        engines.append(Engine(name, "fp32", Path(path)))
    engines += [Engine(name, precision) for name in peers for precision in ("fp32", "default")]

    print("| model | batch | engine | ms, median of rounds [range] | ratio to pipit fp32 | to pipit bf16 | peak MiB |")
    print("|---|---|---|---|---|---|---|", flush=True)
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
