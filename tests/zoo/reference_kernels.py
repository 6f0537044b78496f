#!/usr/bin/env python3
"""Which layers of exported models run on reference kernels, and what that costs.

Profiles every MODEL.onnx, or FOLDER/model.onnx below a folder as export_zoo.py writes it, in fp32, fp16 and INT8 (with a
plan calibrated on --images; without images INT8 is left out) and names the layers on reference kernels. The exit code is
4 when they take more than --most of the time of any model.

    reference_kernels.py build/pipit zoo/ --images photographs/ --threads 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def profile(a: argparse.Namespace, model: Path, options: list[str]) -> dict:
    command = [str(a.pipit), "profile", str(model), "--json", "--quiet", "--runs", str(a.runs), "--warmup", "1",
               "--threads", str(a.threads), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


def calibrated(a: argparse.Namespace, model: Path, plan: Path) -> Path:
    command = [str(a.pipit), "calibrate", str(model), str(a.images), "--preset", "torchvision", "--limit",
               str(a.limit), "--threads", str(a.threads), "--output", str(plan), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or folders of folders with a model.onnx")
    parser.add_argument("--images", type=Path, help="a folder of images to calibrate INT8 on")
    parser.add_argument("--limit", type=int, default=4, help="images to calibrate on [4]")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=float, default=0.01, help="share of a model's time that is no failure [0.01]")
    a = parser.parse_args()
    files = [file for path in a.models
             for file in ([path] if path.is_file() else sorted([*path.glob("model.onnx"), *path.glob("*/model.onnx")]))]
    precisions = ["fp32", "fp16"] + (["int8"] if a.images else [])
    failed = 0
    for file in files:
        name = file.parent.name if file.name == "model.onnx" else file.stem
        for precision in precisions:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    options = ["--precision", precision]
                    if precision == "int8":
                        options += ["--plan", str(calibrated(a, file, Path(folder) / "plan.json"))]
                    result = profile(a, file, options)
            except RuntimeError as error:
                failed += 1
                print(f"FAILED {name} {precision}: {error}", flush=True)
                continue
            slow = [layer for layer in result["layers"] if "reference" in layer["kernel"]]
            bad = result["reference_share"] > a.most
            failed += bad
            print(f"{'SLOW  ' if bad else 'ok    '} {name} {precision}: {result['layers_ms']:.2f} ms, "
                  f"{100 * result['reference_share']:.2f} % on reference kernels", flush=True)
            for layer in sorted(slow, key=lambda one: -one["share"])[:5]:
                print(f"         {100 * layer['share']:.2f} % {layer['type']} {layer['geometry']} {layer['input']} "
                      f"-> {layer['output']} '{layer['name']}'")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
