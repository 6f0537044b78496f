"""pipit quantize: the file it writes, and what the other commands do with it."""

import json
import os
import random
import struct

import onnx_model
from command import MODEL, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main


class Quantize(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(6):
            self.write_bmp(f"images/{i}.bmp", (40 * i, 250 - 30 * i, 90 + 10 * i))
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")

    def quantize(self, *more, output="q.onnx"):
        return self.json("quantize", MODEL, "--plan", "plan.json", "--output", output, *more)

    def top(self, model, *more):
        images = sorted((self.folder / "images").iterdir())
        return [image["top"] for image in self.json("classify", model, *images, "--topk", 10, *more)["images"]]

    def test_file_and_plan_give_the_same_bits(self):
        # The average that a plan keeps is in floating point, which references round otherwise.
        for keep in ((), ("--keep", "/pool/GlobalAveragePool=int8")):
            planned = self.top(MODEL, "--precision", "int8", "--plan", "plan.json", *keep)
            for activations in ("u8", "s8"):
                written = self.quantize("--activations", activations, *keep)
                self.assertEqual((written["kept_nodes"], written["bytes"]),
                                 (0, (self.folder / "q.onnx").stat().st_size))
                # Preprocessing and labels are in the file.
                self.assertEqual(self.top("q.onnx"), planned)
                if keep:
                    self.assertEqual(self.top("q.onnx", "--kernel", "reference"), planned)
        said = self.pipit_with_notes("classify", "q.onnx", "images/0.bmp").stderr
        self.assertRegex(said, r"\Apipit: note: the model is quantized already[^\n]*\n\Z")

    def write_almost_dead_channels(self, name):
        """A depthwise network most of whose filters are next to nothing beside their biases."""
        seed = int(os.environ.get("PIPIT_TEST_SEED", "1"))
        numbers, channels = random.Random(seed), 32

        def floats(tensor, shape, values):
            return onnx_model.tensor(tensor, onnx_model.FLOAT, shape, struct.pack(f"<{len(values)}f", *values))

        # Below 1e-8 nothing is left of them in units in which the bias fits into int32; a little above, the bias
        # decides.
        magnitudes = [10 ** numbers.uniform(*((-42, -8) if i % 2 else (-8, -6))) for i in range(channels)]
        tensors = [
            floats("w1", (channels, 3, 1, 1), [numbers.gauss(0, 1) for _ in range(3 * channels)]),
            floats("w2", (channels, 1, 3, 3), [m * numbers.gauss(0, 1) for m in magnitudes for _ in range(9)]),
            floats("b2", (channels,), [numbers.uniform(-4, 4) for _ in range(channels)]),
            floats("w3", (channels, channels), [numbers.gauss(0, 1) for _ in range(channels * channels)])]
        nodes = [onnx_model.node("Conv", ["x", "w1"], "c1"), onnx_model.node("Relu", ["c1"], "r1"),
                 onnx_model.node("Conv", ["r1", "w2", "b2"], "c2", group=channels, pads=[1, 1, 1, 1]),
                 onnx_model.node("Relu", ["c2"], "r2"), onnx_model.node("GlobalAveragePool", ["r2"], "p"),
                 onnx_model.node("Flatten", ["p"], "f"), onnx_model.node("Gemm", ["f", "w3"], "y")]
        self.write(name, onnx_model.model((1, 3, 32, 32), nodes, tensors))
        return seed

    def test_channels_of_almost_no_weight(self):
        seed = self.write_almost_dead_channels("dead.onnx")
        pixels = ("--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")
        self.pipit("calibrate", "dead.onnx", "images", "--output", "dead.json", "--quiet", *pixels)
        planned = ("--precision", "int8", "--plan", "dead.json")
        for activations in ("u8", "s8"):
            with self.subTest(activations, seed=seed):
                self.pipit("quantize", "dead.onnx", "--plan", "dead.json", "--output", "dead-q.onnx", "--activations",
                           activations)
                one, other = self.json("inspect", "dead.onnx", *planned), self.json("inspect", "dead-q.onnx")
                self.assertEqual((one["int8"]["macs"], other["int8"]["macs"]), (one["macs"], one["macs"]))
                self.assertEqual(one["int8"]["nodes"], other["int8"]["nodes"])
                self.assertEqual(self.top("dead-q.onnx"), self.top("dead.onnx", *planned, *pixels))

    def test_the_batch_stays_open(self):
        self.quantize()
        self.assertEqual(self.json("inspect", "q.onnx", "--batch", 3)["inputs"][0]["shape"], [3, 3, 32, 32])
        self.quantize("--batch", 2)
        self.assertEqual(self.json("inspect", "q.onnx")["inputs"][0]["shape"], [2, 3, 32, 32])
        name = self.json("inspect", MODEL)["inputs"][0]["name"]
        self.quantize("--shape", f"{name}=1x3x32x32")
        self.assertEqual(self.json("inspect", "q.onnx", "--batch", 3)["inputs"][0]["shape"], [3, 3, 32, 32])

    def test_inspect_counts_what_computes_in_int8(self):
        self.quantize()
        written, real = self.json("inspect", "q.onnx"), self.json("inspect", MODEL)
        self.assertEqual(written["int8"]["macs"], written["macs"])
        self.assertGreaterEqual(written["int8"]["nodes"], 20)
        self.assertEqual((real["int8"]["nodes"], real["int8"]["conversions"]), (0, 0))
        self.assertLess(written["parameter_bytes"], 0.3 * real["parameter_bytes"])
        self.assertRegex(self.pipit("inspect", "q.onnx").stdout, r"(?m)^INT8 .*, 100\.0 % of the MACs; \d+ convert")
        names = {layer["name"] for layer in real["layers"] if layer["type"] == "Conv"}
        self.assertLessEqual(names, {layer["name"] for layer in written["layers"]})

    def test_kept_nodes_stay_in_floating_point(self):
        convolutions = [layer["name"] for layer in self.json("inspect", MODEL)["layers"] if layer["type"] == "Conv"]
        plan = json.loads((self.folder / "plan.json").read_text())
        plan["keep"] = {convolutions[0]: "fp32", convolutions[5]: "fp32"}
        self.write("plan.json", json.dumps(plan))
        self.assertEqual(self.quantize()["kept_nodes"], 2)
        types = {layer["name"]: layer["type"] for layer in self.json("inspect", "q.onnx")["layers"]}
        self.assertEqual({types[name] for name in plan["keep"]}, {"Conv"})
        self.assertEqual({types[name] for name in convolutions if name not in plan["keep"]}, {"QConv"})
        # The kernels in floating point are chosen by order in both, so that they round alike.
        planned = self.json("inspect", MODEL, "--precision", "int8", "--plan", "plan.json",
                            "--quiet")
        self.assertEqual(planned["int8"]["macs"], self.json("inspect", "q.onnx")["int8"]["macs"])

    def test_profile_of_the_file(self):
        self.quantize()
        profile = self.json("profile", "q.onnx", "--runs", 2, "--warmup", 0)
        self.assertIn("QConv", {layer["type"] for layer in profile["layers"]})
        self.assertEqual(profile["precision"], "int8")  # what it computes in, whatever --precision says
        row = self.json("bench", "q.onnx", "--runs", 1, "--quiet")["results"][0]
        self.assertEqual(row["precision"], "int8")

    def test_what_is_refused(self):
        self.quantize()
        for arguments, words, code in (
                (("calibrate", "q.onnx", "images", "--output", "p.json"), "is quantized already: its scales are in the file; "
                 "calibrate the model that it was made from", UNSUPPORTED),
                (("quantize", "q.onnx", "--plan", "plan.json", "--output", "r.onnx"), "quantize the model that it was", UNSUPPORTED),
                (("tune", "q.onnx", "images", "--max-drop", 1, "--output", "r.json"), "tune the model that it was", UNSUPPORTED),
                (("prune", "q.onnx", "images", "--keep-ratio", 0.5, "--output", "r.onnx"), "prune the model that it was", UNSUPPORTED),
                (("diff", "q.onnx", "images", "--plan", "plan.json"), "compare the model that it was", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "int8", "--plan", "plan.json"), "is quantized already", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "int8"), "is quantized already", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "fp16"), "the model is quantized", UNSUPPORTED),
                (("quantize", "resnet18", "--plan", "plan.json", "--output", "r.onnx"), "another model", RUNTIME),
                (("quantize", MODEL, "--output", "r.onnx"), "--plan is required", USAGE),
                (("quantize", MODEL, "--plan", "plan.json"), "--output is required", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "r.onnx", "--precision", "fp16"), "--precision", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "r.onnx", "--activations", "s4"), "s4", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "no/folder/r.onnx"), "no/folder", RUNTIME),
                (("quantize", MODEL, "--plan", "no.json", "--output", "r.onnx"), "no.json", RUNTIME)):
            with self.subTest(arguments):
                self.assert_one_line_error(self.pipit(*arguments, code=code), words)
        self.assertFalse((self.folder / "r.onnx").exists())


if __name__ == "__main__":
    main()
