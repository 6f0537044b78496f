"""Many runs at once: futures, asyncio, streams of inputs, errors, ends."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import unittest
from concurrent.futures import Future, wait
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random


def identity() -> pipit.Model:
    """y = x of floats [2, 3]."""
    return pipit.load(onnx_model.model((2, 3), [onnx_model.node("Flatten", ["x"], "y")]), threads=1)


def filled(value: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full((2, 3), value, np.float32)


class Runners(PackageTest):
    def test_answers_are_those_of_the_model(self) -> None:
        model = pipit.load(MODEL, threads=1)
        images = [random(1, 3, 32, 32, seed=seed) for seed in range(12)]
        expected = [model(image) for image in images]
        with pipit.AsyncRunner(model, threads=2) as runner, pipit.AsyncRunner(MODEL, threads=2) as other:
            self.assertEqual((runner.streams, other.streams), (2, 2))
            self.assertEqual([info.name for info in runner.inputs], ["input"])
            self.assertEqual([info.shape for info in runner.outputs], [(1, 10)])
            futures = [runner.submit(image) for image in images] + [other.submit(input=image) for image in images]
            for future, right in zip(futures, expected * 2, strict=True):
                np.testing.assert_array_equal(future.result(), right)

    def test_inputs_are_copied_unless_outputs_are_given(self) -> None:
        with pipit.AsyncRunner(identity(), queue=64) as runner:
            values = filled(0)
            futures = []
            for i in range(20):
                values[:] = i
                futures.append(runner.submit(values))
            self.assertEqual([future.result()[0, 0] for future in futures], list(range(20)))
            out = filled(-1)
            self.assertIs(runner.submit(filled(7), out=out).result(), out)
            self.assertIs(runner.submit(filled(8), out=[out]).result(), out)
            self.assertEqual(out.sum(), 48)

    def test_futures_are_those_of_the_standard_library(self) -> None:
        called: list[tuple[float, str]] = []
        with pipit.AsyncRunner(identity()) as runner:
            futures = [runner.submit(filled(i)) for i in range(5)]
            for future in futures:
                self.assertIsInstance(future, Future)
                future.add_done_callback(lambda f: called.append((f.result()[0, 0], threading.current_thread().name)))
            self.assertEqual(len(wait(futures).done), 5)
            self.assertFalse(futures[0].cancel())
        self.assertEqual(sorted(value for value, _ in called), [0, 1, 2, 3, 4])

    def test_map_takes_only_a_few_inputs_ahead(self) -> None:
        taken: list[int] = []

        def endless() -> Any:
            while True:
                taken.append(len(taken))
                yield filled(taken[-1])

        with pipit.AsyncRunner(identity(), streams=1, threads=1, queue=3) as runner:
            answers = runner.map(endless())
            self.assertEqual([next(answers)[0, 0] for _ in range(6)], [0, 1, 2, 3, 4, 5])
            self.assertLessEqual(len(taken), 6 + 4)
            self.assertEqual(list(runner.map([])), [])
            self.assertEqual([y[1, 2] for y in runner.map((filled(i),) for i in range(3))], [0, 1, 2])

    def test_asyncio(self) -> None:
        async def work(runner: pipit.AsyncRunner) -> list[float]:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(tick())
            answers = await asyncio.gather(*(runner.run(filled(i)) for i in range(50)))  # more than the queue holds
            ticking.cancel()
            self.assertGreater(ticks, 1)
            with self.assertRaises(pipit.ArgumentError):
                await runner.run(filled(0)[0])
            return [answer[0, 0] for answer in answers]

        with pipit.AsyncRunner(identity(), streams=1, threads=1, queue=2) as runner:
            self.assertEqual(asyncio.run(work(runner)), list(range(50)))

    def test_errors(self) -> None:
        model = identity()
        with pipit.AsyncRunner(model) as runner:
            with self.assertRaisesRegex(pipit.ArgumentError, "input 'x': its shape is"):
                runner.submit(filled(0)[0])
            with self.assertRaisesRegex(pipit.ArgumentError, "unexpected input 'z'"):
                runner.submit(z=filled(0))
            values = filled(0)
            with self.assertRaisesRegex(pipit.Error, "overlaps"):
                runner.submit(values, out=values).result()
            self.assertEqual(runner.submit(filled(3)).result()[0, 0], 3)
        with self.assertRaisesRegex(pipit.Error, "the runner is closed"):
            runner.submit(filled(0))
        runner.close()
        for options, message in (
            ({"streams": 3, "threads": 2}, "3 streams and 2 threads"),
            ({"queue": -1}, "queue is -1"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                pipit.AsyncRunner(model, **options)
        with self.assertRaisesRegex(TypeError, "batch"):
            pipit.AsyncRunner(model, batch=2)
        with self.assertRaisesRegex(pipit.ArgumentError, "model is of type bytes"):
            pipit.AsyncRunner(b"")  # type: ignore[arg-type]

    def test_runs_that_were_submitted_end(self) -> None:
        runner = pipit.AsyncRunner(MODEL, threads=1, batch=16, queue=8)
        futures = [runner.submit(random(16, 3, 32, 32)) for _ in range(5)]
        runner.close()
        self.assertTrue(all(future.done() for future in futures))

    def test_nothing_of_a_runner_is_left(self) -> None:
        model = identity()
        before = len(os.listdir("/proc/self/task"))
        for _ in range(20):
            runner = pipit.AsyncRunner(model, threads=2)
            future = runner.submit(filled(1))
            del runner
            gc.collect()
            self.assertEqual(future.result()[0, 0], 1)
        for _ in range(500):
            if len(os.listdir("/proc/self/task")) <= before:
                break
            time.sleep(0.01)
        self.assertLessEqual(len(os.listdir("/proc/self/task")), before)

    def test_python_ends_although_a_runner_is_open(self) -> None:
        self.python(
            "import numpy as np, pipit\n"
            f"runner = pipit.AsyncRunner({MODEL!r}, threads=2)\n"
            "futures = [runner.submit(np.zeros((1, 3, 32, 32), np.float32)) for _ in range(6)]\n"
        )

    def test_a_child_of_fork_is_refused(self) -> None:
        written = self.python(
            "import os, warnings, numpy as np, pipit\n"
            "warnings.simplefilter('ignore', DeprecationWarning)\n"
            f"runner = pipit.AsyncRunner({MODEL!r}, threads=1)\n"
            "pixels = np.zeros((1, 3, 32, 32), np.float32)\n"
            "runner.submit(pixels).result()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        runner.submit(pixels)\n"
            "    except pipit.Error as error:\n"
            "        os._exit(0 if 'fork' in str(error) else 2)\n"
            "    os._exit(1)\n"
            "print(os.waitpid(child, 0)[1], runner.submit(pixels).result().shape)\n"
        )
        self.assertEqual(written, "0 (1, 10)\n")


if __name__ == "__main__":
    unittest.main()
