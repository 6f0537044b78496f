"""What calibrate says of images that do not fit, each note with images that earn it and with images that do not; and
calibrate --check."""

import json
import random
import re
import struct

import onnx_model
from command import RUNTIME, USAGE, CommandTest, drawn_seed, main
from onnx_model import npy

SHAPE = (3, 16, 16)
PREPROCESS = {"resize": 16, "crop": 16, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}


class CalibrationChecks(CommandTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(drawn_seed())
        self.write("model.onnx", self.network())

    def network(self, bias=0.0, metadata=None):
        """A convolution, a maximum over 4x4 and ten scores, of which `bias` is added to the fourth."""
        def floats(name, shape, values):
            return onnx_model.tensor(name, onnx_model.FLOAT, shape, struct.pack(f"<{len(values)}f", *values))

        nodes = [onnx_model.node("Conv", ["x", "w"], "conv", pads=[1, 1, 1, 1]), onnx_model.node("Relu", ["conv"], "relu"),
                 onnx_model.node("MaxPool", ["relu"], "pool", kernel_shape=[4, 4], strides=[4, 4]),
                 onnx_model.node("Flatten", ["pool"], "flat"), onnx_model.node("Gemm", ["flat", "v", "b"], "y")]
        draw = random.Random(1)
        tensors = [floats("w", (8, 3, 3, 3), [draw.gauss(0, 0.2) for _ in range(216)]),
                   floats("v", (128, 10), [draw.gauss(0, 0.1) for _ in range(1280)]),
                   floats("b", (10,), [bias if i == 3 else 0.0 for i in range(10)])]
        return onnx_model.model((1, *SHAPE), nodes, tensors, metadata)

    def values(self, scale=1.0, common=None):
        """Noise, or with `common` an image with a little of it."""
        count = SHAPE[0] * SHAPE[1] * SHAPE[2]
        noise = [scale * self.random.uniform(-1, 1) for _ in range(count)]
        return noise if common is None else [c + 0.3 * n for c, n in zip(common, noise)]

    def arrays(self, folder, images):
        for i, values in enumerate(images):
            self.write(f"{folder}/{i:03}.npy", npy(SHAPE, values))

    def calibrate(self, folder, *more, model="model.onnx"):
        """The JSON, which has the notes of stderr."""
        done = self.pipit_with_notes("calibrate", model, folder, "--output", "plan.json", "--json", *more)
        found = json.loads(done.stdout)
        for note in found["notes"]:
            self.assertIn(" ".join(note.split()[:4]), done.stderr)
        return found

    def assert_note(self, found, pattern):
        self.assertRegex("\n".join(found["notes"]), pattern)

    def assert_no_note(self, found, word):
        self.assertFalse([note for note in found["notes"] if word in note])

    def test_few_images(self):
        for count, few in ((1, True), (31, True), (32, False)):
            self.arrays(f"of{count}", [self.values() for _ in range(count)])
            found = self.calibrate(f"of{count}")
            self.assertAlmostEqual(found["checks"]["exceeding_probability"], 1 / (count + 1))
            if few:
                self.assert_note(found, rf"few to calibrate on.* 1 in {count + 1};")
            else:
                self.assertEqual(found["notes"], [])

    def test_images_of_one_kind(self):
        scene = self.values()
        self.arrays("scene", [self.values(common=scene) for _ in range(32)])
        found = self.calibrate("scene")
        # The noise has 0.3^2 of the variance of the scene.
        self.assertAlmostEqual(found["checks"]["common_share"], 1 / 1.09, delta=0.02)
        self.assertAlmostEqual(found["checks"]["effective_images"], 1.09, delta=0.03)
        self.assert_note(found, r"alike: 9[0-4] % .* the 32 tell as much as 1\.1 unrelated")
        # An object on a background that is the same, in as much variance as what is not, is not of one kind yet.
        self.arrays("half", [[0.6 * c + n for c, n in zip(scene, self.values())] for _ in range(32)])
        found = self.calibrate("half")
        self.assertAlmostEqual(found["checks"]["common_share"], 0.36 / 1.36, delta=0.05)
        self.assert_no_note(found, "alike")

    def test_colours_are_not_alike_and_copies_are(self):
        for i in range(40):
            self.write_bmp(f"colours/{i}.bmp", (6 * i, 250 - 6 * i, 90 + 4 * i))
        found = self.calibrate("colours", "--resize", 16, "--crop", 16)
        # All have the gradient of write_bmp() in common, and little else.
        self.assertLess(found["checks"]["common_share"], 0.25)
        self.assert_no_note(found, "alike")
        for i in range(40):
            self.write_bmp(f"copies/{i}.bmp", (6, 50, 90))
        self.assert_note(self.calibrate("copies", "--resize", 16, "--crop", 16), "alike: 100 %")

    def test_later_images_exceed_the_ranges(self):
        for factor, exceeds in ((3.0, True), (1.5, False), (1.0, False)):
            folder = f"by{factor}"
            self.arrays(folder, [self.values(factor if i >= 32 else 1.0) for i in range(64)])
            found = self.calibrate(folder)
            if exceeds:
                names = {tensor["tensor"] for tensor in found["checks"]["outgrown"]}
                self.assertLessEqual({"x", "relu"}, names)
                self.assert_note(found, rf"later images in {len(names)} tensors exceed the range of the first 32")
            else:
                self.assertEqual(found["checks"]["outgrown"], [])
                self.assert_no_note(found, "exceed")
        # One large image is an outlier, whatever its place.
        self.arrays("outlier", [self.values(9.0 if i == 63 else 1.0) for i in range(64)])
        self.assertEqual(self.calibrate("outlier")["checks"]["outgrown"], [])

    def normalized(self, weights, variances):
        """A convolution of one tap, with a row of weights for each channel, and batch normalization of what it
        computes, whose stored means are 0."""
        def floats(name, values, *shape):
            return onnx_model.tensor(name, onnx_model.FLOAT, shape or (len(values),), struct.pack(f"<{len(values)}f", *values))

        channels = len(weights)
        tensors = [floats("w", sum(weights, []), channels, 3, 1, 1), floats("one", [1.0] * channels),
                   floats("zero", [0.0] * channels), floats("variance", variances)]
        nodes = [onnx_model.node("Conv", ["x", "w"], "conv"),
                 onnx_model.node("BatchNormalization", ["conv", "one", "zero", "zero", "variance"], "bn", "norm"),
                 onnx_model.node("Relu", ["bn"], "relu"), onnx_model.node("GlobalAveragePool", ["relu"], "pool"),
                 onnx_model.node("Flatten", ["pool"], "y")]
        return onnx_model.model((1, *SHAPE), nodes, tensors)

    def test_statistics_of_another_preprocessing(self):
        # Of images with a mean of 0 and a variance of 1. The last channel is dead.
        weights = [[1.0, 0.5, -0.5], [0.3, -0.3, 0.1], [2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
        squares = [sum(w * w for w in row) for row in weights]
        self.write("normalized.onnx", self.normalized(weights, squares))
        self.write("untrained.onnx", self.normalized(weights, [1.0] * 4))
        for folder, scale, shift, fits in (("right", 1, 0, True), ("unprepared", 0.25, 0.5, False),
                                           ("no_mean", 1, 2, False), ("bytes", 64, 128, False), ("other_std", 2, 0, False),
                                           ("alike", 0.8, 0.2, True)):
            images = [[shift + scale * self.random.gauss(0, 1) for _ in range(768)] for _ in range(8)]
            self.arrays(folder, images)
            found = self.calibrate(folder, model="normalized.onnx")
            statistics = found["checks"]["stored_statistics"]
            self.assertEqual((statistics["layer"], statistics["channels"]), ("norm", 3))
            # 2048 values: means are within 5 / sqrt(2048) standard deviations, variances within 5 * sqrt(2 / 2048).
            self.assertAlmostEqual(statistics["variance_ratio"] / scale**2, 1, delta=0.16)
            away = sum((shift * sum(row)) ** 2 / square for row, square in zip(weights[:3], squares)) / 3
            self.assertAlmostEqual(statistics["mean_deviation"], away**0.5, delta=3 * 0.11 * scale)
            if fits:
                self.assert_no_note(found, "training")
            else:
                self.assert_note(found, "differ from the training images: the input of 'norm'")
        self.assertNotIn("stored_statistics", self.calibrate("bytes", model="untrained.onnx")["checks"])
        # Seven images say too little.
        (self.folder / "bytes/000.npy").unlink()
        self.assert_no_note(self.calibrate("bytes", model="normalized.onnx"), "training")

    def test_one_answer(self):
        self.write("biased.onnx", self.network(bias=100.0))
        self.arrays("some", [self.values() for _ in range(32)])
        found = self.calibrate("some", model="biased.onnx")
        self.assertEqual(found["checks"]["answers"], 1)
        self.assert_note(found, "class 3 for all 32 images")
        found = self.calibrate("some")
        self.assertGreater(found["checks"]["answers"], 1)
        self.assert_no_note(found, "answers class")

    def test_another_preprocessing(self):
        self.write("stored.onnx", self.network(metadata={"pipit.preprocess": json.dumps(PREPROCESS)}))
        for i in range(32):
            self.write_bmp(f"photos/{i}.bmp", (7 * i, 250 - 7 * i, 90 + 4 * i))
        found = self.calibrate("photos", model="stored.onnx")
        self.assertEqual(found["checks"]["preprocess_differences"], [])
        self.assert_no_note(found, "prepared differently")
        found = self.calibrate("photos", "--mean", "0.1,0.5,0.5", model="stored.onnx")
        self.assertEqual(len(found["checks"]["preprocess_differences"]), 1)
        self.assert_note(found, r"prepared differently from what the model stores.*mean \[0\.1")
        # Pixels become -2 to 2.
        for name, scale, wrong in (("prepared", 1.9, False), ("bytes", 255.0, True)):
            self.arrays(name, [self.values(scale) for _ in range(32)])
            found = self.calibrate(name, model="stored.onnx")
            if wrong:
                self.assert_note(found, r"arrays hold values from -25\d.* hold -2 to 2")
            else:
                self.assert_no_note(found, "arrays hold")

    def labelled(self, folder, count, scale=1.0):
        """Arrays whose names begin with a class that is not what the model answers, mostly."""
        for i in range(count):
            self.write(f"{folder}/{i % 10}_{i}.npy", npy(SHAPE, self.values(scale)))

    def test_check(self):
        self.arrays("some", [self.values() for _ in range(32)])
        self.labelled("val", 40)
        found = self.calibrate("some", "--check", "val")
        check = found["check"]
        self.assertEqual((check["command"], check["images"], check["precision"]), ("evaluate", 40, "int8"))
        low, high = check["against"]["drop_points_interval95"]
        self.assertLessEqual(low, high)
        self.assertEqual(found["checks"]["outgrown_in_check"], [])
        # It is that of evaluate.
        alone = self.json("evaluate", "model.onnx", "val", "--precision", "int8", "--plan", "plan.json", "--against",
                          "fp32", "--quiet")
        self.assertEqual(alone["against"], check["against"])
        text = self.pipit("calibrate", "model.onnx", "some", "--output", "plan.json", "--check", "val", "--quiet").stdout
        self.assertRegex(text, r"(?m)^INT8 costs -?\d+\.\d\d points of top-1 \(95 % interval -?\d+\.\d\d to \d+\.\d\d\) "
                               r"on 40 images:")
        self.labelled("large", 40, 4.0)
        found = self.calibrate("some", "--check", "large")
        self.assertIn("x", {tensor["tensor"] for tensor in found["checks"]["outgrown_in_check"]})
        self.assert_note(found, "images of the check in .* exceed the range of those calibrated on")

    def test_what_is_refused(self):
        self.arrays("some", [self.values() for _ in range(2)])
        for words, code, more in (
                ("--check", USAGE, ("--truth", "classes.csv")), ("--check", USAGE, ("--labels", "names.txt")),
                ("--export trt-cache", USAGE, ("--trt-version", "10.3.0")),
                ("10.3", RUNTIME, ("--export", "trt-cache", "--trt-version", "10.3")),
                ("pipit quantize --target tensorrt", RUNTIME, ("--export", "trt-cache", "--trt-version", "11.0.0")),
                ("no/such", RUNTIME, ("--check", "no/such"))):
            with self.subTest(more):
                done = self.pipit("calibrate", "model.onnx", "some", "--output", "plan.json", "--quiet", *more,
                                  code=(code, USAGE) if code == RUNTIME else code)
                self.assertIn(words, " ".join(done.stderr.split()))
                self.assertFalse((self.folder / "plan.json").exists())

    def test_cache_for_tensorrt(self):
        self.arrays("some", [self.values() for _ in range(2)])
        for version, number in (("10.3.0", 100300), ("8.6.1", 8601)):
            found = self.json("calibrate", "model.onnx", "some", "--output", "plan.json", "--quiet", "--export", "trt-cache",
                              "--trt-version", version)
            header, *lines = (self.folder / "plan.trt-cache").read_text().splitlines()
            self.assertEqual(header, f"TRT-{number}-EntropyCalibration2")
            scales = {}
            for line in lines:
                name, digits = re.fullmatch(r"(\S+): ([0-9a-f]{8})", line).groups()
                scales[name] = struct.unpack(">f", bytes.fromhex(digits))[0]
            expected = {tensor["name"]: tensor["scale"] for tensor in found["tensors"]}
            self.assertEqual(set(scales), set(expected))
            for name, scale in expected.items():
                self.assertAlmostEqual(scales[name], scale, delta=1e-6 * scale)


if __name__ == "__main__":
    main()
