"""pipit quantize: the file it writes, and what the other commands do with it."""

import json

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
        planned = self.top(MODEL, "--precision", "int8", "--plan", "plan.json")
        for activations in ("u8", "s8"):
            written = self.quantize("--activations", activations)
            self.assertEqual((written["kept_nodes"], written["bytes"]), (0, (self.folder / "q.onnx").stat().st_size))
            # Preprocessing and labels are in the file.
            self.assertEqual(self.top("q.onnx"), planned)
            self.assertEqual(self.top("q.onnx", "--kernel", "reference"), planned)

    def test_the_batch_stays_open(self):
        self.quantize()
        self.assertEqual(self.json("inspect", "q.onnx", "--batch", 3)["inputs"][0]["shape"], [3, 3, 32, 32])
        self.quantize("--batch", 2)
        self.assertEqual(self.json("inspect", "q.onnx")["inputs"][0]["shape"], [2, 3, 32, 32])

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
        planned = self.json("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", "--no-autotune",
                            "--quiet")
        self.assertEqual(planned["int8"]["macs"], self.json("inspect", "q.onnx", "--no-autotune")["int8"]["macs"])

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
                (("calibrate", "q.onnx", "images", "--output", "p.json"), "is quantised already", UNSUPPORTED),
                (("quantize", "q.onnx", "--plan", "plan.json", "--output", "r.onnx"), "is quantised already", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "int8", "--plan", "plan.json"), "is quantised already", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "int8"), "is quantised already", UNSUPPORTED),
                (("inspect", "q.onnx", "--precision", "fp16"), "the model is quantised", UNSUPPORTED),
                (("quantize", "resnet18", "--plan", "plan.json", "--output", "r.onnx"), "another model", RUNTIME),
                (("quantize", MODEL, "--output", "r.onnx"), "--plan is required", USAGE),
                (("quantize", MODEL, "--plan", "plan.json"), "--output is required", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "r.onnx", "--precision", "fp16"), "INT8", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "r.onnx", "--activations", "s4"), "s4", USAGE),
                (("quantize", MODEL, "--plan", "plan.json", "--output", "no/folder/r.onnx"), "no/folder", RUNTIME),
                (("quantize", MODEL, "--plan", "no.json", "--output", "r.onnx"), "no.json", RUNTIME)):
            with self.subTest(arguments):
                self.assert_one_line_error(self.pipit(*arguments, code=code), words)
        self.assertFalse((self.folder / "r.onnx").exists())


if __name__ == "__main__":
    main()
