"""Pickles and forks: another process answers with the same bits."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pathlib
import pickle
import unittest
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, bmp, random, random_pixels

# What a child of fork() does with what its parent has loaded; the parent then goes on.
FORKED = """
import os, pathlib, sys, warnings, numpy as np, pipit
warnings.simplefilter('ignore', DeprecationWarning)  # of fork() with the model's threads
images = sorted(map(str, pathlib.Path(sys.argv[1]).iterdir()))
model = pipit.load('resnet20-cifar10', threads=2)
classifier = pipit.Classifier('resnet20-cifar10', threads=2)
calibrator = pipit.Calibrator('resnet20-cifar10', threads=2)
calibrator.update(images[:4])
pixels = np.ones((1, 3, 32, 32), np.float32)
def work():
    answers = [(p.index, p.probability) for answer in classifier(images) for p in answer]
    return model(pixels).tolist(), answers, pipit.evaluate('resnet20-cifar10', sys.argv[1], threads=2).right.count
right = work()
part = calibrator.part()
"""


class Processes(PackageTest):
    def test_pickles_answer_with_the_same_bits(self) -> None:
        images = self.images(8)
        plan, labels = self.folder / "plan.json", self.folder / "labels.txt"
        pipit.calibrate(MODEL, images, plan, threads=1)
        labels.write_text("\n".join(f"name {i}" for i in range(10)))
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        pixels, picture = random(1, 3, 32, 32), bmp(random_pixels(3))
        options: dict[str, Any] = {"precision": "int8", "plan": "plan.json", "threads": 1}  # a path that is relative
        model, classifier = pipit.load(MODEL, **options), pipit.Classifier(MODEL, labels="labels.txt", **options)
        (self.folder / "pickle").write_bytes(pickle.dumps([model, classifier, picture]))
        np.save(self.folder / "pixels.npy", pixels)
        written = self.python(
            "import logging, os, pickle, sys, numpy as np\n"
            "logging.disable()\n"
            "os.chdir('/')\n"
            "model, classifier, picture = pickle.load(open(sys.argv[1] + '/pickle', 'rb'))\n"
            "print(model(np.load(sys.argv[1] + '/pixels.npy')).tobytes().hex())\n"
            "print(repr([(p.index, p.label, p.probability) for p in classifier(picture)]))\n",
            self.folder,
        )
        answer = [(p.index, p.label, p.probability) for p in classifier(picture)]
        self.assertEqual(written.splitlines(), [model(pixels).tobytes().hex(), repr(answer)])
        self.assertIn("name ", answer[0][1])

    def test_workers_get_a_classifier_by_its_pickle(self) -> None:
        images = [path.read_bytes() for path in sorted(self.images(6).iterdir())]
        classifier = pipit.Classifier(MODEL, threads=1)
        expected = [top(classifier, image) for image in images]
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(functools.partial(top, classifier), images), expected)

    def test_a_child_of_fork_goes_on(self) -> None:
        written = self.python(
            FORKED + "child = os.fork()\n"
            "if child == 0:\n"
            "    calibrator.update(images[4:])\n"
            "    os._exit(0 if work() == right and calibrator.images == len(images) else 1)\n"
            "print(os.waitpid(child, 0)[1], work() == right, calibrator.part() == part, calibrator.images)\n",
            self.images(12),
        )
        self.assertEqual(written, "0 True True 4\n")

    def test_a_fork_in_the_middle_of_long_work(self) -> None:
        """The child has no thread of the work, and leaves it to its parent."""
        written = self.python(
            FORKED + "states = []\n"
            "def fork(progress):\n"
            "    if states: return\n"
            "    child = os.fork()\n"
            "    if child == 0:\n"
            "        os._exit(0 if (model(pixels).tolist() == right[0]) else 1)\n"
            "    states.append(os.waitpid(child, 0)[1])\n"
            "found = pipit.calibrate('resnet20-cifar10', sys.argv[1], sys.argv[2], threads=2, progress=fork)\n"
            "print(states, found.images)\n",
            self.images(300),
            self.folder / "plan.json",
        )
        self.assertEqual(written, "[0] 300\n")
        self.assertTrue(pathlib.Path(self.folder / "plan.json").exists())


def top(classifier: pipit.Classifier, image: bytes) -> list[tuple[int, float]]:
    return [(one.index, one.probability) for one in classifier(image)]


if __name__ == "__main__":
    unittest.main()
