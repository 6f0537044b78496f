"""Calibrations in parts."""

from __future__ import annotations

import json
import pathlib
import pickle
import unittest
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random


def calibrated(paths: list[pathlib.Path]) -> pipit.Calibrator:
    """What a worker returns."""
    calibrator = pipit.Calibrator(MODEL, threads=1)
    calibrator.update(paths)
    return calibrator


def tensors(plan: pathlib.Path) -> Any:
    return json.loads(plan.read_text())["tensors"]


class Calibrators(PackageTest):
    def test_parts_are_one_calibration(self) -> None:
        paths = sorted(self.images(9).iterdir())
        whole, parts = self.folder / "whole.json", self.folder / "parts.json"
        pipit.calibrate(MODEL, paths, whole)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            first, second, third = pool.map(calibrated, [paths[:2], paths[2:5], paths[5:]])
        self.assertEqual((first.images, second.images, third.images), (2, 3, 4))
        found = third.merge(first, second).plan(parts)
        self.assertEqual((found.images, third.images), (9, 9))
        self.assertEqual(tensors(parts), tensors(whole))
        self.assertEqual(json.loads(parts.read_text())["images"], json.loads(whole.read_text())["images"])
        self.assertIn("9 images", repr(third))

        third.plan(parts, method="minmax", histograms=False)
        self.assertNotIn("histograms", json.loads(parts.read_text()))
        self.assertEqual(pickle.loads(pickle.dumps(third)).plan(parts).images, 9)
        self.assertEqual(tensors(parts), tensors(whole))

    def test_images_may_come_after_a_plan(self) -> None:
        paths = sorted(self.images(4).iterdir())
        whole, plan = self.folder / "whole.json", self.folder / "plan.json"
        pipit.calibrate(MODEL, paths, whole, method="percentile", percentile=99.0)
        calibrator = pipit.Calibrator(MODEL, method="percentile", percentile=99.0)
        for path in paths:
            calibrator.update(path)
            self.assertEqual(calibrator.plan(plan).images, calibrator.images)
        self.assertEqual(tensors(plan), tensors(whole))

    def test_arrays(self) -> None:
        values = random(6, 3, 32, 32)
        folder, whole, plan = self.folder / "arrays", self.folder / "whole.json", self.folder / "plan.json"
        folder.mkdir()
        for index, sample in enumerate(values):
            np.save(folder / f"{index}.npy", sample)
        pipit.calibrate(MODEL, folder, whole)
        calibrator = pipit.Calibrator(MODEL)
        calibrator.update(values[:2])
        calibrator.update([values[2], values[3][None]])
        calibrator.update({"input": values[4:]})
        self.assertEqual(calibrator.plan(plan).images, 6)
        self.assertEqual(tensors(plan), tensors(whole))
        scores = pipit.load(MODEL, precision="int8", plan=plan)(values[:1])
        self.assertEqual(scores.argmax(), pipit.load(MODEL)(values[:1]).argmax())

    def test_errors(self) -> None:
        plan = self.folder / "plan.json"
        calibrator = pipit.Calibrator(MODEL)
        with self.assertRaisesRegex(pipit.ArgumentError, "no images were given"):
            calibrator.plan(plan)
        for samples, message in (
            ([], "there is no sample"),
            (np.zeros(()), "expected paths, or an array"),
            (object(), "samples are of type object"),
            ({"a": np.zeros((2, 3)), "b": np.zeros((3, 3))}, "different numbers of samples"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                calibrator.update(samples)
        with self.assertRaisesRegex(pipit.Error, "nowhere"):
            calibrator.update("nowhere")
        with self.assertRaises(pipit.Error):
            calibrator.update(random(2, 3, 31, 32))
        self.assertEqual(calibrator.images, 0)
        with self.assertRaisesRegex(pipit.ArgumentError, "itself"):
            calibrator.merge(calibrator)
        with self.assertRaisesRegex(TypeError, "'limit'"):
            pipit.Calibrator(MODEL, limit=3)  # type: ignore[call-arg]
        with self.assertRaisesRegex(pipit.ArgumentError, "method='max': expected 'minmax'"):
            pipit.Calibrator(MODEL, method="max")  # type: ignore[arg-type]

        values = random(2, 3, 32, 32)
        calibrator.update(values)
        twice = pipit.Calibrator(MODEL)
        twice.update(values[:1])
        with self.assertRaisesRegex(pipit.Error, "was already counted"):
            calibrator.merge(twice).plan(plan)
        file = self.folder / "other.onnx"
        nodes = [onnx_model.node("Conv", ["x", "w"], "y")]
        weights = onnx_model.tensor("w", onnx_model.FLOAT, [4, 3, 1, 1], random(4, 3, 1, 1).tobytes())
        file.write_bytes(onnx_model.model((1, 3, 4, 4), nodes, [weights]))
        other = pipit.Calibrator(file)
        other.update(random(2, 3, 4, 4))
        with self.assertRaisesRegex(pipit.Error, "different models"):
            other.merge(calibrator).plan(plan)
        self.assertFalse(plan.exists())


if __name__ == "__main__":
    unittest.main()
