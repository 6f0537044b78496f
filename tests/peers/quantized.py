#!/usr/bin/env python3
"""Compares the INT8 model that `pipit quantize` writes in three runs on the same pixels: pipit with the plan, pipit
with the file, ONNX Runtime with the file.

    quantized.py build/pipit model.onnx plan.json photographs [--activations s8] [--limit 500]

Images are prepared as the plan says, decoded by Pillow and written as PNG first, so that all read the same pixels.
pipit's two must agree in every bit of every probability; ONNX Runtime's best class may differ on 0.2 % of the images
(--most), since it computes convolutions with a residual in float32 and rounds sums in another order. Prints how many
differ and exits with 4 where that is too many. Needs: pip install onnxruntime pillow numpy
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

INTERPOLATION = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
                 "bicubic": Image.Resampling.BICUBIC}


def preprocess(image: Image.Image, rule: dict) -> np.ndarray:
    width, height = image.size
    resize, crop = rule["resize"], rule["crop"]
    if resize and rule["resize_mode"] != "short_side":
        sys.exit(f"resize_mode {rule['resize_mode']} is not among what this script does")
    if resize and min(width, height) != resize:
        long = int(resize * max(width, height) / min(width, height))
        size = (resize, long) if width <= height else (long, resize)
        image = image.resize(size, INTERPOLATION[rule["interpolation"]])
        width, height = size
    left, top = int(round((width - crop) / 2.0)), int(round((height - crop) / 2.0))
    pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), np.float32) / np.float32(255)
    pixels = (pixels - np.array(rule["mean"], np.float32)) / np.array(rule["std"], np.float32)
    return (pixels[:, :, ::-1] if rule["bgr"] else pixels).transpose(2, 0, 1)[None].astype(np.float32)


def classify(pipit: Path, model: str, files: list[Path], rule: dict, *more: str) -> list[list]:
    images = []
    for begin in range(0, len(files), 500):
        command = [str(pipit), "classify", model, *map(str, files[begin:begin + 500]), "--json", "--quiet",
                   "--resize", str(rule["resize"]), "--crop", str(rule["crop"]),
                   "--mean", ",".join(map(str, rule["mean"])), "--std", ",".join(map(str, rule["std"])), *more]
        images += json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["images"]
    return [[(entry["class"], entry["probability"]) for entry in image["top"]] for image in images]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("model")
    parser.add_argument("plan", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--activations", default="u8")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--most", type=float, default=0.2, help="percent of images whose best class may differ")
    arguments = parser.parse_args()
    rule = json.loads(arguments.plan.read_text())["preprocess"]
    sources = sorted(p for p in arguments.images.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if arguments.limit:
        sources = sources[::max(1, len(sources) // arguments.limit)][:arguments.limit]
    with tempfile.TemporaryDirectory() as folder:
        quantized = str(Path(folder) / "quantized.onnx")
        subprocess.run([str(arguments.pipit), "quantize", arguments.model, "--plan", str(arguments.plan), "--output",
                        quantized, "--activations", arguments.activations], check=True, stdout=subprocess.DEVNULL)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(quantized, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        files, peer = [], []
        for i, source in enumerate(sources):
            files.append(Path(folder) / f"{i}.png")
            image = Image.open(source).convert("RGB")
            image.save(files[-1], compress_level=1)
            peer.append(int(session.run(None, {name: preprocess(image, rule)})[0].reshape(-1).argmax()))
        planned = classify(arguments.pipit, arguments.model, files, rule, "--precision", "int8", "--plan",
                           str(arguments.plan))
        written = classify(arguments.pipit, quantized, files, rule)
    bits = sum(a != b for a, b in zip(planned, written))
    best = sum(a[0][0] != b for a, b in zip(written, peer))
    print(f"{len(sources)} images; pipit with the plan and with the file: {bits} differ in a bit; "
          f"best class of pipit and ONNX Runtime: {best} differ ({100 * best / len(sources):.2f} %)")
    return 0 if bits == 0 and 100 * best <= arguments.most * len(sources) else 4


if __name__ == "__main__":
    sys.exit(main())
