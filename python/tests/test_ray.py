"""Ray Data: actors that classify and evaluate, a calibration as an aggregation, workers that are killed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import signal
import sys
import unittest
from typing import Any

# Before Ray is imported: a busy machine takes minutes to start what an idle one starts in seconds.
for name in ("raylet_start_wait_time_s", "worker_register_timeout_seconds", "gcs_server_request_timeout_seconds"):
    os.environ.setdefault(f"RAY_{name}", "900")
os.environ.setdefault("RAY_health_check_timeout_ms", "900000")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
if importlib.util.find_spec("ray") is None or importlib.util.find_spec("pyarrow") is None:
    print("SKIP: Ray Data is not installed: pip install 'ray[data]'")
    sys.exit(77)

import numpy as np  # noqa: E402
import ray  # noqa: E402

import pipit  # noqa: E402
import pipit.ray  # noqa: E402
from support import MODEL, ROOT, PackageTest, random_pixels  # noqa: E402

IMAGES = 24
BATCH = 5


def die_once(flag: str, paths: Any, victim: str) -> None:
    """Kills this process when it comes to `victim`, but not again."""
    if any(str(path).endswith(victim) for path in paths):
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def killed(predictor: type, flag: pathlib.Path, victim: str) -> type:
    """A predictor whose process is killed in the middle of the work."""

    class Killed(predictor):  # type: ignore[misc, valid-type]
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            answers: dict[str, Any] = super().__call__(batch)
            die_once(str(flag), batch["path"], victim)  # its answers are lost
            return answers

    return Killed


class KilledCalibration(pipit.ray.PartialCalibration):
    def __init__(self, flag: pathlib.Path, victim: str, model: str, **options: Any) -> None:
        self._flag, self._victim = str(flag), victim
        super().__init__(model, **options)

    def aggregate_block(self, block: Any) -> bytes:
        part = super().aggregate_block(block)
        from ray.data.block import BlockAccessor

        die_once(self._flag, BlockAccessor.for_block(block).to_numpy(["path"])["path"], self._victim)
        return part


class Killing:
    """A dataset of which a worker is killed in the middle of the work."""

    def __init__(self, dataset: ray.data.Dataset, flag: pathlib.Path, victim: str) -> None:
        self._dataset, self._flag, self._victim = dataset, flag, victim

    def map_batches(self, predictor: type, **options: Any) -> ray.data.Dataset:
        return self._dataset.map_batches(killed(predictor, self._flag, self._victim), **options)

    def aggregate(self, aggregation: pipit.ray.PartialCalibration) -> Any:
        again = KilledCalibration(self._flag, self._victim, aggregation._model, root=aggregation._root)
        return self._dataset.aggregate(again)


class Actors(PackageTest):
    @classmethod
    def setUpClass(cls) -> None:
        ray.init(
            num_cpus=3,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=100 << 20,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
        )
        cls.addClassCleanup(ray.shutdown)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        cls.classifier = pipit.Classifier(MODEL, threads=1, batch=4)

    def setUp(self) -> None:
        super().setUp()
        self.folder = self.folder.resolve()
        self.paths = [str(path) for path in sorted(self.images(IMAGES).iterdir())]
        self.expected = {path: self.classifier(path, top=5) for path in self.paths}

    def dataset(self, paths: list[str], blocks: int = 4) -> ray.data.Dataset:
        """Encoded images with paths, and the class that the name begins with."""
        rows = [
            {"path": path, "bytes": pathlib.Path(path).read_bytes(), "label": int(pathlib.Path(path).name[0])}
            for path in paths
        ]
        return ray.data.from_items(rows, override_num_blocks=blocks)

    def assert_answered(self, rows: list[dict[str, Any]], damaged: tuple[str, ...] = ()) -> None:
        """Each image once, with the bits that one process gives."""
        self.assertEqual(sorted(row["path"] for row in rows), sorted([*self.paths, *damaged]))
        for row in rows:
            if row["path"] in damaged:
                self.assertEqual((row["class"], row["class_label"], row["probability"]), (-1, "", 0))
                self.assertIn(f"{row['path']}: not a JPEG", row["error"])
            else:
                best = self.expected[row["path"]][0]
                self.assertEqual((row["class"], row["class_label"]), (best.index, best.label))
                self.assertEqual((row["probability"], row["error"]), (best.probability, ""))

    def answers(self, dataset: ray.data.Dataset, **options: Any) -> list[dict[str, Any]]:
        found = pipit.ray.classify(dataset, MODEL, actors=2, batch_size=BATCH, batch=4, **options)
        rows: list[dict[str, Any]] = found.take_all()
        return rows

    def damage(self) -> str:
        path = self.folder / "images" / "0_damaged.bmp"
        path.write_bytes(b"no image")
        return str(path)

    def test_several_classes(self) -> None:
        for row in self.answers(self.dataset(self.paths[:3], 1), top=3):
            expected = self.expected[row["path"]][:3]
            self.assertEqual(list(row["class"]), [one.index for one in expected])
            self.assertEqual(list(row["class_label"]), [one.label for one in expected])
            np.testing.assert_array_equal(row["probability"], np.float32([one.probability for one in expected]))

    def test_columns_of_paths_and_of_pixels(self) -> None:
        predictor = pipit.ray.Predictor.__new__(pipit.ray.Predictor)  # outside of an actor
        predictor._classifier, predictor._top, predictor._damaged = self.classifier, 1, "raise"
        for column, value in (("path", self.paths[:6]), ("image", [random_pixels(i) for i in range(6)])):
            predictor._column = column
            found = predictor({"number": np.arange(6), column: np.array(value)})
            self.assertEqual({*found}, {"number", *pipit.ray.ANSWERS})
            self.assertEqual([*found["class"]], [one[0].index for one in self.classifier(value, top=1)])
        with self.assertRaisesRegex(pipit.ArgumentError, "no column 'image' with images; there are path"):
            predictor({"path": np.array(self.paths)})
        with self.assertRaisesRegex(pipit.ArgumentError, "the column 'error' would be replaced"):
            predictor({"image": np.array(value), "error": np.zeros(6)})

    def test_threads_are_those_of_the_actor(self) -> None:
        class Told(pipit.ray.Predictor):
            def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
                return {"threads": np.full(len(batch["path"]), self._classifier._recipe[1]["threads"])}

        found = self.dataset(self.paths[:4], 1).map_batches(
            Told, fn_constructor_args=(MODEL,), compute=ray.data.ActorPoolStrategy(size=1), num_cpus=2
        )
        self.assertEqual({row["threads"] for row in found.take_all()}, {2})

    def test_a_damaged_image_is_named_or_an_error(self) -> None:
        damaged = self.damage()
        dataset = self.dataset([*self.paths[:7], damaged, *self.paths[7:]])
        self.assert_answered(self.answers(dataset, damaged="name"), (damaged,))
        with self.assertRaisesRegex(Exception, "0_damaged.bmp: not a JPEG"):
            self.answers(dataset)
        with self.assertRaisesRegex(pipit.ArgumentError, "damaged='skip': expected 'raise' or 'name'"):
            pipit.ray.Predictor(MODEL, damaged="skip")

    def test_an_empty_shard(self) -> None:
        some = self.dataset(self.paths, 3)
        nothing = some.filter(lambda row: False)
        self.assert_answered(self.answers(some.union(nothing)))
        self.assertEqual(self.answers(nothing), [])
        with self.assertRaisesRegex(pipit.Error, "no images"):
            pipit.ray.evaluate(nothing, MODEL)
        with self.assertRaisesRegex(pipit.Error, "no images"):
            pipit.ray.calibrate(nothing, MODEL, self.folder / "plan.json")
        self.assertFalse((self.folder / "plan.json").exists())

    def test_a_worker_that_is_killed_loses_and_repeats_nothing(self) -> None:
        flag = self.folder / "killed"
        killing: Any = Killing(self.dataset(self.paths), flag, os.path.basename(self.paths[11]))
        rows = self.answers(killing)
        self.assertTrue(flag.exists())
        self.assert_answered(rows)

    def test_evaluate(self) -> None:
        damaged = self.damage()
        single = pipit.evaluate(MODEL, self.folder / "images")
        dataset = self.dataset([*self.paths, damaged])
        flag = self.folder / "killed"
        killing: Any = Killing(dataset, flag, os.path.basename(self.paths[3]))
        found = pipit.ray.evaluate(killing, MODEL, actors=2, batch_size=BATCH)
        self.assertTrue(flag.exists())
        self.assertEqual((found.right.count, found.right.of), (single.right.count, single.right.of))
        self.assertEqual((found.top5.count, found.top5.of), (single.top5.count, single.top5.of))
        self.assertEqual((found.right.low, found.right.high), (single.right.low, single.right.high))
        self.assertEqual([path for path, _ in found.excluded], [damaged])
        named = [{"image": path, "kind": self.classifier.labels[int(os.path.basename(path)[0])]} for path in self.paths]
        file = self.folder / "set.parquet"
        ray.data.from_items(named).write_parquet(file)
        found = pipit.ray.evaluate(ray.data.read_parquet(file), MODEL, column="image", label="kind")
        self.assertEqual((found.right.count, found.right.of), (single.right.count, IMAGES))
        self.assertEqual(found.excluded, [])
        judge = pipit.ray._Judge.__new__(pipit.ray._Judge)  # outside of an actor
        judge._classifier = self.classifier
        self.assertEqual([judge._class("airplane"), judge._class(np.int64(9))], [0, 9])
        for label, message in ((10, "label 10 is no class"), (-1, "-1"), ("dinosaur", "label 'dinosaur' is no class")):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                judge._class(label)

    def test_the_plan_of_a_calibration_is_that_of_one_process(self) -> None:
        damaged = self.damage()
        alone, together = self.folder / "alone.json", self.folder / "together.json"
        images = self.folder / "images"
        single = pipit.calibrate(MODEL, images, alone)
        dataset = self.dataset([damaged, *reversed(self.paths)], blocks=5)
        found = pipit.ray.calibrate(dataset, MODEL, together, root=images)
        self.assertEqual(together.read_bytes(), alone.read_bytes())
        self.assertEqual((found.images, len(found.excluded)), (single.images, 1))
        self.assertEqual(str(found.excluded[0].path), "0_damaged.bmp")

        flag = self.folder / "killed"
        together.unlink()
        killing: Any = Killing(dataset, flag, os.path.basename(self.paths[8]))
        pipit.ray.calibrate(killing, MODEL, together, root=images)
        self.assertTrue(flag.exists())
        self.assertEqual(together.read_bytes(), alone.read_bytes())
        together.unlink()
        with self.assertRaisesRegex(Exception, "0_damaged.bmp: not a JPEG"):
            pipit.ray.calibrate(dataset, MODEL, together, root=images, strict=True)
        with self.assertRaisesRegex(Exception, "0_0.bmp: two rows have this name|image '0_0.bmp' was already counted"):
            pipit.ray.calibrate(self.dataset([*self.paths, self.paths[0]], 2), MODEL, together, root=images)
        self.assertFalse(together.exists())

    def test_document(self) -> None:
        self.images(20, "photos")
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        [block] = [
            block
            for block in re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs/distributed.md").read_text())
            if block.startswith("import ray\n")
        ]
        for name in ("photos", "answers"):  # relative paths are those of Ray's workers
            block = block.replace(f'"{name}"', repr(str(self.folder / name)))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block, {})
        self.assertIn("20 []", printed.getvalue())
        self.assertTrue(list((self.folder / "answers").glob("*.parquet")))

    def test_many_parts_are_merged_on_the_way(self) -> None:
        before, pipit.ray.TOGETHER = pipit.ray.TOGETHER, 2
        self.addCleanup(setattr, pipit.ray, "TOGETHER", before)
        aggregation = pipit.ray.PartialCalibration(MODEL, threads=1)
        accumulator = b""
        for path in self.paths[:4]:
            block = {"path": np.array([path]), "bytes": np.array([pathlib.Path(path).read_bytes()], object)}
            accumulator = aggregation.combine(
                accumulator, aggregation.aggregate_block(ray.data.block.BlockAccessor.batch_to_block(block))
            )
        self.assertLessEqual(len(pipit.ray._unpacked(accumulator)), 2)
        calibrator = pipit.Calibrator(MODEL, threads=1)
        for part in pipit.ray._unpacked(accumulator):
            calibrator.merge(part)
        self.assertEqual(calibrator.images, 4)


if __name__ == "__main__":
    unittest.main()
