"""What the tests of the package share: a folder of their own, images, small models."""

from __future__ import annotations

import importlib
import logging
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import numpy as np

import pipit

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/apps"))
onnx_model = importlib.import_module("onnx_model")  # writes small models

MODEL = "resnet20-cifar10"
os.environ.setdefault("PIPIT_SHORT_MEASUREMENTS", "1")
logging.getLogger("pipit").addHandler(logging.NullHandler())


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_pixels(seed: int, side: int = 32) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Smooth random colours [side, side, 3]."""
    corners = np.random.default_rng(seed).uniform(0, 255, (2, 2, 3))
    along = np.linspace(0, 1, side)
    weights = np.stack([1 - along, along])
    return np.einsum("ay,bx,abc->yxc", weights, weights, corners).astype(np.uint8)


def bmp(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """A BMP file of pixels [H, W, 3], whose rows must be multiples of four bytes."""
    height, width, _ = pixels.shape
    rows = pixels[::-1, :, ::-1].tobytes()
    return (
        b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 54 + len(rows), 0, 0, 54, 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0)
        + rows
    )


class PackageTest(unittest.TestCase):
    """A test in a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def images(self, count: int, name: str = "images") -> pathlib.Path:
        """A folder of images named for classes 0 to 9 in turn."""
        folder = self.folder / name
        folder.mkdir()
        for i in range(count):
            (folder / f"{i % 10}_{i}.bmp").write_bytes(bmp(random_pixels(i)))
        return folder

    def python(self, program: str, *arguments: object) -> str:
        """What another process prints."""
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(pipit.__file__).parents[1])},
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout
