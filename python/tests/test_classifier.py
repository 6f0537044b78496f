"""Images in, labels with probabilities out."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import pipit
from pipit import _classifier
from support import MODEL, PackageTest, bmp, onnx_model, random_pixels

try:
    from PIL import Image
except ImportError:
    Image = None  # type: ignore[assignment]


def answer(predictions: list[pipit.Prediction]) -> list[tuple[int, float, str]]:
    return [(p.index, p.probability, p.label) for p in predictions]


class Classifiers(PackageTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.classifier = pipit.Classifier(MODEL, threads=1)

    def test_says_what_it_is(self) -> None:
        self.assertEqual(len(self.classifier.labels), self.classifier.classes)
        self.assertEqual((self.classifier.classes, self.classifier.scores), (10, "logits"))
        self.assertIn("crop 32x32", self.classifier.preprocessing)
        self.assertEqual(self.classifier.notes, ())

    def test_every_kind_of_image_gives_the_same_answer(self) -> None:
        pixels = random_pixels(1, 40)
        file = self.folder / "image.bmp"
        file.write_bytes(bmp(pixels))
        expected = answer(self.classifier(pixels))
        self.assertEqual(len(expected), 5)
        kinds: list[Any] = [str(file), file, file.read_bytes(), pixels, np.ascontiguousarray(pixels[:, ::-1])[:, ::-1]]
        if Image is not None:
            kinds.append(Image.fromarray(pixels))
        for kind in kinds:
            self.assertEqual(answer(self.classifier(kind)), expected, type(kind))
        self.assertEqual([answer(one) for one in self.classifier(kinds)], [expected] * len(kinds))
        self.assertEqual([answer(one) for one in self.classifier(tuple(kinds), top=2)], [expected[:2]] * len(kinds))
        self.assertEqual([answer(one) for one in self.classifier(np.stack([pixels, pixels]))], [expected] * 2)
        self.assertEqual(self.classifier([]), [])

    def test_lists_of_one_kind_are_computed_in_batches(self) -> None:
        images = [random_pixels(seed, 36) for seed in range(7)]
        files = [self.folder / f"{seed}.bmp" for seed in range(7)]
        for file, pixels in zip(files, images, strict=True):
            file.write_bytes(bmp(pixels))
        expected = [answer(self.classifier(pixels)) for pixels in images]
        batches = pipit.Classifier(MODEL, threads=1, batch=3)
        at_once, _classifier.AT_ONCE = _classifier.AT_ONCE, 4
        self.addCleanup(setattr, _classifier, "AT_ONCE", at_once)
        for classifier in (self.classifier, batches):
            for kinds in (images, np.stack(images), files, [file.read_bytes() for file in files]):
                answers = [answer(one) for one in classifier(kinds)]
                for got, right in zip(answers, expected, strict=True):
                    self.assertEqual([index for index, *_ in got], [index for index, *_ in right])
                    np.testing.assert_allclose([p for _, p, _ in got], [p for _, p, _ in right], atol=1e-5)
        self.assertEqual([len(one) for one in batches(files, top=2)], [2] * 7)
        with self.assertRaisesRegex(pipit.Error, "nothing.png"):
            batches([*files, "nothing.png"])
        with self.assertRaises(pipit.ArgumentError):
            batches([*images, np.zeros((2, 2))])

    def test_streams_of_images(self) -> None:
        images = [random_pixels(seed, 36) for seed in range(11)]
        expected = [answer(self.classifier(pixels)) for pixels in images]
        taken = 0

        def endless() -> Any:
            nonlocal taken
            while True:
                yield images[taken % len(images)]
                taken += 1

        stream = self.classifier.classify_all(endless(), at_once=3)
        self.assertEqual([answer(next(stream)) for _ in range(10)], expected[:10])
        self.assertLessEqual(taken, 10 + 2 * 3)
        stream.close()
        files = [self.folder / f"{index}.bmp" for index in range(len(images))]
        for file, pixels in zip(files, images, strict=True):
            file.write_bytes(bmp(pixels))
        for kinds in (images, (file for file in files), [*files[:2], *images[2:]], np.stack(images)):
            self.assertEqual([answer(one) for one in self.classifier.classify_all(kinds, at_once=4)], expected)
        self.assertEqual([len(one) for one in self.classifier.classify_all(files, top=2)], [2] * 11)
        self.assertEqual(list(self.classifier.classify_all([])), [])

        broken = [*files[:5], self.folder / "nothing.png", b"GIF89a", *files[5:]]
        got: list[Any] = []
        with self.assertRaisesRegex(pipit.Error, "nothing.png"):
            got.extend(self.classifier.classify_all(broken, at_once=4))
        for one in self.classifier.classify_all(broken, at_once=4, skip_errors=True):
            got.append(one)
        self.assertIsInstance(got[5 + 5], pipit.Error)
        self.assertIsInstance(got[5 + 6], pipit.UnsupportedError)
        self.assertEqual([answer(one) for one in got[:10]], expected[:5] * 2)
        self.assertEqual([answer(one) for one in got[12:]], expected[5:])
        with self.assertRaisesRegex(pipit.ArgumentError, "at_once=0"):
            self.classifier.classify_all(images, at_once=0)

        def failing() -> Any:
            yield images[0]
            raise LookupError("the source failed")

        with self.assertRaisesRegex(LookupError, "the source failed"):
            list(self.classifier.classify_all(failing()))

    def test_errors_say_which_image_it_is(self) -> None:
        pixels = [random_pixels(seed) for seed in range(3)]
        files = [self.folder / f"good{i}.bmp" for i in range(3)]
        for file, picture in zip(files, pixels, strict=True):
            file.write_bytes(bmp(picture))
        encoded = [file.read_bytes() for file in files]
        good, damaged = files[0], self.folder / "damaged.bmp"
        damaged.write_bytes(encoded[0][:100])
        expected = [[index for index, *_ in answer(self.classifier(file))] for file in files]
        self.assertEqual(len({*map(tuple, expected)}), len(files))
        floats = np.zeros((2, 2))
        wrong = {0: damaged, 3: b"GIF89a", 4: floats, 7: damaged, 8: b"GIF89a", 40: "nothing.png"}
        for others in (files, encoded, pixels, [files[0], encoded[1], pixels[2]]):
            images = [wrong.get(index, others[index % len(others)]) for index in range(45)]
            for batch in (1, 4):
                classifier = pipit.Classifier(MODEL, threads=1, batch=batch)
                got = [*classifier.classify_all(images, skip_errors=True, at_once=12)]
                errors = {i: one.index for i, one in enumerate(got) if isinstance(one, pipit.Error)}
                self.assertEqual(errors, {i: i for i in wrong})
                for index, one in enumerate(got):
                    if index not in wrong:
                        self.assertEqual([index for index, *_ in answer(one)], expected[index % len(others)])
                for index, kind, message in (
                    (0, pipit.Error, "damaged.bmp"),
                    (3, pipit.UnsupportedError, "^image 3 in memory: "),
                    (4, pipit.ArgumentError, "^image 4 in memory: an array of float64"),
                    (40, pipit.Error, "nothing.png"),
                ):
                    self.assertIs(type(got[index]), kind)
                    self.assertRegex(str(got[index]), message)
                    only = [image if i == index else others[0] for i, image in enumerate(images)]
                    streamed: list[Any] = []
                    with self.assertRaisesRegex(kind, message) as caught:
                        streamed.extend(classifier.classify_all(only))
                    self.assertEqual((len(streamed), caught.exception.index), (index, index))
                    with self.assertRaisesRegex(kind, message) as caught:
                        classifier(only)
                    self.assertEqual(caught.exception.index, index)
        with self.assertRaises(pipit.Error) as caught:
            self.classifier(damaged)
        self.assertIsNone(caught.exception.index)
        for classify in (self.classifier, self.classifier.classify_all):
            with self.assertRaisesRegex(pipit.ArgumentError, "top is 0; expected at least 1"):
                classify([good], top=0)

    def test_grey_images(self) -> None:
        grey = random_pixels(2)[:, :, 0]
        self.assertEqual(answer(self.classifier(grey)), answer(self.classifier(np.stack([grey] * 3, axis=2))))

    @unittest.skipIf(Image is None, "Pillow is not installed")
    def test_images_of_pillow_are_turned_upright_as_files_are(self) -> None:
        image, exif = Image.fromarray(random_pixels(3, 64)), Image.Exif()
        exif[0x0112] = 6  # rotated by 90 degrees
        file = io.BytesIO()
        image.save(file, "JPEG", quality=95, exif=exif)
        for options in ({}, {"ignore_exif_orientation": True}):
            classifier = pipit.Classifier(MODEL, **options)
            opened = answer(classifier(Image.open(io.BytesIO(file.getvalue()))))
            for (index, probability, _), (same, near, _) in zip(
                opened, answer(classifier(file.getvalue())), strict=True
            ):
                self.assertEqual(index, same)
                self.assertAlmostEqual(probability, near, places=2)

    @unittest.skipIf(Image is None, "Pillow is not installed")
    def test_a_damaged_image_of_pillow(self) -> None:
        file = io.BytesIO()
        Image.fromarray(random_pixels(3, 64)).save(file, "PNG")
        for images in (Image.open(io.BytesIO(file.getvalue()[:-40])), [Image.open(io.BytesIO(file.getvalue()[:-40]))]):
            with self.assertRaisesRegex(pipit.Error, "memory: Pillow cannot decode it: "):
                self.classifier(images)
        # The decoder of PNG has an exception of another type for a chunk without a name.
        begin = file.getvalue().index(b"IDAT") - 4
        crc = zlib.crc32(b"IDAT").to_bytes(4, "big")
        broken = b"%b\0\0\0\0IDAT%b\0\0\0\0\0\1\2\3" % (file.getvalue()[:begin], crc)
        good = Image.open(io.BytesIO(file.getvalue()))
        images = [good, Image.open(io.BytesIO(broken)), np.zeros((0, 5, 3), np.uint8), "a\0b.jpg", good]
        got = [*self.classifier.classify_all(images, skip_errors=True)]
        self.assertEqual([one.index if isinstance(one, pipit.Error) else None for one in got], [None, 1, 2, 3, None])
        self.assertRegex(str(got[1]), "^image 1 in memory: Pillow cannot decode it: ")
        self.assertRegex(str(got[2]), "^image 2 in memory: an array of uint8 with shape")
        self.assertRegex(str(got[3]), "NUL")
        self.assertEqual(answer(got[0]), answer(got[4]))

    def test_answers_are_those_of_the_command(self) -> None:
        file = self.folder / "image.bmp"
        file.write_bytes(bmp(random_pixels(4)))
        done = subprocess.run(
            [sys.executable, "-m", "pipit", "classify", MODEL, file, "--json"], capture_output=True, check=True
        )
        [said] = json.loads(done.stdout)["images"]
        self.assertEqual(
            [(one["class"], one["label"]) for one in said["top"]],
            [(one.index, one.label) for one in self.classifier(file)],
        )

    def test_labels(self) -> None:
        names = [f"name {i}" for i in range(10)]
        (self.folder / "names.txt").write_text("\n".join(names))
        for labels in (names, tuple(names), self.folder / "names.txt"):
            classifier = pipit.Classifier(MODEL, labels=labels)
            self.assertEqual(classifier.labels, tuple(names))
            again = pickle.loads(pickle.dumps(classifier))
            self.assertEqual(again.labels, classifier.labels)
            self.assertEqual(answer(again(random_pixels(5))), answer(classifier(random_pixels(5))))
        with self.assertRaisesRegex(pipit.Error, "3"):
            pipit.Classifier(MODEL, labels=["a", "b", "c"])

    def test_options_and_notes(self) -> None:
        file = self.folder / "model.onnx"
        file.write_bytes(onnx_model.flatten())
        with self.assertLogs("pipit", "WARNING") as logged:
            classifier = pipit.Classifier(file)
        self.assertEqual([record.getMessage() for record in logged.records], list(classifier.notes))
        classifier = pipit.Classifier(
            file, preset="timm", resize=0, crop=2, mean=[0, 0, 0], std=[1, 1, 1], scores="sigmoid"
        )
        self.assertEqual(classifier.scores, "sigmoid")
        best = classifier(np.array([[[255, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]], np.uint8))[0]
        self.assertEqual((best.index, best.label, best.probability), (0, "class 0", 1.0))
        for options, message in (
            ({"scores": "votes"}, "scores='votes': expected 'logits', 'softmax'"),
            ({"mean": [1, 2]}, r"mean=\[1, 2\]: expected"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                pipit.Classifier(file, **options)

    def test_refuses_what_is_no_image(self) -> None:
        with self.assertRaisesRegex(pipit.ArgumentError, r"float64 with shape \(32, 32, 3\); expected uint8"):
            self.classifier(np.zeros((32, 32, 3)))
        with self.assertRaisesRegex(pipit.ArgumentError, r"shape \(3, 32, 32\)"):
            self.classifier(np.zeros((3, 32, 32), np.uint8))
        with self.assertRaisesRegex(pipit.Error, "nothing.png"):
            self.classifier("nothing.png")
        with self.assertRaises(pipit.UnsupportedError):
            self.classifier(b"GIF89a" + bytes(64))

    def test_threads_share_a_classifier(self) -> None:
        images = [random_pixels(seed) for seed in range(8)]
        expected = [answer(self.classifier(image)) for image in images]
        with ThreadPoolExecutor(4) as pool:
            self.assertEqual([answer(one) for one in pool.map(self.classifier, images * 4)], expected * 4)


if __name__ == "__main__":
    unittest.main()
