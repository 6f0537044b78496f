#!/usr/bin/env python3
"""Compares pipit's classifications with ONNX Runtime's on the same pixels.

JPEG decoders differ by a few steps of 255, so every image is first decoded by Pillow and written as PNG; both
sides then read the same pixels, and pipit's resize is bit-exact with Pillow's. Prints top-1 / top-5 of both and
the images on which the best class or the set of five differs.

    accuracy.py build/pipit model.onnx photographs --resize 256 --crop 227 --limit 500

The class of a photograph is the number at the start of its name (0007_cock.jpg). Needs: pip install onnxruntime
pillow numpy
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
    from PIL import Image
except ImportError as error:  # --help needs none of them
    MISSING = error
else:
    MISSING = None

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def preprocess(image: Image.Image, resize: int, crop: int) -> np.ndarray:
    """torchvision's Resize(resize), CenterCrop(crop), Normalize."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    new_long = int(resize * long / short)
    size = (resize, new_long) if width <= height else (new_long, resize)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left = int(round((size[0] - crop) / 2.0))
    top = int(round((size[1] - crop) / 2.0))
    pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), np.float32) / np.float32(255)
    return ((pixels - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1)[None]


def peer_top5(model: Path, files: list[Path], resize: int, crop: int) -> list[list[int]]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    result = []
    for file in files:
        scores = session.run(None, {name: preprocess(Image.open(file), resize, crop)})[0].reshape(-1)
        result.append([int(i) for i in np.argsort(-scores, kind="stable")[:5]])
    return result


def pipit_top5(pipit: Path, model: Path, files: list[Path], resize: int, crop: int) -> list[list[int]]:
    command = [str(pipit), "classify", str(model), *map(str, files), "--json", "--preset", "torchvision"]
    command += ["--resize", str(resize), "--crop", str(crop)]
    images = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["images"]
    return [[entry["class"] for entry in image["top"]] for image in images]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install onnxruntime pillow numpy\n")

    sources = sorted(arguments.images.glob("*.jpg"))
    sources = sources[: arguments.limit or None]
    truth = [int(file.name.split("_")[0]) for file in sources]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for source in sources:
            files.append(Path(folder) / f"{source.stem}.png")
            Image.open(source).convert("RGB").save(files[-1], compress_level=1)
        ours = pipit_top5(arguments.pipit, arguments.model, files, arguments.resize, arguments.crop)
        theirs = peer_top5(arguments.model, files, arguments.resize, arguments.crop)

    for name, top in (("pipit", ours), ("onnxruntime", theirs)):
        top1 = sum(t[0] == label for t, label in zip(top, truth))
        top5 = sum(label in t for t, label in zip(top, truth))
        print(f"{name:12} top-1 {top1}/{len(truth)}  top-5 {top5}/{len(truth)}")
    other_best = [f.name for f, a, b in zip(sources, ours, theirs) if a[0] != b[0]]
    other_five = [f.name for f, a, b in zip(sources, ours, theirs) if set(a) != set(b)]
    print(f"another best class: {len(other_best)} {other_best}")
    print(f"another set of five: {len(other_five)} {other_five}")
    return 0 if len(other_best) <= 1 and len(other_five) <= 1 else 4


if __name__ == "__main__":
    sys.exit(main())
