"""Models in float16, and of the newest opsets: they run as the same models in float32 and of older opsets."""

import os
import pathlib
import unittest

import onnx_model
from command import MODEL, CommandTest, main

CASES = pathlib.Path(os.environ.get("PIPIT_TEST_DATA", "")) / "cases"
RESNET20 = pathlib.Path(__file__).parents[2] / "models" / "resnet20-cifar10.onnx"


class Halves(CommandTest):
    def test_a_whole_model(self):
        self.write("half.onnx", onnx_model.as_float16(RESNET20.read_bytes()))
        images = [self.write_bmp(f"{i}.bmp", (40 * i, 250 - 30 * i, 60 + 20 * i)) for i in range(5)]
        scores = []
        for model in (MODEL, "half.onnx"):
            result = self.json("classify", model, *images, "--topk", 10)
            scores.append([{one["label"]: one["probability"] for one in image["top"]} for image in result["images"]])
        for single, half in zip(*scores, strict=True):
            for label, probability in single.items():
                self.assertAlmostEqual(half[label], probability, delta=5e-3)

    def test_what_is_widened_is_said(self):
        self.write("half.onnx", onnx_model.as_float16(RESNET20.read_bytes()))
        result = self.json("inspect", "half.onnx")
        self.assertRegex(result["widened"], r"^input 'input', output '\w+', \d+ initializers$")
        self.assertEqual([one["dtype"] for one in result["inputs"] + result["outputs"]], ["f32", "f32"])
        self.assertIn(f"widened   16-bit floating point in the file, f32 here: {result['widened']}\n",
                      self.pipit("inspect", "half.onnx").stdout)
        self.assertEqual(self.json("inspect", MODEL)["widened"], "")


class NewOpsets(CommandTest):
    @unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models")
    def test_opsets_26_to_28(self):
        layers = [[(layer["type"], layer["input"], layer["output"]) for layer in self.json("inspect", model)["layers"]]
                  for model in (CASES / f"opset{opset}.onnx" for opset in (26, 27, 28))]
        self.assertEqual(layers[0], layers[1])
        self.assertEqual(layers[0], layers[2])
        self.assertEqual(layers[0][0][0], "Conv")


if __name__ == "__main__":
    main()
