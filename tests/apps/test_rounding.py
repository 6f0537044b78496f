"""pipit quantize --images: weights rounded by what they do, and files with weights in 8 and 4 bits."""

import random
import re
import struct
import unittest

import onnx_model
from command import MODEL, RUNTIME, UNSUPPORTED, USAGE, CommandTest, drawn_seed, main

try:
    import numpy
    import onnxruntime
except ImportError:
    onnxruntime = None

PIXELS = ("--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25")
INPUT = (1, 3, 16, 16)


class Rounding(CommandTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(drawn_seed())
        for i in range(12):
            self.write_bmp(f"images/{i}.bmp", tuple(self.random.randrange(256) for _ in range(3)))
        self.write_model("m.onnx")

    def weights(self, name, shape, spread=0.3, bad=None):
        count = 1
        for extent in shape:
            count *= extent
        values = [self.random.gauss(0, spread) for _ in range(count)]
        if bad is not None:
            values[count // 2] = bad
        return onnx_model.tensor(name, onnx_model.FLOAT, shape, struct.pack(f"<{count}f", *values))

    def write_model(self, name, bad=None, dead=False):
        """A 3x3 convolution, 1x1 convolutions of 96 channels with a residual, a depthwise one, and a product."""
        node = onnx_model.node
        tensors = [self.weights("w1", (96, 3, 3, 3)), self.weights("b1", (96,)), self.weights("w2", (96, 96, 1, 1), 0.1, bad),
                   self.weights("b2", (96,)), self.weights("w3", (96, 1, 3, 3)), self.weights("w4", (96, 96, 1, 1), 0.1),
                   self.weights("w5", (10, 96)), self.weights("b5", (10,)),
                   onnx_model.tensor("zero", onnx_model.FLOAT, (), struct.pack("<f", 0))]
        nodes = [node("Conv", ["x", "w1", "b1"], "c1", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r1"),
                 # All that the next layers read is then zero.
                 *([node("Mul", ["r1", "zero"], "z1")] if dead else []),
                 node("Conv", ["z1" if dead else "r1", "w2", "b2"], "c2"), node("Relu", ["c2"], "r2"),
                 node("Conv", ["r2", "w3"], "c3", group=96, pads=[1, 1, 1, 1]), node("Relu", ["c3"], "r3"),
                 node("Conv", ["r3", "w4"], "c4"), node("Add", ["c4", "r1"], "a4"), node("Relu", ["a4"], "r4"),
                 node("GlobalAveragePool", ["r4"], "p"), node("Flatten", ["p"], "f"),
                 node("Gemm", ["f", "w5", "b5"], "y", transB=1)]
        self.write(name, onnx_model.model(INPUT, nodes, tensors))

    def scores(self, model, *more):
        images = sorted((self.folder / "images").iterdir())
        told = self.json("classify", model, *images, "--topk", 10, *PIXELS, *more)["images"]
        return [[(top["class"], top["probability"]) for top in image["top"]] for image in told]

    def calibrate(self):
        self.pipit("calibrate", "m.onnx", "images", "--output", "plan.json", "--quiet", *PIXELS)

    def check_layers(self, told, count):
        self.assertEqual((told["rounding"], told["images"], len(told["layers"])), ("second-order", 12, count))
        for layer in told["layers"]:
            # With the damping that keeps weights near what they were, a layer of few errors may gain nothing.
            self.assertLessEqual(layer["rounded"], 1.05 * layer["nearest"] + 1e-6, layer)
        means = [sum(layer[key] for layer in told["layers"]) for key in ("rounded", "nearest")]
        self.assertLess(means[0], 0.9 * means[1])

    def test_int8_is_rounded_on_images_and_threads_change_no_byte(self):
        self.calibrate()
        nearest = self.json("quantize", "m.onnx", "--plan", "plan.json", "--output", "n.onnx")
        self.assertEqual((nearest["rounding"], nearest["precision"], "layers" in nearest), ("nearest", "int8", False))
        files = []
        for threads in (1, 3):
            told = self.json("quantize", "m.onnx", "--plan", "plan.json", "--images", "images", "--threads", threads,
                             "--output", f"{threads}.onnx")
            self.check_layers(told, 5)
            self.assertEqual((told["int8_nodes"], told["kept_nodes"]), (nearest["int8_nodes"], nearest["kept_nodes"]))
            files.append((self.folder / f"{threads}.onnx").read_bytes())
        self.assertEqual(files[0], files[1])
        self.assertNotEqual(files[0], (self.folder / "n.onnx").read_bytes())
        self.assertEqual(self.json("inspect", "1.onnx")["int8"]["macs"], self.json("inspect", "n.onnx")["int8"]["macs"])
        # Kernels compute the bits of the reference with any weights.
        self.assertEqual(self.scores("1.onnx"), self.scores("1.onnx", "--kernel", "QConv=reference"))
        said = self.pipit("quantize", "m.onnx", "--plan", "plan.json", "--images", "images", "--output", "t.onnx").stdout
        self.assertRegex(said, r"weights rounded on 12 images: a layer changes by [\d.e-]+ % of its outputs' variance")

    def test_weights_in_4_bits_compute_in_int8(self):
        self.calibrate()
        plain = self.json("quantize", "m.onnx", "--plan", "plan.json", "--images", "images", "--output", "8.onnx")
        told = self.json("quantize", "m.onnx", "--plan", "plan.json", "--images", "images", "--weight-bits", 4,
                         "--output", "4.onnx")
        self.check_layers(told, 5)
        self.assertEqual((told["weight_bits"], plain["weight_bits"]), (4, 8))
        self.assertEqual((told["int8_nodes"], told["kept_nodes"]), (plain["int8_nodes"], plain["kept_nodes"]))
        # Two layers of 96 x 96 have half of their bytes, the others hold a tenth of the weights or short rows.
        saved = plain["bytes"] - told["bytes"]
        self.assertLess(abs(saved - 96 * 96), 1000)
        inspected = [self.json("inspect", name)["layers"] for name in ("4.onnx", "8.onnx")]
        self.assertEqual(*([(layer["name"], layer["type"], layer["kernel"]) for layer in layers] for layers in inspected))
        self.assertEqual(self.scores("4.onnx"), self.scores("4.onnx", "--kernel", "QConv=reference"))
        exact = [dict(image) for image in self.scores("m.onnx")]
        errors = []
        for bits in (4, 8):
            told = [dict(image) for image in self.scores(f"{bits}.onnx")]
            errors.append(max(abs(image[c] - other[c]) for image, other in zip(exact, told, strict=True) for c in image))
        self.assertLess(errors[0], 0.2)
        self.assertLess(errors[1], 0.05)
        self.assertIn("in INT8 with weights in 4 bits", self.pipit(
            "quantize", "m.onnx", "--plan", "plan.json", "--weight-bits", 4, "--output", "n.onnx").stdout)

    @unittest.skipUnless(onnxruntime, "onnxruntime is not installed")
    def test_onnx_runtime_reads_weights_in_4_bits(self):
        self.calibrate()
        self.pipit("quantize", "m.onnx", "--plan", "plan.json", "--images", "images", "--weight-bits", 4, "--output", "4.onnx")
        x = numpy.array([self.random.gauss(0, 1) for _ in range(768)], numpy.float32).reshape(INPUT)
        numpy.save(self.folder / "x.npy", x)
        options = onnxruntime.SessionOptions()
        # Its integer kernels saturate sums of two products on CPUs without VNNI.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(self.folder / "4.onnx"), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"x": x})[0][0]
        top = self.json("classify", "4.onnx", "x.npy", "--topk", 10)["images"][0]["top"]
        share = numpy.exp(expected - expected.max())
        share /= share.sum()
        for one in top:
            self.assertAlmostEqual(one["probability"], share[one["class"]], delta=0.05)

    def test_w4_is_rounded_on_images_and_runs_as_it_is_stored(self):
        for precision, bits in (("w4", "int4"), ("w8", "int8")):
            with self.subTest(precision):
                told = self.json("quantize", "m.onnx", "--precision", precision, "--images", "images", *PIXELS,
                                 "--output", "s.onnx")
                self.check_layers(told, 3)
                self.assertEqual((told["stored_nodes"], told["kept_nodes"], told["precision"]), (3, 2, precision))
                layers = {layer["name"]: layer for layer in self.json("inspect", "s.onnx")["layers"]}
                self.assertEqual([layers[name]["type"] for name in ("c2", "c4", "y")], ["WConv", "WConv", "WLinear"])
                self.assertIn(bits, layers["c2"]["summary"] if "summary" in layers["c2"] else str(layers["c2"]))

    def test_notes_of_a_stored_file(self):
        self.pipit("quantize", "m.onnx", "--precision", "w4", "--output", "s.onnx")
        done = self.pipit_with_notes("classify", "s.onnx", "images/0.bmp", *PIXELS)
        self.assertNotIn("quantized already", done.stderr)  # it computes in f32
        self.assertIn("fp32", self.pipit("profile", "s.onnx", "--runs", 2, "--warmup", 0).stdout)

    def test_a_stored_file_in_other_precisions(self):
        self.pipit("quantize", "m.onnx", "--precision", "w8", "--images", "images", *PIXELS, "--output", "s.onnx")
        expected = [dict(image) for image in self.scores("m.onnx")]
        for precision in ("fp32", "fp16", "bf16", "int8-dynamic"):
            for image, other in zip(expected, self.scores("s.onnx", "--precision", precision), strict=True):
                for label, probability in other:
                    self.assertAlmostEqual(probability, image[label], delta=0.05, msg=precision)
        for precision in ("w8", "w4"):
            done = self.pipit("classify", "s.onnx", "images/0.bmp", *PIXELS, "--precision", precision, code=UNSUPPORTED)
            self.assertIn(f"leave precision {precision} out", done.stderr)

    def test_a_file_of_nearest_weights_is_the_precision(self):
        for precision, *more in (("w4",), ("w8",), ("w4", "--group-size", 64)):
            with self.subTest(precision, more=more):
                self.pipit("quantize", "m.onnx", "--precision", precision, *more, "--output", "s.onnx")
                self.assertEqual(self.scores("s.onnx"), self.scores("m.onnx", "--precision", precision, *more))

    @unittest.skipUnless(onnxruntime, "onnxruntime is not installed")
    def test_onnx_runtime_reads_the_same_weights(self):
        self.pipit("quantize", "m.onnx", "--precision", "w4", "--images", "images", *PIXELS, "--output", "s.onnx")
        x = numpy.array([self.random.gauss(0, 1) for _ in range(768)], numpy.float32).reshape(INPUT)
        numpy.save(self.folder / "x.npy", x)
        session = onnxruntime.InferenceSession(str(self.folder / "s.onnx"), providers=["CPUExecutionProvider"])
        expected = session.run(None, {"x": x})[0][0]
        top = self.json("classify", "s.onnx", "x.npy", "--topk", 10)["images"][0]["top"]
        share = numpy.exp(expected - expected.max())
        share /= share.sum()
        for one in top:
            self.assertAlmostEqual(one["probability"], share[one["class"]], delta=1e-4)

    def test_layers_that_read_nothing_but_zeros_keep_the_nearest(self):
        self.write_model("m.onnx", dead=True)
        told = self.json("quantize", "m.onnx", "--precision", "w4", "--images", "images", *PIXELS, "--output", "s.onnx")
        self.assertEqual(told["layers"][0], {"name": "c2", "nearest": 0, "rounded": 0})

    def test_what_is_refused(self):
        self.calibrate()
        self.pipit("calibrate", "m.onnx", "images", "--output", "tensor.json", "--quiet", "--per-tensor-weights", *PIXELS)
        self.write_model("nan.onnx", bad=float("nan"))
        self.pipit("quantize", "m.onnx", "--precision", "w4", "--output", "s.onnx")
        plan = ("--plan", "plan.json")
        for arguments, words, code in (
                (("nan.onnx", "--precision", "w4", "--images", "images", *PIXELS), r"nan\.onnx: .*'c2'.* nan", RUNTIME),
                (("m.onnx", *plan, "--rounding", "second-order"), "--images", USAGE),
                (("m.onnx", *plan, "--rounding", "nearest", "--images", "images"), "nearest looks at no images", USAGE),
                (("m.onnx", *plan, "--limit", 3), "--images", USAGE),
                (("m.onnx", *plan, "--precision", "w4"), "--plan", USAGE),
                (("m.onnx", "--precision", "w4", "--target", "tensorrt"), "--target", USAGE),
                (("m.onnx", "--precision", "w4", "--weight-bits", 4), "--weight-bits", USAGE),
                (("m.onnx", *plan, "--weight-bits", 4, "--target", "tensorrt"), "--weight-bits", USAGE),
                (("m.onnx", *plan, "--weight-bits", 5), "--weight-bits", USAGE),
                (("m.onnx", "--plan", "tensor.json", "--weight-bits", 4), "scales per channel", USAGE),
                (("m.onnx", "--precision", "w8", "--group-size", 32), "--group-size", USAGE),
                (("m.onnx", "--precision", "fp16"), "--precision", USAGE),
                (("m.onnx", *plan, "--images", "nothing"), "nothing", RUNTIME),
                (("s.onnx", "--precision", "w4"), "is quantized already", UNSUPPORTED)):
            with self.subTest(arguments):
                done = self.pipit("quantize", *arguments, "--output", "r.onnx", code=code)
                self.assertRegex(done.stderr, re.compile(words, re.DOTALL))
        self.assertFalse((self.folder / "r.onnx").exists())

    def test_a_named_model(self):
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        told = self.json("quantize", MODEL, "--plan", "plan.json", "--images", "images", "--limit", 5, "--output", "q.onnx")
        self.assertEqual((told["images"], told["kept_nodes"]), (5, 0))


if __name__ == "__main__":
    main()
