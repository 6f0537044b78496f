"""Evaluating, calibrating, quantizing, comparing: results as structs and dicts, files, progress, interrupts."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import threading
import time
import unittest
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random


class Tools(PackageTest):
    def test_evaluate(self) -> None:
        told: list[pipit.Progress] = []
        found = pipit.evaluate(MODEL, self.images(20), against="bf16", max_drop=5, batch=4, progress=told.append)
        self.assertEqual((found.measure, found.right.of, found.against.drop.images), ("top-1", 20, 20))
        self.assertLessEqual(found.right.low, found.right.value)
        self.assertIn(found.against.judged.verdict, ("proven", "not proven", "broken"))
        self.assertEqual(found.to_dict(), json.loads(found.json))
        self.assertEqual(found.to_dict()["command"], "evaluate")
        self.assertIn("right=Share(count=", repr(found))
        self.assertEqual((told[-1].stage, told[-1].done), ("evaluating", told[-1].total))
        self.assertEqual(found.labels[0], "airplane")

    @unittest.skipUnless(importlib.util.find_spec("tqdm"), "tqdm is not installed")
    def test_progress_as_a_bar(self) -> None:
        images = self.images(4)
        for progress, shown in ((True, True), (False, False), (None, False)):  # stderr is no terminal
            with contextlib.redirect_stderr(io.StringIO()) as written:
                pipit.evaluate(MODEL, images, progress=progress)
            self.assertEqual("evaluating" in written.getvalue() and "4/4" in written.getvalue(), shown)

    def test_from_calibration_to_an_int8_file(self) -> None:
        images, plan, quantized = self.images(12), self.folder / "plan.json", self.folder / "int8.onnx"
        calibrated = pipit.calibrate(MODEL, images, plan, method="entropy", limit=10, preset="timm", progress=False)
        self.assertEqual((calibrated.images, calibrated.method), (10, "entropy"))
        self.assertGreater(calibrated.tensors[0].scale, 0)
        with self.assertLogs("pipit", "WARNING") as logged:
            model = pipit.load(MODEL, precision="int8", plan=plan)
            classifier = pipit.Classifier(MODEL, precision="int8", plan=plan)
        self.assertEqual([record.getMessage() for record in logged.records], [*model.notes, *classifier.notes])
        pixels = random(1, 3, 32, 32)
        file = pipit.quantize(MODEL, plan, quantized)
        self.assertEqual((file.bytes, file.float_layers), (quantized.stat().st_size, 0))
        np.testing.assert_array_equal(pipit.load(quantized)(pixels), model(pixels))
        for target in ("tensorrt", "onnxruntime", "openvino"):
            file = pipit.quantize(MODEL, plan, quantized, target=target)
            self.assertEqual((file.to_dict()["target"], file.float_layers), (target, 0))
        with self.assertRaisesRegex(pipit.ArgumentError, "Concat"):
            pipit.quantize(MODEL, plan, quantized, target="openvino", signed_activations=True)
        for precision, scales in (("int8", plan), ("w4", None)):
            file = pipit.quantize(MODEL, scales, quantized, precision=precision, images=images, limit=8, progress=False)
            self.assertEqual((file.rounding, file.images), ("second-order", 8))
            self.assertEqual(file.stored_layers if scales is None else file.int8_layers, len(file.rounded))
            self.assertLess(sum(one.rounded for one in file.rounded), sum(one.nearest for one in file.rounded))
        with self.assertRaisesRegex(pipit.ArgumentError, "needs images"):
            pipit.quantize(MODEL, plan, quantized, rounding="second-order")

        difference = pipit.diff(MODEL, [*images.iterdir()][:4], plan, share_limit=1, threads=1)
        self.assertEqual((difference.images, difference.scores), (4, "logits"))
        self.assertEqual(difference.layers[0].type, "Conv")
        self.assertGreater(difference.layers[0].error.sqnr_db, 0)
        self.assertIsNotNone(difference.layers[0].noise_alone)
        self.assertIsNone(pipit.diff(MODEL, images, plan, shares=False, limit=1).layers[0].noise_alone)

    def test_merged_calibrations_are_one(self) -> None:
        paths = sorted(self.images(8).iterdir())
        for name, part in (("a.json", paths[:4]), ("b.json", paths[4:]), ("all.json", paths)):
            pipit.calibrate(MODEL, part, self.folder / name)
        merged = pipit.merge_calibrations([self.folder / "a.json", self.folder / "b.json"], self.folder / "merged.json")
        self.assertEqual(merged.images, 8)
        one, other = (json.loads((self.folder / name).read_text())["tensors"] for name in ("all.json", "merged.json"))
        self.assertEqual(one, other)
        again = pipit.merge_calibrations(self.folder / "all.json", self.folder / "minmax.json", method="minmax")
        self.assertEqual(again.method, "minmax")

    def test_tune(self) -> None:
        tuned = pipit.tune(
            MODEL,
            self.images(40),
            self.folder / "tuned.json",
            judge_by="model",
            calibrate_limit=4,
            keep_as="fp32",
            max_drop=50,
            confidence=50,
            threads=1,
        )
        self.assertEqual((tuned.keep_as, tuned.measure), ("fp32", "agreement with fp32"))
        self.assertGreater(tuned.steps[0].ms, 0)
        self.assertTrue((self.folder / "tuned.json").exists())

    def test_prune(self) -> None:
        told: list[pipit.Progress] = []
        output = self.folder / "pruned.onnx"
        pruned = pipit.prune(
            MODEL,
            self.images(8),
            output,
            keep=0.5,
            judge_by="model",
            importance="l1",
            refit=False,
            threads=1,
            progress=told.append,
        )
        self.assertEqual((pruned.problem, pruned.passed, pruned.bytes), ("", True, output.stat().st_size))
        self.assertIsNone(pruned.reached)
        self.assertGreater(pruned.speedup.high, pruned.speedup.low)
        self.assertAlmostEqual(pruned.macs_kept, 0.5, delta=0.03)
        self.assertIn("tap", {layer.rows for layer in pruned.layers})
        self.assertTrue(pruned.steps[0].chosen)
        self.assertGreater(pruned.steps[0].speedup.median, 0)
        self.assertEqual(pruned.to_dict()["command"], "prune")
        self.assertIn("checking", {progress.stage for progress in told})
        self.assertEqual(pipit.load(output)(random(1, 3, 32, 32)).shape, (1, 10))
        for options, message in (
            ({}, "exactly one goal"),
            ({"keep": 0.5, "mode": "rows"}, "mode='rows': expected 'auto', 'k', 'channel'"),
            ({"keep": "first=fp32"}, "keep='first=fp32': expected"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                pipit.prune(MODEL, self.folder / "images", output, **options)

    def test_bench_and_compare(self) -> None:
        np.save(self.folder / "input.npy", random(1, 3, 32, 32))
        files = self.folder / "a.json", self.folder / "b.json"
        told: list[pipit.Progress] = []
        found = pipit.bench(
            MODEL,
            precision=["fp32", "bf16"],
            batch=2,
            threads=[1],
            runs=4,
            inputs={"input": self.folder / "input.npy"},
            progress=told.append,
        )
        self.assertEqual(
            [(row.precision, row.batch, row.threads) for row in found.rows], [("fp32", 2, 1), ("bf16", 2, 1)]
        )
        self.assertEqual([row.error for row in found.rows], ["", ""])
        self.assertEqual(len(found.rows[0].samples_ms), found.rows[0].runs)
        self.assertGreater(found.rows[0].median_ms, 0)
        self.assertIn(found.comparisons[0].ratio.change, ("none", "slower", "faster", "unknown"))
        self.assertEqual([(progress.done, progress.total) for progress in told], [(0, 2)])  # both in turns
        self.assertIn("fp32", told[0].found)
        found.save(files[0])
        found.save(self.folder / "rows.csv")
        found.save(self.folder / "rows.html")
        self.assertIn("fp32, batch 2", (self.folder / "rows.html").read_text())
        pipit.bench([MODEL], precision=["fp32", "bf16"], batch=[2], threads=1, runs=4).save(files[1])
        compared = pipit.compare(*files, max_slowdown=1000)
        self.assertEqual(len(compared.comparisons), 2)
        self.assertEqual(compared.comparisons[0].ratio.verdict, "too few processes")
        self.assertEqual(compared.to_dict()["command"], "compare")
        with self.assertRaisesRegex(TypeError, "precision= may be a list"):
            pipit.bench(MODEL, precisions=["fp32"])
        with self.assertRaisesRegex(pipit.ArgumentError, "precision='int9': expected 'fp32'"):
            pipit.bench(MODEL, precision="int9")

    def test_verify(self) -> None:
        x = np.array([[1.5, -2.0]], np.float32)
        data = self.folder / "case/test_data_set_0"
        data.mkdir(parents=True)
        (data.parent / "model.onnx").write_bytes(onnx_model.model([1, 2], [onnx_model.node("Neg", ["x"], "y")]))
        (data / "input_0.pb").write_bytes(onnx_model.tensor("x", onnx_model.FLOAT, [1, 2], x.tobytes()))
        for values, verdict in ((-x, "passed"), (x, "failed")):
            (data / "output_0.pb").write_bytes(onnx_model.tensor("y", onnx_model.FLOAT, [1, 2], values.tobytes()))
            found = pipit.verify(self.folder, rtol=1e-6, threads=1)
            self.assertEqual([(test.verdict, test.folder.name) for test in found.tests], [(verdict, "case")])
            self.assertEqual(found.passed + found.failed, 1)
        self.assertEqual(found.tests[0].max_error, 4)
        self.assertEqual(found.to_dict()["command"], "verify")
        with self.assertRaises(pipit.Error):
            pipit.verify([self.images(1)])

    def test_annotate(self) -> None:
        labels, bare, out = self.folder / "labels.txt", self.folder / "bare.onnx", self.folder / "out.onnx"
        labels.write_text("\n".join(f"class {i}" for i in range(12)))
        bare.write_bytes(onnx_model.flatten())
        written = pipit.annotate(bare, out, labels=labels, preset="timm", scores="softmax")
        self.assertEqual((written.labels, written.scores, written.bytes), (12, "softmax", out.stat().st_size))
        self.assertEqual(pipit.Classifier(out).labels[-1], "class 11")
        with self.assertRaises(pipit.ArgumentError):
            pipit.annotate(bare, self.folder / "nothing.onnx")

    def test_sweep_of_convolutions(self) -> None:
        told: list[pipit.Progress] = []
        rows = self.folder / "rows.jsonl"
        options: dict[str, Any] = {
            "in_channels": 8,
            "out_channels": [8, 16],
            "size": 12,
            "kernel": [1, 3],
            "stride": 1,
            "batch": 1,
        }
        options |= {"precision": ["fp32", "bf16"], "seconds": 0.001, "threads": 1, "results": rows}
        found = pipit.sweep_convolutions(**options, progress=told.append)
        self.assertEqual(len(found.rows), 8)
        self.assertEqual(
            {(row.point.kernel, row.point.out_channels) for row in found.rows}, {(1, 8), (1, 16), (3, 8), (3, 16)}
        )
        self.assertTrue(all(row.times.ms > 0 and not row.problem for row in found.rows))
        [against] = {row.against[0].base for row in found.rows if row.precision == "bf16"}
        self.assertEqual((found.bases, against), (["fp32"], "fp32"))
        [summary] = [one for one in found.summaries if one.precision == "bf16"]
        self.assertEqual(summary.all.rows, 4)
        self.assertEqual(len(rows.read_text().splitlines()), 9)
        self.assertEqual((told[0].stage, told[0].total), ("sweeping", 4))
        self.assertEqual(found.to_dict()["command"], "sweep conv")
        for name in ("sweep.json", "sweep.csv", "sweep.html"):
            found.save(self.folder / name)
            self.assertGreater((self.folder / name).stat().st_size, 0)
        again = pipit.sweep_convolutions(**options, resume=True)
        self.assertEqual([row.times.ms for row in again.rows], [row.times.ms for row in found.rows])
        for wrong, message in (
            ({"precision": "int9"}, "precision='int9'|precisions"),
            ({"kernel": "large"}, r"kernel=\['large'\]: expected"),
            ({"batch": 0, "size": 8, "sample": 1}, "0"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                pipit.sweep_convolutions(**wrong)
        with self.assertRaisesRegex(TypeError, "precision= may be a list"):
            pipit.sweep_convolutions(precisions=["fp32"])  # type: ignore[call-arg]
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'grid'"):
            pipit.sweep_convolutions(grid=1)  # type: ignore[call-arg]

    def test_sweep_of_sparsity(self) -> None:
        found = pipit.sweep_sparsity(
            layers=["1x16x8x8:16x3x3", "1x16x8x8:32x1x1:p0"],
            mode=["k", "channel"],
            keep=[1, 0.5],
            seconds=0.001,
            threads=1,
        )
        self.assertEqual([(row.mode, row.keep) for row in found.rows[:3]], [(None, 1), ("k", 0.5), ("channel", 0.5)])
        self.assertGreater(found.rows[1].error.relative_l2, 0)
        self.assertLess(found.rows[1].refit.relative_l2, found.rows[1].error.relative_l2)
        self.assertEqual((found.rows[0].kept, found.rows[0].error.mae), (1, 0))
        found.save(self.folder / "sweep.html")
        model = self.folder / "model.onnx"
        weights = onnx_model.tensor("w", onnx_model.FLOAT, [8, 8, 1, 1], random(8, 8, 1, 1).tobytes())
        model.write_bytes(
            onnx_model.model(("N", 8, 4, 4), [onnx_model.node("Conv", ["x", "w"], "y", "conv")], [weights])
        )
        of_model = pipit.sweep_sparsity(model, batch=2, mode="k", keep=0.5, importance="l1", refit=False, seconds=1e-3)
        self.assertEqual([(row.layer, row.refit) for row in of_model.rows], [("conv", None)])
        with self.assertRaisesRegex(pipit.ArgumentError, "16by3"):
            pipit.sweep_sparsity(layers="16by3")
        with self.assertRaisesRegex(TypeError, "mode= may be a list"):
            pipit.sweep_sparsity(modes=["k"])  # type: ignore[call-arg]

    def test_models_that_have_names(self) -> None:
        found = pipit.models()
        names = {one.model.name: one for one in found.models}
        self.assertTrue(names[MODEL].is_here)
        self.assertEqual((names[MODEL].model.weights, names[MODEL].model.classes), ("built-in", 10))
        self.assertIn("fetched", {one.model.weights for one in found.models})
        self.assertEqual(found.to_dict()["command"], "models")
        for names_of_no_file in (MODEL, ["nothing"]):
            with self.assertRaisesRegex(pipit.ArgumentError, "efficientnet-lite0"):
                pipit.fetch(names_of_no_file)

    def test_ceilings(self) -> None:
        before = os.environ.get("PIPIT_CACHE_DIR")
        os.environ["PIPIT_CACHE_DIR"] = str(self.folder)
        self.addCleanup(
            os.environ.update if before else os.environ.pop,
            *([{"PIPIT_CACHE_DIR": before}] if before else ["PIPIT_CACHE_DIR"]),
        )
        with self.assertRaises(pipit.Error):
            pipit.ceilings(kept=True, threads=1)
        told: list[pipit.Progress] = []
        measured = pipit.ceilings(threads=1, progress=told.append)
        self.assertEqual(told[-1].done, told[-1].total)
        self.assertGreater(measured.ceilings.arithmetic[0].flops.best, 0)
        self.assertEqual(measured.ceilings.memory[-1].name, "memory")
        again = pipit.ceilings(threads=1, kept=True)
        self.assertEqual(again.ceilings.measured_at, measured.ceilings.measured_at)
        self.assertTrue(again.file.is_relative_to(self.folder))
        with self.assertRaisesRegex(pipit.ArgumentError, "device='tpu'"):
            pipit.ceilings(device="tpu")

    def test_machine(self) -> None:
        facts = pipit.machine()
        self.assertEqual(facts.findings[0].name, "pipit")
        self.assertEqual(facts.findings[0].value, pipit.__version__)
        self.assertEqual(facts.to_dict()["command"], "doctor")

    def test_wrong_arguments(self) -> None:
        with self.assertRaisesRegex(TypeError, r"calibrate\(\) got an unexpected keyword argument 'limits'"):
            pipit.calibrate(MODEL, "images", "plan.json", limits=3)
        with self.assertRaisesRegex(TypeError, "'plan'"):
            pipit.calibrate(MODEL, "images", "plan.json", plan="other.json")
        with self.assertRaisesRegex(
            pipit.ArgumentError, "method='max': expected 'minmax', 'percentile', 'entropy', 'mse'"
        ):
            pipit.calibrate(MODEL, "images", "plan.json", method="max")
        with self.assertRaisesRegex(pipit.ArgumentError, "model is of type bytes"):
            pipit.evaluate(b"", "images")
        with self.assertRaisesRegex(pipit.ArgumentError, "the largest drop is -1 points"):
            pipit.tune(MODEL, self.images(4), self.folder / "plan.json", max_drop=-1)
        with self.assertRaisesRegex(pipit.Error, "nowhere"):
            pipit.evaluate(MODEL, self.folder / "nowhere")


class Interrupts(PackageTest):
    """Work of which progress is told several times before it ends."""

    IMAGES = 240

    def setUp(self) -> None:
        super().setUp()
        self.paths = self.images(self.IMAGES)
        self.plan = self.folder / "plan.json"
        self.calls: list[pipit.Progress] = []

    def assert_ended(self) -> None:
        """Nothing was written, nor is later, and no thread of the work is left."""
        self.assert_no_thread_is_left()
        self.assertEqual([path.name for path in self.folder.iterdir()], ["images"])
        self.assertLess(self.calls[-1].done, self.IMAGES)

    def assert_no_thread_is_left(self) -> None:
        for _ in range(500):
            if len(os.listdir("/proc/self/task")) <= self.threads:
                return
            time.sleep(0.01)
        self.fail("a thread of the work is left")

    def calibrate(self, stop: object) -> None:
        pipit.load(MODEL, threads=1)
        self.threads = len(os.listdir("/proc/self/task"))

        def told(progress: pipit.Progress) -> None:
            self.assertIs(threading.current_thread(), threading.main_thread())
            self.calls.append(progress)
            stop()  # type: ignore[operator]

        pipit.calibrate(MODEL, self.paths, self.plan, threads=1, progress=told)

    def test_an_exception_in_progress_ends_the_work(self) -> None:
        def stop() -> None:
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            self.calibrate(stop)
        self.assert_ended()

    def test_an_interrupt_ends_the_work(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            self.calibrate(lambda: os.kill(os.getpid(), signal.SIGINT))
        self.assert_ended()

    def test_an_interrupt_ends_profiling(self) -> None:
        model = pipit.load(MODEL, threads=1)
        model.profile(runs=1, warmup=0)
        self.threads = len(os.listdir("/proc/self/task"))
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            model.profile(runs=100_000)  # takes minutes
        self.assert_no_thread_is_left()

    def test_handlers_of_signals_run_meanwhile(self) -> None:
        handled: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        self.calibrate(lambda: handled or os.kill(os.getpid(), signal.SIGUSR1))
        self.assertEqual(handled, [signal.SIGUSR1])
        self.assertTrue(self.plan.exists())


if __name__ == "__main__":
    unittest.main()
