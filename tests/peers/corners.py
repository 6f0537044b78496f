#!/usr/bin/env python3
"""Times single operators against ONNX Runtime: each stands between two 1x1 convolutions, first, last or alone.

    corners.py build/pipit [--only WORD] [--precision fp32,int8] [--rounds 7] [--json result.json]

The models are generated, with seeded random weights. In INT8 both engines run the same file, which ONNX Runtime's
quantize_static made (QDQ, u8 activations, s8 weights per channel). Both engines use one thread and are timed in turns:
every round runs ONNX Runtime for --seconds in this process, and pipit in one of its own, each after a warm-up. The
time of a round is the fastest tenth of its runs, which other work on the machine disturbs least. Printed for each case:
the median over rounds, and the ratio pipit / ONNX Runtime round by round with its range (above 1: pipit is slower).

Before that, both compute the same input. In fp32 they must agree within 1e-4 of the output's norm, in INT8 within 5 %
(ONNX Runtime rounds between layers where pipit does not, or the reverse); a case that does not is an error, and the
exit code is 4. Models that pipit refuses are listed with the reason. --limit RATIO also exits with 4 where a median is
above it.

Needs: pip install numpy onnx onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError as error:  # --help needs none of them
    MISSING = error
else:
    MISSING = None

import cpu
from corner_cases import WHERE, build, cases


def quantized(model: onnx.ModelProto, folder: Path) -> Path:
    import logging

    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    logging.disable(logging.WARNING)  # advice about pre-processing, which these models do not need

    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i in range(2)]

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, source)
    quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return target


def fastest_tenth(samples: list[float]) -> float:
    ordered = sorted(samples)
    return ordered[len(ordered) // 10]


class Peer:
    def __init__(self, model: Path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(self, x):
        return self.session.run(None, {"x": x})[0]

    def time(self, x, seconds: float) -> float:
        end, samples = time.perf_counter() + 0.2 * seconds, []
        while time.perf_counter() < end:
            self.run(x)
        end = time.perf_counter() + seconds
        while len(samples) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            self.run(x)
            samples.append(1e3 * (time.perf_counter() - begin))
        return fastest_tenth(samples)


def time_pipit(pipit: Path, model: Path, seconds: float, options: list[str]) -> dict:
    command = [str(pipit), "bench", str(model), "--threads", "1", "--json", "--quiet", "--warmup", "2", "--seconds",
               str(seconds), *options]
    return json.loads(cpu.call(command, 1))["results"][0]


def check(pipit: Path, model: Path, x, expected, folder: Path) -> float:
    """The relative error of pipit's answer, through `pipit verify`; raises cpu.Skip with the reason of a refusal."""
    data = folder / "case" / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    link = folder / "case" / "model.onnx"
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve())
    output = onnx.load(str(model)).graph.output[0].name
    for file, name, value in (("input_0.pb", "x", x), ("output_0.pb", output, expected)):
        (data / file).write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    done = subprocess.run([str(pipit), "verify", str(folder / "case"), "--json", "--norm", "1e30", "--threads", "1"],
                          capture_output=True, text=True, check=False)
    try:
        test = json.loads(done.stdout)["tests"][0]
    except (json.JSONDecodeError, LookupError):
        raise cpu.Skip(f"exit code {done.returncode}: {done.stderr.strip()}") from None
    if "relative_error" not in test:
        raise cpu.Skip(str(test.get("reason") or test.get("message") or test))
    return test["relative_error"]


