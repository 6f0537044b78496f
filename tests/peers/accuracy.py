#!/usr/bin/env python3
"""Compares pipit's classifications with ONNX Runtime's on the same files, which Pillow decodes and resizes for the
latter. With libjpeg-turbo and libpng pipit's pixels are Pillow's (see pipit --version). Prints top-1 / top-5 of both and
the images on which the best class or the set of five differs; fails (4) where a best class does and it is no tie.

    accuracy.py build/pipit model.onnx photographs --resize 256 --crop 227 --limit 500
    accuracy.py build/pipit resnet20.onnx cifar10-test --resize 0 --crop 32 --mean ... --std ...

The class of a photograph is the number at the start of its name (0007_cock.jpg), or its folder's place in the alphabet.
Needs: pip install onnxruntime pillow numpy
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnxruntime
    from PIL import Image, ImageOps
except ImportError as error:  # --help needs none of them
    MISSING = error
else:
    MISSING = None

# Best scores of a row that differ by less, relative to the largest, count as a tie.
TIE = 1e-5


def preprocess(image: Image.Image, a: argparse.Namespace) -> np.ndarray:
    """torchvision's Resize(resize), CenterCrop(crop), Normalize."""
    width, height = image.size
    if a.resize:
        short, long = min(width, height), max(width, height)
        new_long = int(a.resize * long / short)
        width, height = (a.resize, new_long) if width <= height else (new_long, a.resize)
        image = image.resize((width, height), Image.Resampling[a.interpolation.upper()])
    left, top = int(round((width - a.crop) / 2.0)), int(round((height - a.crop) / 2.0))
    pixels = np.asarray(image.crop((left, top, left + a.crop, top + a.crop)), np.float32) / np.float32(255)
    return ((pixels - np.float32(a.mean)) / np.float32(a.std)).transpose(2, 0, 1)[None]


def peer_scores(files: list[Path], a: argparse.Namespace) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(a.model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    images = (ImageOps.exif_transpose(Image.open(file)).convert("RGB") for file in files)
    return [session.run(None, {name: preprocess(image, a)})[0].reshape(-1) for image in images]


def pipit_top5(files: list[Path], a: argparse.Namespace) -> list[list[int]]:
    result = []
    for start in range(0, len(files), 500):  # command lines have a limit
        command = [str(a.pipit), "classify", str(a.model), *map(str, files[start : start + 500]), "--json", "--quiet"]
        command += ["--preset", "torchvision", "--resize", str(a.resize), "--crop", str(a.crop)]
        command += ["--interpolation", a.interpolation]
        command += [f"--{key}=" + ",".join(map(str, value)) for key, value in (("mean", a.mean), ("std", a.std))]
        images = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["images"]
        result += [[entry["class"] for entry in image["top"]] for image in images]
    return result


def three(text: str) -> list[float]:
    return [float(value) for value in text.split(",")]


def labelled(folder: Path) -> tuple[list[Path], list[int]]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png"))
    classes = sorted({file.parent.name for file in files})
    flat = all(file.parent == folder for file in files)
    return files, [int(f.name.split("_")[0]) if flat else classes.index(f.parent.name) for f in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--interpolation", choices=("bilinear", "bicubic"), default="bilinear")
    parser.add_argument("--mean", type=three, default=[0.485, 0.456, 0.406])
    parser.add_argument("--std", type=three, default=[0.229, 0.224, 0.225])
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install onnxruntime pillow numpy\n")

    sources, truth = labelled(arguments.images)
    sources, truth = sources[: arguments.limit or None], truth[: arguments.limit or None]
    ours = pipit_top5(sources, arguments)
    scores = peer_scores(sources, arguments)
    theirs = [[int(i) for i in np.argsort(-s, kind="stable")[:5]] for s in scores]

    for name, top in (("pipit", ours), ("onnxruntime", theirs)):
        top1 = sum(t[0] == label for t, label in zip(top, truth))
        top5 = sum(label in t for t, label in zip(top, truth))
        print(f"{name:12} top-1 {top1}/{len(truth)}  top-5 {top5}/{len(truth)}")
    best = [(f.name, bool(abs(s[a[0]] - s[b[0]]) <= TIE * abs(s).max()))
            for f, s, a, b in zip(sources, scores, ours, theirs) if a[0] != b[0]]
    other_five = [f.name for f, a, b in zip(sources, ours, theirs) if set(a) != set(b)]
    print(f"another best class: {len(best)} {[name for name, _ in best]}, of them ties: {sum(tie for _, tie in best)}")
    print(f"another set of five: {len(other_five)} {other_five}")
    return 0 if all(tie for _, tie in best) else 4


if __name__ == "__main__":
    sys.exit(main())
