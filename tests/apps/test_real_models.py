"""Published models on real photographs, against what is known about them. The folder PIPIT_TEST_DATA holds

    models/squeezenet1_1.onnx                      SqueezeNet v1.1, ImageNet weights, input 227x227
    models/efficientnet_lite0.onnx                 EfficientNet-Lite0, ImageNet weights, input 224x224
    models/resnet20_cifar10{,_bn}.onnx             a ResNet-20 for CIFAR-10, batch-norm folded and not
    imagenet-samples/CLASS_*.jpg                   photographs, the class index first in the name
    cifar10-test.tar.gz                            one folder of JPEGs per class
"""

import os
import pathlib
import unittest

from command import MODEL, CommandTest, main

DATA = pathlib.Path(os.environ.get("PIPIT_TEST_DATA", ""))
SANITIZED = bool(os.environ.get("PIPIT_SANITIZE"))  # then a run takes about twenty times as long


@unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models and images")
class RealModels(CommandTest):
    def assert_rate(self, rate, expected, images):
        """Not more than three standard deviations of as many draws below what is expected."""
        self.assertGreater(rate, expected - 3 * (expected * (1 - expected) / images) ** 0.5)

    def test_squeezenet_has_its_accuracy(self):
        # ONNX Runtime's on a set of which these images are half.
        result = self.json("evaluate", DATA / "models/squeezenet1_1.onnx", DATA / "imagenet-samples",
                           "--resize", 256, "--crop", 227, "--limit", 20 if SANITIZED else 500)
        self.assert_rate(result["top1"], 0.622, result["images"])
        self.assert_rate(result["top5"], 0.842, result["images"])

    def test_a_quantized_file_answers_like_its_plan(self):
        # EfficientNet-Lite0 has depthwise filters of almost no weight; SqueezeNet has Concat.
        photographs = sorted((DATA / "imagenet-samples").iterdir())
        for image in photographs[::16]:
            self.write(f"calibration/{image.name}", image.read_bytes())
        models = {"efficientnet_lite0": (224, "bicubic", ".49803921,.49803921,.49803921", ".50196078,.50196078,.50196078"),
                  "squeezenet1_1": (227, "bilinear", ".485,.456,.406", ".229,.224,.225")}
        for name, (crop, interpolation, mean, std) in models.items():
            model = DATA / "models" / f"{name}.onnx"
            pixels = ("--resize", 256, "--crop", crop, "--interpolation", interpolation, "--mean", mean, "--std", std)
            self.pipit("calibrate", model, "calibration", "--output", "plan.json", "--quiet", *pixels)
            planned = ("--precision", "int8", "--plan", "plan.json")

            def answers(*arguments):
                images = self.json("classify", *arguments, *photographs[1::16], "--topk", 1000)["images"]
                return [image["top"] for image in images]

            plan, expected = self.json("inspect", model, *planned), answers(model, *planned, *pixels)
            for activations in ("u8", "s8"):
                with self.subTest(name, activations=activations):
                    self.pipit("quantize", model, "--plan", "plan.json", "--output", "quantized.onnx", "--activations",
                               activations)
                    written = self.json("inspect", "quantized.onnx")
                    self.assertEqual(written["int8"], plan["int8"])
                    self.assertEqual(written["notes"], [])
                    self.assertEqual(answers("quantized.onnx"), expected)

    def test_the_kept_average_lowers_squeezenets_noise(self):
        model, images = DATA / "models/squeezenet1_1.onnx", DATA / "imagenet-samples"
        pixels = ("--resize", 256, "--crop", 227, "--preset", "torchvision")
        self.pipit("calibrate", model, images, "--output", "plan.json", "--limit", 32, "--quiet", *pixels)

        def sqnr(*arguments):
            layers = self.json("diff", model, images, "--plan", "plan.json", "--fast", "--limit", 40, "--quiet", *pixels,
                               *arguments)["layers"]
            self.assertEqual(layers[-1]["name"], "pool10")
            return layers[-1]["sqnr_db"]

        self.assertGreater(sqnr(), sqnr("--keep", "pool10=int8"))

    def test_folded_and_unfolded_models_agree(self):
        self.extract_cifar(DATA / "cifar10-test.tar.gz", 2)
        images = sorted(self.folder.glob("cifar/*/*"))
        folded, unfolded = (
            self.json("classify", DATA / "models" / model, *images, "--topk", 10, "--preset", "torchvision")["images"]
            for model in ("resnet20_cifar10.onnx", "resnet20_cifar10_bn.onnx"))
        for one, other in zip(folded, unfolded, strict=True):
            probabilities = {entry["class"]: entry["probability"] for entry in other["top"]}
            for entry in one["top"]:
                self.assertAlmostEqual(entry["probability"], probabilities[entry["class"]], delta=1e-4)

    def test_the_shipped_model_has_its_accuracy(self):
        count = self.extract_cifar(DATA / "cifar10-test.tar.gz", 5 if SANITIZED else 50)
        result = self.json("evaluate", MODEL, self.folder / "cifar", "--batch", 25)
        self.assertEqual(result["images"], count)
        # What it has on all of the archive.
        self.assert_rate(result["top1"], 0.922, count)
        self.assert_rate(result["top5"], 0.998, count)


if __name__ == "__main__":
    main()
