"""Models whose input is [N, H, W, C], as TensorFlow's exporters write: every command that reads images takes them, and
answers as for the same network with [N, C, H, W]."""

import json
import os
import pathlib
import unittest

import onnx_model
from command import MODEL, RUNTIME, CommandTest, main

RESNET20 = pathlib.Path(__file__).parents[2] / "models" / "resnet20-cifar10.onnx"
CLASSES = ["airplane", "cat", "frog"]


class ChannelsLast(CommandTest):
    def setUp(self):
        super().setUp()
        self.write("nhwc.onnx", onnx_model.as_nhwc(RESNET20.read_bytes(), ("N", 32, 32, 3)))
        for c, name in enumerate(CLASSES):
            for i in range(6):
                self.write_bmp(f"images/{name}/{i}.bmp", (40 * i, 250 - 70 * c - 10 * i, 60 + 20 * i), side=37)
        self.images = sorted(path.relative_to(self.folder) for path in (self.folder / "images").rglob("*.bmp"))

    def assert_same_answers(self, *options, delta):
        """classify's probabilities of every class of every image."""
        scores = []
        for model in (MODEL, "nhwc.onnx"):
            result = self.json("classify", model, *self.images, "--topk", "10", "--quiet", *options)
            scores.append([{entry["label"]: entry["probability"] for entry in image["top"]}
                           for image in result["images"]])
        for old, new in zip(*scores, strict=True):
            for label, probability in old.items():
                self.assertAlmostEqual(new[label], probability, delta=delta)

    def test_classify(self):
        # The convolution adds up in another order, so f32 may differ in its last digits.
        self.assert_same_answers(delta=1e-5)
        self.assert_same_answers("--bgr", "--mean", "0.9,0.1,0.2", "--resize", "34", delta=1e-5)
        self.assert_same_answers("--precision", "fp16", delta=1e-2)

    def test_the_transpose_costs_nothing(self):
        layers = self.json("inspect", "nhwc.onnx")["layers"]
        self.assertEqual([layer["type"] for layer in layers],
                         [layer["type"] for layer in self.json("inspect", MODEL)["layers"]])
        profile = self.json("profile", "nhwc.onnx", "--runs", "2", "--batch", "2")
        self.assertNotIn("Transpose", [layer["type"] for layer in profile["layers"]])

    def test_evaluate(self):
        old, new = [self.json("evaluate", model, "images", "--batch", "4") for model in (MODEL, "nhwc.onnx")]
        for key in ("images", "top1", "top5"):
            self.assertEqual(new[key], old[key])

    def test_calibrate_diff_tune_and_quantize(self):
        for model, plan in ((MODEL, "old.json"), ("nhwc.onnx", "new.json")):
            self.pipit("calibrate", model, "images", "--output", plan, "--quiet")
        old, new = [json.loads((self.folder / plan).read_text()) for plan in ("old.json", "new.json")]
        scales = [{tensor["name"]: tensor["scale"] for tensor in plan["tensors"]} for plan in (old, new)]
        scales[0]["nhwc"] = scales[0].pop("input")  # what is transposed keeps its scale
        self.assertEqual(set(scales[1]), set(scales[0]))
        for name, scale in scales[0].items():
            self.assertAlmostEqual(scales[1][name], scale, delta=1e-4 * scale, msg=name)
        noise = [self.json("diff", model, "images", "--plan", plan, "--quiet")["output"]["sqnr_db"]
                 for model, plan in ((MODEL, "old.json"), ("nhwc.onnx", "new.json"))]
        self.assertAlmostEqual(noise[0], noise[1], delta=0.5)
        tuned = self.json("tune", "nhwc.onnx", "images", "--output", "mixed.json", "--max-drop", "100", "--quiet")
        self.assertTrue(tuned["passed"])
        self.pipit("quantize", "nhwc.onnx", "--plan", "new.json", "--output", "int8.onnx", "--quiet")
        for arguments in (["int8.onnx"], ["nhwc.onnx", "--precision", "int8", "--plan", "new.json"]):
            old, new = [self.json("classify", *model, *self.images, "--quiet", "--topk", "10")
                        for model in (arguments, [MODEL, "--precision", "int8", "--plan", "old.json"])]
            for a, b in zip(old["images"], new["images"], strict=True):
                probabilities = [{e["label"]: e["probability"] for e in image["top"]} for image in (a, b)]
                for label, probability in probabilities[0].items():
                    self.assertAlmostEqual(probabilities[1][label], probability, delta=0.05)
        layers = self.json("inspect", "int8.onnx")["layers"]
        self.assertIn("QConv", [layer["type"] for layer in layers])
        self.assertNotIn("Conv", [layer["type"] for layer in layers])

    def test_grey_and_ambiguous_shapes(self):
        # A pixel a class: 2x3 pixels, one channel.
        self.write("image.bmp", self.write_bmp("grey.bmp", (9, 9, 9), side=2).read_bytes())
        options = ("image.bmp", "--topk", "4", "--mean", "0,0,0", "--std", "1,1,1")
        grey = [self.write(name, onnx_model.flatten(shape)) for name, shape in
                (("planes.onnx", ("N", 1, 2, 2)), ("pixels.onnx", ("N", 2, 2, 1)))]
        answers = [self.json("classify", model, *options)["images"][0]["top"] for model in grey]
        self.assertEqual(answers[0], answers[1])
        # Either order would do: the one of ONNX.
        self.write("both.onnx", onnx_model.flatten(("N", 3, 2, 3)))
        done = self.pipit("classify", "both.onnx", "image.bmp", "--resize", "0", "--crop", "2", code=RUNTIME)
        self.assert_one_line_error(done, "2x2", "2x3")

    def test_other_inputs_are_refused_with_what_is_expected(self):
        self.write("wide.onnx", onnx_model.flatten(("N", 4, 2, 2)))
        done = self.pipit("classify", "wide.onnx", self.images[0], code=RUNTIME)
        self.assert_one_line_error(done, "1x4x2x2", "NxHxWx3", "Nx3xHxW")

    @unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models and images")
    def test_a_file_of_another_exporter(self):
        model = pathlib.Path(os.environ["PIPIT_TEST_DATA"]) / "cases" / "nhwc-classifier.onnx"
        self.assertEqual(len(self.json("classify", model, *self.images)["images"]), len(self.images))


if __name__ == "__main__":
    main()