def measure(name: str, precision: str, model: onnx.ModelProto, a: argparse.Namespace) -> dict:
    row: dict = {"case": name, "precision": precision}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if precision == "int8":
            try:
                file = quantized(model, folder)
            except Exception as reason:  # noqa: BLE001: whatever ONNX Runtime throws
                return row | {"skipped": f"quantize_static: {reason!r}"}
        else:
            file = folder / "model.onnx"
            onnx.save(model, file)
        if a.keep:
            a.keep.mkdir(parents=True, exist_ok=True)
            kept = a.keep / f"{name.replace(' ', '-').replace(',', '')}.{precision}.onnx"
            kept.write_bytes(file.read_bytes())
        options = ["--precision", "fp16"] if precision == "fp16" else []
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        try:
            peer = Peer(file)
            expected = peer.run(x)
        except Exception as reason:  # noqa: BLE001: whatever ONNX Runtime throws
            return row | {"skipped": f"ONNX Runtime: {reason}"}
        try:
            row["relative_error"] = check(a.pipit, file, x, expected.astype(expected.dtype), folder)
            if not row["relative_error"] <= (0.05 if precision == "int8" else 1e-4):
                return row | {"wrong": True}
            rounds = []
            for _ in range(a.rounds):
                theirs = peer.time(x, a.seconds)
                ours = time_pipit(a.pipit, file, a.seconds, options)
                rounds.append((fastest_tenth(ours["samples_ms"]), theirs))
        except cpu.Skip as reason:
            return row | {"refused": str(reason)}
    ratios = [ours / theirs for ours, theirs in rounds]
    return row | {"pipit_ms": statistics.median(ours for ours, _ in rounds),
                  "onnxruntime_ms": statistics.median(theirs for _, theirs in rounds),
                  "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]}


def report(row: dict) -> str:
    head = f"| {row['case']} | {row['precision']} |"
    if "ratio" in row:
        low, high = row["ratio_range"]
        return (f"{head} {row['pipit_ms']:.3f} | {row['onnxruntime_ms']:.3f} "
                f"| {row['ratio']:.2f} [{low:.2f}, {high:.2f}] |")
    for kind in ("skipped", "refused"):
        if kind in row:
            return f"{head} {kind}: {' '.join(row[kind].split())[:150]} | | |"
    return f"{head} WRONG: relative error {row['relative_error']:.3g} | | |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="cases whose names contain a WORD")
    parser.add_argument("--precision", default="fp32,int8", help="some of fp32, fp16, int8; fp16 is pipit's, against "
                                                                 "ONNX Runtime's fp32 [fp32,int8]")
    parser.add_argument("--places", default=",".join(WHERE), help=f"some of {', '.join(WHERE)} [all]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each engine in a round [0.1]")
    parser.add_argument("--limit", type=float, help="exit with 4 where a ratio is above this")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="also write the models here")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install numpy onnx onnxruntime\n")
    precisions, places = a.precision.split(","), a.places.split(",")
    if unknown := (set(precisions) - {"fp32", "fp16", "int8"}) | (set(places) - set(WHERE)):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    rows = []
    if not a.list:
        print("| case | precision | pipit ms | ONNX Runtime ms | pipit / ONNX Runtime [range] |\n|---|---|---|---|---|", flush=True)
    for case, (shape, add, where_it_stands) in cases().items():
        for place in where_it_stands:
            name = f"{case}, {place}"
            if place not in places or (a.only and not any(word in name for word in a.only)):
                continue
            if a.list:
                print(name)
                continue
            model = build(shape, add, place)
            for precision in precisions:
                rows.append(measure(name, precision, model, a))
                print(report(rows[-1]), flush=True)
    timed = [row for row in rows if "ratio" in row]
    if timed:
        slow = sorted((row for row in timed if row["ratio"] > (a.limit or 1.2)), key=lambda row: -row["ratio"])
        print(f"\n{len(timed)} cases timed, geometric mean {statistics.geometric_mean(r['ratio'] for r in timed):.2f}; "
              f"{len(slow)} above {a.limit or 1.2}:", *(f"\n  {row['ratio']:.2f}  {row['case']} ({row['precision']})" for row in slow))
    if a.json:
        document = {"cpu": cpu.cpu_name(), "cpus": os.cpu_count(), "rounds": a.rounds, "seconds": a.seconds,
                    "onnxruntime": version("onnxruntime"), "results": rows}
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(a.json)
    if any("wrong" in row for row in rows):
        return 4
    return 4 if a.limit and any(row["ratio"] > a.limit for row in timed) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cpu.Skip as reason:
        sys.exit(f"a run failed: {reason}")
