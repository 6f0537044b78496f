"""Calibrations in parts: processes, Dask, pickles, what cannot be used, what ends in the middle."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import unittest

import numpy as np

import pipit
from support import MODEL, ROOT, PackageTest, onnx_model, random


def counted(paths: list[str], root: str) -> pipit.Calibrator:
    """What a worker returns."""
    calibrator = pipit.Calibrator(MODEL, root=root, threads=1)
    calibrator.update(paths)
    return calibrator


def merged(parts: list[pipit.Calibrator]) -> pipit.Calibrator:
    first, *others = parts
    return first.merge(*others)


class Parts(PackageTest):
    def setUp(self) -> None:
        super().setUp()
        self.root = self.images(12)
        (self.root / "deeper").mkdir()
        for name in ("3_3.bmp", "7_7.bmp"):  # "deeper/3" comes after "3" as text, and before it as a path
            (self.root / name).rename(self.root / "deeper" / name)
        (self.root / "deeper" / "copy.bmp").write_bytes((self.root / "0_0.bmp").read_bytes())
        self.paths = [str(path) for path in sorted(self.root.rglob("*.bmp"))]
        self.whole = self.folder / "whole.json"
        self.single = pipit.calibrate(MODEL, self.root, self.whole, threads=1)
        self.plan = self.folder / "plan.json"

    def assert_same_plan(self, calibrator: pipit.Calibrator) -> pipit.Calibration:
        found = calibrator.plan(self.plan)
        self.assertEqual(self.plan.read_bytes(), self.whole.read_bytes())
        self.assertEqual((found.images, found.notes), (self.single.images, self.single.notes))
        return found

    def test_the_plan_is_that_of_one_process(self) -> None:
        self.assertEqual(len(self.paths), 13)
        one, other = counted(self.paths[7:], str(self.root)), counted(self.paths[:3], str(self.root))
        other.update({os.path.relpath(path, self.root): pathlib.Path(path).read_bytes() for path in self.paths[3:7]})
        nothing = pipit.Calibrator(MODEL, root=self.root)
        nothing.update([])
        nothing.update({})
        self.assert_same_plan(pipit.Calibrator(MODEL).merge(nothing, other, one, nothing.part()))
        self.assert_same_plan(one.merge(nothing).merge(other))
        self.assertEqual((one.images, other.images, nothing.images), (13, 7, 0))
        everything = pipit.Calibrator(MODEL, root=self.root)
        everything.update(self.root)
        told: list[pipit.Progress] = []
        again = pipit.Calibrator(MODEL, root=self.root)
        again.update(self.paths, progress=told.append)
        self.assertEqual((told[-1].stage, told[-1].done, told[-1].total), ("calibrating", 13, 13))
        self.assert_same_plan(everything)
        self.assert_same_plan(again)
        wide = everything.plan(self.plan, method="minmax", histograms=False)
        self.assertEqual(wide.method, "minmax")
        self.assertNotIn("histograms", json.loads(self.plan.read_text()))
        self.assertIn("13 images", repr(everything))

    def test_a_pickle_goes_on_where_it_was(self) -> None:
        half = counted(self.paths[:6], str(self.root))
        again = pickle.loads(pickle.dumps(half))
        self.assertEqual(again.part(), half.part())
        self.assertEqual(again.images, 6)
        again.update(self.paths[6:])
        self.assert_same_plan(pickle.loads(pickle.dumps(again)))
        self.assertEqual(half.images, 6)

    def test_images_may_come_after_a_plan(self) -> None:
        pipit.calibrate(MODEL, self.root, self.whole, method="percentile", percentile=99.0)
        calibrator = pipit.Calibrator(MODEL, root=self.root, method="percentile", percentile=99.0)
        for paths in (self.paths[:1], self.paths[1:8], self.paths[8:]):
            calibrator.update(paths)
            self.assertEqual(calibrator.plan(self.plan).images, calibrator.images)
        self.assertEqual(self.plan.read_bytes(), self.whole.read_bytes())

    def test_multiprocessing(self) -> None:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            shards = [self.paths[0::3], [], self.paths[1::3], self.paths[2::3]]
            parts = pool.map(functools.partial(counted, root=str(self.root)), shards)
        self.assert_same_plan(merged(parts))

    @unittest.skipUnless(importlib.util.find_spec("dask"), "Dask is not installed")
    def test_dask(self) -> None:
        import dask.bag

        bag = dask.bag.from_sequence(self.paths, npartitions=3)
        count = functools.partial(counted, root=str(self.root))
        reduced = bag.reduction(lambda paths: count([*paths]), lambda parts: merged([*parts]), split_every=2)
        self.assert_same_plan(reduced.compute(scheduler="processes", num_workers=2))

    @unittest.skipUnless(importlib.util.find_spec("dask"), "Dask is not installed")
    def test_document(self) -> None:
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.images(20, "photos").rename(self.root.rename("before").with_name("images"))
        [block] = [
            block
            for block in re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs/distributed.md").read_text())
            if block.startswith("import dask.bag\n")
        ]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block, {})
        self.assertEqual(printed.getvalue(), "20\n")

    def test_images_that_cannot_be_used(self) -> None:
        files = {os.path.relpath(path, self.root): pathlib.Path(path).read_bytes() for path in self.paths}
        calibrator = pipit.Calibrator(MODEL)
        calibrator.update({"a damaged one": b"BM", **files, "text": b"no image"})
        other = pipit.Calibrator(MODEL)
        other.update({"more text": b"no image"})
        with self.assertRaisesRegex(pipit.Error, r"more text: not a JPEG.*\(none of 1 image can be used\)"):
            other.plan(self.plan)
        calibrator.merge(other)
        found = calibrator.plan(self.plan)
        self.assertEqual(self.plan.read_bytes(), self.whole.read_bytes())
        self.assertEqual([str(one.path) for one in found.excluded], ["a damaged one", "more text", "text"])
        self.assertEqual([one.error for one in calibrator.excluded], [one.error for one in found.excluded])
        self.assertIn("3 of 16 images cannot be used and are excluded", " ".join(found.notes))
        strict = pipit.Calibrator(MODEL, strict=True)
        with self.assertRaisesRegex(pipit.Error, "^text: not a JPEG"):
            strict.update({"a": files["0_0.bmp"], "text": b"no image"})
        for call in (strict.part, lambda: strict.plan(self.plan), lambda: strict.update(files)):
            with self.assertRaisesRegex(pipit.Error, "make another Calibrator"):
                call()
        with self.assertRaisesRegex(pipit.Error, "nothing.bmp: cannot be read"):
            pipit.Calibrator(MODEL).update(self.folder / "nothing.bmp")

    def test_no_image_counts_twice(self) -> None:
        one, other = counted(self.paths[:4], str(self.root)), counted(self.paths[3:], str(self.root))
        part = one.part()
        with self.assertRaisesRegex(pipit.Error, "image '.*' was already counted"):
            one.merge(other)
        with self.assertRaisesRegex(pipit.Error, "image '.*' was already counted"):
            one.update(self.paths[3:])
        self.assertEqual((one.part(), one.images), (part, 4))
        with self.assertRaisesRegex(pipit.ArgumentError, "itself"):
            one.merge(one)

    def test_refuses_what_does_not_fit(self) -> None:
        calibrator = counted(self.paths[:2], str(self.root))
        for other, message in (
            (pipit.Calibrator(MODEL, method="minmax"), "different methods"),
            (pipit.Calibrator(MODEL, keep="first=fp32"), "keep different nodes"),
            (pipit.Calibrator(MODEL, preset="timm"), "prepared differently"),
        ):
            other.update(self.paths[2:4])
            with self.assertRaisesRegex(pipit.Error, message):
                calibrator.merge(other)
        for part in (b"", b"{}", b"{}\n", b"\xff\n{}", b'{"pipit_calibration_part": 9}\n'):
            with self.assertRaisesRegex(pipit.Error, "not a part of a calibration"):
                calibrator.merge(part)
        self.assertEqual(calibrator.images, 2)
        with self.assertRaisesRegex(pipit.Error, "no images were given"):
            pipit.Calibrator(MODEL).plan(self.plan)
        self.assertFalse(self.plan.exists())
        with self.assertRaisesRegex(pipit.ArgumentError, "is not below root="):
            calibrator.update("/dev/null")
        with self.assertRaisesRegex(pipit.ArgumentError, "need all images at once"):
            pipit.Calibrator(MODEL, bias_correction=True)
        for option in ("limit", "trt_cache"):
            with self.assertRaisesRegex(TypeError, f"'{option}'"):
                pipit.Calibrator(MODEL, **{option: 3})
        with self.assertRaisesRegex(pipit.ArgumentError, "method='max': expected 'minmax'"):
            pipit.Calibrator(MODEL, method="max")  # type: ignore[arg-type]
        file = self.folder / "other.onnx"
        nodes = [onnx_model.node("Conv", ["x", "w"], "y")]
        weights = onnx_model.tensor("w", onnx_model.FLOAT, [4, 3, 1, 1], random(4, 3, 1, 1).tobytes())
        file.write_bytes(onnx_model.model((1, 3, 4, 4), nodes, [weights]))
        other = pipit.Calibrator(file)
        other.update(random(2, 3, 4, 4))
        with self.assertRaisesRegex(pipit.Error, "different models"):
            other.merge(calibrator)

    def test_arrays(self) -> None:
        values = random(6, 3, 32, 32)
        arrays = self.folder / "arrays"
        arrays.mkdir()
        for i, value in enumerate(values):
            np.save(arrays / f"{i}.npy", value)
        pipit.calibrate(MODEL, arrays, self.whole, threads=1)
        by_file = pipit.Calibrator(MODEL, root=arrays)
        by_file.update(arrays)
        by_file.plan(self.plan)
        self.assertEqual(self.plan.read_bytes(), self.whole.read_bytes())
        one, other = pipit.Calibrator(MODEL), pipit.Calibrator(MODEL)
        one.update(values[:3])
        one.update([values[3], values[3][None]])
        other.update({"input": values[4:]})
        other.update(random(1, 3, 31, 32))  # as an image of another size
        found = pipit.Calibrator(MODEL).merge(one, other).plan(self.plan)
        self.assertEqual((found.images, len(found.excluded)), (7, 1))
        self.assertIn("an array of", found.excluded[0].error)
        tensors = [json.loads(path.read_text())["tensors"] for path in (self.plan, self.whole)]
        self.assertEqual([one["max"] for one in tensors[0]], [one["max"] for one in tensors[1]])
        twice = pipit.Calibrator(MODEL)
        twice.update(values[:1])
        with self.assertRaisesRegex(pipit.Error, "was already counted"):
            one.merge(twice)
        for samples, message in (
            (np.zeros(()), "expected paths, a dict of encoded images, or an array"),
            (object(), "samples are of type object"),
            ({"a": np.zeros((2, 3)), "b": np.zeros((3, 3))}, "different numbers of samples"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                one.update(samples)
        with self.assertRaisesRegex(pipit.ArgumentError, "images and arrays cannot be in one calibration"):
            one.update(self.paths[:1])
        with self.assertRaisesRegex(pipit.ArgumentError, "images only"):
            pipit.Calibrator(MODEL, preset="timm").update(values)


if __name__ == "__main__":
    unittest.main()
