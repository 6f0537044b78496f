"""Models and sessions: arrays in, arrays out."""

from __future__ import annotations

import json
import os
import pickle
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random


class OnlyDlpack:
    """An array of another library, on the CPU."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def identity() -> bytes:
    """y = x of floats [2, 3]: a run whose answer is known."""
    return onnx_model.model((2, 3), [onnx_model.node("Flatten", ["x"], "y")])


class Models(PackageTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.model = pipit.load(MODEL, threads=1)
        cls.pixels = random(1, 3, 32, 32)
        cls.logits = cls.model(cls.pixels)

    def test_says_what_it_is(self) -> None:
        [given], [answer] = self.model.inputs, self.model.outputs
        self.assertEqual((given.name, given.dtype, given.shape), ("input", "float32", (1, 3, 32, 32)))
        self.assertEqual((answer.name, answer.dtype, answer.shape), ("logits", "float32", (1, 10)))
        self.assertEqual(self.model.name, MODEL)
        self.assertEqual(self.model.notes, ())
        self.assertIn("airplane", self.model.metadata["pipit.labels"])
        self.assertIn("input float32[1, 3, 32, 32]", repr(self.model))

    def test_every_way_to_run_gives_the_same_bits(self) -> None:
        session = self.model.session()
        for answer in (
            self.model(input=self.pixels),
            self.model.run(None, {"input": self.pixels})[0],
            self.model.run(["logits"], {"input": self.pixels})[0],
            session.run(self.pixels)[0],
            session.run(input=self.pixels)[0],
            pipit.load(MODEL, threads=2)(self.pixels),
        ):
            np.testing.assert_array_equal(answer, self.logits)
        self.assertEqual(self.logits.dtype, np.float32)

    def test_batch(self) -> None:
        images = random(3, 3, 32, 32, seed=1)
        answers = pipit.load(MODEL, batch=3)(images)
        alone = np.concatenate([self.model(image[None]) for image in images])
        np.testing.assert_allclose(answers, alone, rtol=1e-4, atol=1e-4)

    def test_other_shapes_of_a_model(self) -> None:
        images = random(3, 3, 32, 32, seed=1)
        three = self.model.with_batch(3)
        self.assertEqual(three.inputs[0].shape, (3, 3, 32, 32))
        np.testing.assert_allclose(
            three(images), np.concatenate([self.model(image[None]) for image in images]), rtol=1e-4, atol=1e-4
        )
        again = pickle.loads(pickle.dumps(three))
        np.testing.assert_array_equal(again(images), three(images))
        np.testing.assert_array_equal(again.reshaped(batch=1, same_kernels=False)(self.pixels), self.logits)

        nodes = [onnx_model.node("Flatten", ["x"], "y")]
        file = self.folder / "open.onnx"
        file.write_bytes(onnx_model.model(("N", "C"), nodes))
        for model in (
            pipit.load(file, shapes={"x": (2, 3)}),
            pipit.load(file.read_bytes(), shapes={"x": (2, 3)}),
        ):
            self.assertEqual(model.with_batch(5).inputs[0].shape, (5, 3))
            wide = pickle.loads(pickle.dumps(model.reshaped(batch=2, dimensions={"C": 7})))
            self.assertEqual(wide.inputs[0].shape, (2, 7))
            self.assertEqual(wide.with_batch(3).inputs[0].shape, (3, 7))
            with self.assertRaisesRegex(pipit.ArgumentError, "shapes="):
                model.reshaped(shapes={"x": ("two", 3)})  # type: ignore[dict-item]
            with self.assertRaises(pipit.Error):
                model.with_batch(0)

    def test_takes_arrays_of_others(self) -> None:
        model = pipit.load(identity())
        values = random(2, 3)
        read_only = values.copy()
        read_only.flags.writeable = False
        for array in (
            OnlyDlpack(values),
            memoryview(values),
            read_only,
            np.asfortranarray(values),
            values[::-1][::-1],
            np.repeat(values, 2, axis=1)[:, ::2],
        ):
            np.testing.assert_array_equal(model(array), values)

    def test_inputs_are_read_where_they_are(self) -> None:
        session = pipit.load(identity()).session()
        values = random(2, 3)
        out = np.empty((2, 3), np.float32)
        self.assertIs(session.run(values, out=out)[0], out)
        np.testing.assert_array_equal(out, values)
        values[0, 0] = 7
        self.assertIs(session.run(values, out=[out])[0], out)
        self.assertEqual(out[0, 0], 7)

    def test_outputs_are_written_where_they_are_wanted(self) -> None:
        session = self.model.session()
        room = np.empty(10 * 4 + 64, np.uint8)
        aligned = -room.ctypes.data % 64
        for start in (aligned, aligned + 4):
            out = room[start : start + 40].view(np.float32).reshape(1, 10)
            out[:] = 0
            self.assertIs(session.run(self.pixels, out=out)[0], out)
            np.testing.assert_array_equal(out, self.logits)
        values = random(2, 3)
        with self.assertRaisesRegex(pipit.Error, "output 'y' overlaps that of input 'x'"):
            pipit.load(identity()).session().run(values, out=values)

    def test_answers_are_the_callers(self) -> None:
        model = pipit.load(identity())
        first = model(np.zeros((2, 3), np.float32))
        model(np.ones((2, 3), np.float32))
        self.assertEqual(first.sum(), 0)

    def test_refuses_arrays_that_do_not_fit(self) -> None:
        model = pipit.load(identity())
        good = np.zeros((2, 3), np.float32)
        for arrays, message in (
            ((good.astype(np.float64),), "input 'x': its type is float64; expected float32"),
            ((good[None],), "input 'x': its shape is (1, 2, 3); expected (2, 3)"),
            (([[1.0]],), "input 'x': expected an array in the CPU's memory (NumPy's or with DLPack); got list"),
            ((), "got 0 inputs; the model has 1: x"),
            ((good, good), "got 2 inputs; the model has 1: x"),
        ):
            with self.assertRaises(pipit.ArgumentError) as caught:
                model(*arrays)
            self.assertEqual(str(caught.exception), message)
        with self.assertRaisesRegex(pipit.ArgumentError, "unexpected input 'y'; the model has x"):
            model(y=good)
        with self.assertRaisesRegex(pipit.ArgumentError, "unknown output 'z'; the model has y"):
            model.run(["z"], {"x": good})
        with self.assertRaisesRegex(pipit.ArgumentError, "no array for input 'x'"):
            model.run(None, {})
        read_only = np.empty((2, 3), np.float32)
        read_only.flags.writeable = False
        for out in (read_only, np.empty((3, 2), np.float32).T, np.empty((2, 3)), np.empty(6, np.float32)):
            with self.assertRaisesRegex(pipit.ArgumentError, "output 'y': "):
                model.session().run(good, out=out)

    def test_options(self) -> None:
        open_shape = onnx_model.model(("N", "C"), [onnx_model.node("Flatten", ["x"], "y")])
        self.assertEqual(pipit.load(open_shape, shapes={"x": (4, 5)}).inputs[0].shape, (4, 5))
        self.assertEqual(pipit.load(open_shape, batch=2, dimensions={"C": 3}).inputs[0].shape, (2, 3))
        two = onnx_model.model((2, 3), [onnx_model.node("Add", ["x", "x"], "y")])
        self.assertEqual(pipit.load(two, name="double.onnx").name, "double.onnx")
        for options in (
            {"precision": "fp16"},
            {"precision": "bf16"},
            {"device": "cpu", "threads": 1},
            {"exclude_kernels": "winograd"},
            {"batch": None},
        ):
            self.assertEqual(pipit.load(MODEL, **options)(self.pixels).argmax(), self.logits.argmax(), options)

    def test_refuses_options_that_cannot_be(self) -> None:
        for options, message in (
            ({"precision": "int9"}, "precision='int9': expected 'fp32', 'fp16'"),
            ({"device": "tpu"}, "device='tpu': expected 'cpu', 'cuda'"),
            ({"device": "cuda:x"}, "device='cuda:x': expected"),
            ({"device": "cuda:0", "gpus": [1]}, "contradicts"),
            ({"threads": "many"}, "threads='many': expected"),
            ({"values": {"x": "one"}}, r"values\['x'\]='one': expected a number"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                pipit.load(MODEL, **options)
        with self.assertRaisesRegex(TypeError, r"load\(\) got an unexpected keyword argument 'thread'"):
            pipit.load(MODEL, thread=1)
        with self.assertRaisesRegex(TypeError, "'tuning'"):
            pipit.load(MODEL, tuning="all")
        with self.assertRaisesRegex(pipit.ArgumentError, "model is of type int"):
            pipit.load(1)
        self.assertTrue(issubclass(pipit.ArgumentError, ValueError))

    def test_refuses_models_with_all_reasons(self) -> None:
        with self.assertRaisesRegex(pipit.Error, "nothing.onnx: there is no such file"):
            pipit.load("nothing.onnx")
        with self.assertRaisesRegex(pipit.Error, "text.onnx: not an ONNX model"):
            pipit.load(b"text", name="text.onnx")
        nodes = [onnx_model.node("Frobnicate", ["x"], "a"), onnx_model.node("Twiddle", ["a"], "y")]
        with self.assertRaises(pipit.UnsupportedError) as caught:
            pipit.load(onnx_model.model((1, 3), nodes))
        self.assertEqual(len(caught.exception.reasons), 2)
        self.assertIn("Frobnicate", caught.exception.reasons[0])
        self.assertIsInstance(caught.exception, pipit.Error)
        self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).reasons, caught.exception.reasons)

    def test_profile(self) -> None:
        times = self.model.profile(runs=3, warmup=0)
        self.assertEqual(times.runs, 3)
        self.assertEqual(times.layers[0].type, "Conv")
        self.assertEqual(times.layers[0].input, (1, 3, 32, 32))
        self.assertGreater(times.end_to_end_ms, 0)
        self.assertEqual(times.to_dict()["layers"][0]["output"], [1, 24, 32, 32])
        self.assertIn("layers=<", repr(times))
        self.assertEqual(self.model.profile(self.pixels, runs=1).runs, 1)
        with self.assertRaisesRegex(pipit.Error, "0"):
            self.model.profile(runs=0)
        with self.assertRaises(pipit.ArgumentError):
            self.model.profile(self.pixels[0])

    def test_profile_as_files(self) -> None:
        times = self.model.profile(runs=2, warmup=0)
        for name, beginning in (
            ("times.json", "{"),
            ("times.csv", "model,device,"),
            ("times.html", "<!doctype html>"),
            ("run.trace.json", "{"),
            ("run.trtexec.json", "["),
        ):
            times.save(self.folder / name)
            self.assertTrue((self.folder / name).read_text().lower().startswith(beginning), name)
        self.assertEqual(json.loads((self.folder / "times.json").read_text()), times.to_dict())
        self.assertEqual(len(list(self.folder.iterdir())), 5)
        with self.assertRaisesRegex(pipit.ArgumentError, "times.txt' must end in one of .trace.json, "):
            times.save("times.txt")
        with self.assertRaisesRegex(pipit.Error, "nowhere/times.csv: cannot be written: No such file"):
            times.save(self.folder / "nowhere/times.csv")

    def test_inspect(self) -> None:
        found = self.model.inspect()
        self.assertEqual((found.name, found.scores, found.labels[0]), (MODEL, "logits", "airplane"))
        self.assertEqual((found.layers[0].type, found.layers[0].output), ("Conv", (1, 24, 32, 32)))
        self.assertEqual(found.inputs[0].name, "input")
        self.assertGreater(found.macs, found.layers[0].macs)
        self.assertEqual(found.to_dict()["command"], "inspect")
        self.assertGreater(len(self.model.inspect(why=True).json), len(found.json))


class Processes(PackageTest):
    def test_threads_share_a_model(self) -> None:
        model = pipit.load(MODEL, threads=1)
        images = [random(1, 3, 32, 32, seed=seed) for seed in range(8)]
        expected = [model(image) for image in images]
        with ThreadPoolExecutor(4) as pool:
            for answer, right in zip(pool.map(model, images * 4), expected * 4, strict=True):
                np.testing.assert_array_equal(answer, right)

    def test_a_session_is_of_one_thread(self) -> None:
        session = pipit.load(MODEL, threads=1, batch=16).session()
        images = random(16, 3, 32, 32)
        refused: list[str] = []
        begin = threading.Barrier(4)

        def run() -> None:
            begin.wait()
            for _ in range(8):
                try:
                    session.run(images)
                except pipit.Error as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(
            {*refused} - {MODEL + ": another thread uses this session; give each thread a session of its own"}, set()
        )
        self.assertEqual(session.run(images)[0].shape, (16, 10))

    def test_a_pickle_answers_with_the_same_bits(self) -> None:
        pixels = random(1, 3, 32, 32)
        file = self.folder / "identity.onnx"
        file.write_bytes(identity())
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        model = pipit.load(MODEL, threads=1, exclude_kernels="winograd")
        (self.folder / "models").write_bytes(pickle.dumps([model, pipit.load("identity.onnx"), pipit.load(identity())]))
        np.save(self.folder / "pixels.npy", pixels)
        self.python(
            "import os, pickle, sys, numpy as np\n"
            "model, by_path, by_bytes = pickle.load(open('models', 'rb'))\n"
            "np.save('logits.npy', model(np.load('pixels.npy')))\n"
            "assert by_path(np.ones((2, 3), np.float32)).sum() == by_bytes(np.ones((2, 3), np.float32)).sum() == 6\n"
        )
        np.testing.assert_array_equal(np.load(self.folder / "logits.npy"), model(pixels))

    def test_a_child_of_fork_runs_the_model(self) -> None:
        written = self.python(
            "import os, sys, warnings, numpy as np, pipit\n"
            "warnings.simplefilter('ignore', DeprecationWarning)  # of fork() with the model's threads\n"
            "model = pipit.load('resnet20-cifar10', threads=2)\n"
            "pixels = np.ones((1, 3, 32, 32), np.float32)\n"
            "right = model(pixels)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    same = (model(pixels) == right).all() and (pipit.load('resnet20-cifar10')(pixels) == right).all()\n"
            "    os._exit(0 if same else 1)\n"
            "print(os.waitpid(child, 0)[1], (model(pixels) == right).all())\n"
        )
        self.assertEqual(written, "0 True\n")

    def test_loads_leave_nothing_behind(self) -> None:
        written = self.python(
            "import gc, os, sys, threading, pipit, numpy as np\n"
            "onnx = bytes.fromhex(sys.argv[1])\n"
            "def use():\n"
            "    pipit.load(onnx, threads=2)(np.zeros((2, 3), np.float32))\n"
            "def held():\n"
            "    gc.collect()\n"
            "    status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
            "    return int(status['VmRSS'].split()[0]), int(status['Threads']), len(os.listdir('/proc/self/fd'))\n"
            "def large():\n"
            "    pipit.load('resnet20-cifar10', threads=2)(np.zeros((1, 3, 32, 32), np.float32))\n"
            "for _ in range(8): large()\n"
            "for _ in range(100): use()\n"
            "kib, threads, files = held()\n"
            "for _ in range(1000): use()\n"
            "for _ in range(20): large()\n"
            "after, *others = held()\n"
            "print(after - kib, others == [threads, files])\n",
            identity().hex(),
        )
        kib, same = written.split()
        self.assertEqual(same, "True")
        self.assertLess(int(kib), 8192)  # of twenty models there would be 40 MB


if __name__ == "__main__":
    unittest.main()
