"""Ctrl-C in the middle of long work: it ends, nothing is written, and the process goes on or exits as usual."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest

IMAGES = 400  # the work is far from its end when progress is told for the first time

# In another process: SIGINT is sent as soon as the work runs in its thread, or a moment later. `act` is the work.
INTERRUPTED = """
import os, signal, sys, threading, pipit
threads = lambda: len(os.listdir("/proc/self/task"))
model = pipit.load("resnet20-cifar10", threads=1)
before = threads() + 1  # with the one that sends
def send():
    while threads() <= before:
        pass
    os.kill(os.getpid(), signal.SIGINT)
sender = threading.Thread(target=send, daemon=True)
sender.start()
"""

# The same for images, whose work goes on without its caller until a run has ended. {work} is interrupted until {early}.
CLASSIFYING = """
import os, signal, sys, threading, numpy as np, pipit
threads = lambda: len(os.listdir("/proc/self/task"))
classifier = pipit.Classifier("resnet20-cifar10", threads=1, batch={batch})
image = np.zeros((32, 32, 3), np.uint8)
expected = classifier(image, top=1)[0].label
alone = threads()
def send():
    while threads() <= alone + 1:
        pass
    os.kill(os.getpid(), signal.SIGINT)
early = False
while not early:
    sender = threading.Thread(target=send)
    sender.start()
    try:
        {work}
        signal.pause()
    except KeyboardInterrupt:
        sender.join()
        early = {early}
    while threads() > alone:
        pass
print(classifier([image], top=1)[0][0].label == expected)
"""


class Interrupts(PackageTest):
    def setUp(self) -> None:
        super().setUp()
        self.pictures = self.images(IMAGES)
        self.plan = self.folder / "plan.json"
        pipit.calibrate(MODEL, self.pictures, self.plan, limit=4, threads=1)
        self.before = self.content()

    def content(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def assert_interrupted(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """The first report of progress sends SIGINT: the work is then in the middle."""
        told: list[pipit.Progress] = []

        def interrupt(progress: pipit.Progress) -> None:
            told.append(progress)
            if len(told) == 1:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            work(*arguments, progress=interrupt, **options)
        self.assertEqual(len(told), 1)

    def test_work_that_was_lost_keeps_its_classifier(self) -> None:
        """A signal may come when start() has returned and its result is not assigned yet."""
        classifier = pipit.Classifier(MODEL, threads=1)
        pixels = [np.full((32, 32, 3), shade, np.uint8) for shade in range(250)]
        expected = [[one.index for one in found] for found in classifier(pixels)]
        native = classifier._native

        class Interrupted:
            def __init__(self, busy: bool) -> None:
                self.busy = busy

            def start(self, *arguments: Any) -> None:
                native.start(*arguments)
                raise KeyboardInterrupt

        for busy in (True, False):
            lost = Interrupted(busy)
            classifier._free.clear()
            classifier._free.append(lost)  # type: ignore[arg-type]
            with self.assertRaises(KeyboardInterrupt):
                classifier(pixels)
            self.assertEqual(lost in classifier._free, not busy)
        classifier._free.clear()
        self.assertEqual([[one.index for one in found] for found in classifier(pixels)], expected)
        while native.busy:
            time.sleep(0.001)
        native.start(pixels, 5, False).wait()
        self.assertFalse(native.busy)

    def test_tools_end_and_write_nothing(self) -> None:
        output = self.folder / "output.json"
        calibrator = pipit.Calibrator(MODEL, threads=1)
        pipit.evaluate(MODEL, self.pictures, limit=2, threads=1)
        threads = len(os.listdir("/proc/self/task"))
        for work, arguments, options in (
            (pipit.calibrate, (MODEL, self.pictures, output), {"trt_cache": self.folder / "cache"}),
            (pipit.evaluate, (MODEL, self.pictures), {"against": "bf16"}),
            (pipit.tune, (MODEL, self.pictures, output), {"max_drop": 50}),
            (pipit.prune, (MODEL, self.pictures, output), {"keep": 0.5, "judge_by": "model"}),
            (pipit.diff, (MODEL, self.pictures, self.plan), {}),
            (pipit.bench, (MODEL,), {"batch": [1, 2]}),
            (calibrator.update, (self.pictures,), {}),
        ):
            with self.subTest(work.__qualname__):
                if work != calibrator.update:
                    options["threads"] = 1  # type: ignore[index]
                self.assert_interrupted(work, *arguments, **options)
        while len(os.listdir("/proc/self/task")) > threads:  # what was abandoned ends at its next report
            time.sleep(0.01)
        self.assertEqual(self.content(), self.before)
        with self.assertRaisesRegex(pipit.Error, "another thread uses|make another Calibrator"):
            calibrator.plan(output)
        # The same call succeeds afterwards.
        pipit.calibrate(MODEL, self.pictures, output, limit=4, threads=1)
        self.assertEqual(output.read_bytes(), self.plan.read_bytes())

    def test_work_without_progress_ends(self) -> None:
        """Loading and profiling: the process goes on, and ends as it should."""
        written = self.python(
            INTERRUPTED + "try:\n"
            "    pipit.load('resnet20-cifar10', threads=1, autotune=True, tuning_cache=sys.argv[1])\n"
            "    sender.join(); signal.pause()\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', pipit.load('resnet20-cifar10', threads=1).inputs[0].shape)\n",
            self.folder / "times",
        )
        self.assertEqual(written, "interrupted (1, 3, 32, 32)\n")
        written = self.python(
            INTERRUPTED + "try:\n"
            "    model.profile(runs=100000)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', model.profile(runs=1, warmup=0).runs)\n"
        )
        self.assertEqual(written, "interrupted 1\n")

    def test_classifying_many_images_ends(self) -> None:
        for work, batch, early in (
            ("classifier([image] * 1_000_000)", 1, "True"),
            ("[None for _ in classifier.classify_all(image for _ in iter(int, 1))]", 1, "True"),
            ("classifier([image] * 1000)", 1000, "threads() > alone"),  # one run, of a second
        ):
            with self.subTest(work):
                written = self.python(CLASSIFYING.format(work=work, batch=batch, early=early))
                self.assertEqual(written, "True\n")

    def test_the_process_exits_as_python_does(self) -> None:
        program = (
            INTERRUPTED + "pipit.calibrate('resnet20-cifar10', sys.argv[1], sys.argv[2], threads=1)\nsignal.pause()"
        )
        output = self.folder / "output.json"
        done = subprocess.run(
            [sys.executable, "-c", program, self.pictures, output],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(pipit.__file__).parents[1])},
        )
        self.assertEqual(done.returncode, -signal.SIGINT, done.stderr)
        self.assertTrue(done.stderr.endswith("KeyboardInterrupt\n"), done.stderr)
        for path, content in self.content().items():  # the plan may have been written in full before
            if path != str(output):
                self.assertEqual(content, self.before[path])
        if output.exists():
            self.assertEqual(pipit.merge_calibrations(output, output.with_name("again.json")).images, IMAGES)


if __name__ == "__main__":
    unittest.main()
