"""pipit quantize --target: each file keeps the documented rules of its reader (target_rules.py), and its answers are
those of the plan within one step of the output's scale, in pipit and, where they are installed, in ONNX Runtime and
OpenVINO.
"""

import json
import pathlib
import random
import struct
import sys
import unittest

import onnx_model
import target_rules
from command import USAGE, CommandTest, drawn_seed, main

# These packages import modules of their own by names that files in this folder have too.
HERE = pathlib.Path(__file__).resolve().parent
sys.path = [folder for folder in sys.path if pathlib.Path(folder).resolve() != HERE]
WRITER = sys.modules.pop("onnx_model")
try:
    import numpy
    import onnxruntime
except ImportError:
    onnxruntime = None
try:
    import numpy
    import openvino
except ImportError:
    openvino = None

TARGETS = ("tensorrt", "onnxruntime", "openvino")
IMAGE = (3, 16, 16)


class Network:
    """A network under construction: layers are added one after the other, weights are drawn."""

    def __init__(self, numbers):
        self.random, self.nodes, self.tensors = numbers, [], []

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(WRITER.node(op, inputs, output, **attributes))
        return output

    def constant(self, name, shape, values):
        self.tensors.append(WRITER.tensor(name, WRITER.FLOAT, shape, struct.pack(f"<{len(values)}f", *values)))
        return name

    def weights(self, name, shape):
        """The largest of each output stands alone, and others are at most half of it: sums of two products of u8 by s8
        then fit 16 bits, in which CPUs without VNNI keep them, and every engine computes them exactly."""
        outputs, taps = shape[0], 1
        for extent in shape[2:]:
            taps *= extent
        inputs, values = shape[1], []
        for _ in range(outputs):
            of = [self.random.uniform(-0.5, 0.5) for _ in range(inputs * taps)]
            if inputs > 1:
                of[taps] = 0.0
            if taps > 1:
                of[1] = 0.0
            of[0] = self.random.choice((-1.0, 1.0))
            scale = 1.5 / (inputs * taps) ** 0.5
            values += [scale * value for value in of]
        return self.constant(name, shape, values)

    def conv(self, x, output, inputs, outputs, kernel=3, groups=1, pads=None, stride=1):
        weights = self.weights(output + ".w", (outputs, inputs // groups, kernel, kernel))
        bias = self.constant(output + ".b", (outputs,), [self.random.uniform(-0.3, 0.3) for _ in range(outputs)])
        return self.add("Conv", [x, weights, bias], output, pads=pads or [kernel // 2] * 4, strides=[stride] * 2,
                        group=groups)

    def relu(self, x):
        return self.add("Relu", [x], x + ".relu")

    def relu6(self, x):
        zero, six = (self.constant(f"{x}.{value}", (), [value]) for value in (0.0, 6.0))
        return self.add("Clip", [x, zero, six], x + ".relu6")

    def head(self, x, channels, size=16):
        """Scores: a Gemm of all positions, pooled to 4x4 before."""
        step = size // 4
        x = self.add("MaxPool", [x], "head.pool", kernel_shape=[step, step], strides=[step, step])
        x = self.add("Flatten", [x], "head.flat")
        weights = self.weights("head.w", (10, channels * 16))
        return self.add("Gemm", [x, weights], "y", transB=1)

    def model(self):
        return WRITER.model((1, *IMAGE), self.nodes, self.tensors)


def residual(net):
    x = net.relu(net.conv("x", "stem", 3, 8))
    for block, activated in (("a", True), ("b", False)):
        inner = net.conv(net.relu(net.conv(x, block + ".1", 8, 8)), block + ".2", 8, 8)
        x = net.add("Add", [inner, x], block + ".add")
        x = net.relu(x) if activated else x
    short = net.conv(x, "c.short", 8, 16, 1, stride=2)
    inner = net.conv(net.relu(net.conv(x, "c.1", 8, 16, stride=2)), "c.2", 16, 16)
    x = net.relu(net.add("Add", [inner, short], "c.add"))
    net.head(x, 16, 8)


def concat(net):
    x = net.relu(net.conv("x", "stem", 3, 8))
    wide = net.relu(net.conv(x, "wide", 8, 8))
    narrow = net.conv(x, "narrow", 8, 4, 1)
    pooled = net.add("MaxPool", [x], "pooled", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    x = net.add("Concat", [wide, narrow, pooled], "joined", axis=1)
    net.head(net.relu(net.conv(x, "after", 20, 8)), 8)


def pools(net):
    x = net.relu(net.conv("x", "stem", 3, 8))
    x = net.add("MaxPool", [x], "largest", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.relu(net.conv(x, "between", 8, 8))
    x = net.add("AveragePool", [x], "average", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    net.head(net.relu(net.conv(x, "after", 8, 8)), 8, 8)


def depthwise(net):
    x = net.relu6(net.conv("x", "stem", 3, 16))
    x = net.relu6(net.conv(x, "depthwise", 16, 16, groups=16))
    x = net.conv(x, "project", 16, 8, 1)
    net.head(x, 8)


def transposed(net):
    x = net.relu(net.conv("x", "stem", 3, 8, stride=2))
    # [inputs, outputs, taps]: of each tap of an output the first input is the largest, and the second is nothing.
    values = [1.0 if i == 0 else 0.0 if i == 1 else net.random.uniform(-0.5, 0.5) for i in range(8) for _ in range(32)]
    weights = net.constant("up.w", (8, 8, 2, 2), values)
    x = net.add("ConvTranspose", [x, weights], "up", strides=[2, 2], kernel_shape=[2, 2])
    net.head(net.relu(net.conv(x, "after", 8, 8)), 8)


def gemm(net):
    x = net.relu(net.conv("x", "stem", 3, 4, stride=4))
    x = net.add("Flatten", [x], "flat")
    weights = net.weights("fc.w", (32, 64))
    x = net.relu(net.add("Gemm", [x, weights, net.constant("fc.b", (32,), [0.1] * 32)], "fc", transB=1))
    net.add("Gemm", [x, net.weights("fc2.w", (10, 32))], "y", transB=1)


def grouped(net):
    x = net.relu(net.conv("x", "stem", 3, 16))
    x = net.relu(net.conv(x, "grouped", 16, 16, groups=4))
    net.head(x, 16)


def padded(net):
    x = net.relu(net.conv("x", "stem", 3, 8, pads=[0, 1, 2, 1]))
    x = net.relu(net.conv(x, "strided", 8, 8, pads=[0, 0, 1, 1], stride=2))
    net.head(x, 8, 8)


NETWORKS = (residual, concat, pools, depthwise, transposed, gemm, grouped, padded)


class Targets(CommandTest):
    def setUp(self):
        super().setUp()
        self.seed = drawn_seed()

    def array(self, numbers):
        """An image that varies slowly."""
        channels, height, width = IMAGE
        coarse = [[numbers.gauss(0, 1) for _ in range(16)] for _ in range(channels)]
        return [coarse[c][4 * (h // 4) + w // 4] + numbers.gauss(0, 0.2)
                for c in range(channels) for h in range(height) for w in range(width)]

    def make(self, build):
        """The network, the plan of calibrating it on 32 arrays with nothing clipped, and those arrays."""
        numbers = random.Random(f"{self.seed} {build.__name__}")
        net = Network(numbers)
        build(net)
        name = build.__name__
        self.write(f"{name}.onnx", net.model())
        arrays = [self.array(numbers) for _ in range(32)]
        for i, values in enumerate(arrays):
            self.write(f"{name}/{i}.npy", WRITER.npy(IMAGE, values))
        self.pipit("calibrate", f"{name}.onnx", name, "--method", "minmax", "--output", f"{name}.json", "--quiet")
        return arrays

    def quantize(self, name, target, *more):
        return self.json("quantize", f"{name}.onnx", "--plan", f"{name}.json", "--target", target, "--output",
                         f"{name}-{target}.onnx", "--quiet", *more)

    def step(self, name):
        """What one step of the output is worth."""
        plan = json.loads((self.folder / f"{name}.json").read_text())
        return {tensor["name"]: tensor["scale"] for tensor in plan["tensors"]}["y"]

    def expect(self, name, model, arrays, answers, *more):
        """That pipit computes these answers within one step of the output's scale."""
        folder = self.folder / f"verify-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes((self.folder / model).read_bytes())
        for i, (values, scores) in enumerate(zip(arrays, answers)):
            data = folder / f"test_data_set_{i}"
            data.mkdir(exist_ok=True)
            for kind, label, shape, of in (("input", "x", (1, *IMAGE), values), ("output", "y", (1, len(scores)), scores)):
                tensor = WRITER.tensor(label, WRITER.FLOAT, shape, struct.pack(f"<{len(of)}f", *of))
                (data / f"{kind}_0.pb").write_bytes(tensor)
        return self.pipit("verify", folder, "--rtol", 0, "--atol", 1.001 * self.step(name), "--quiet", *more)

    def test_files_keep_the_rules_of_their_readers(self):
        for build in NETWORKS:
            self.make(build)
            for target in TARGETS:
                with self.subTest(build.__name__, target=target, seed=self.seed):
                    written = self.quantize(build.__name__, target)
                    self.assertEqual((written["target"], written["kept_nodes"]), (target, 0))
                    self.assertEqual(written["activations"], "s8" if target == "tensorrt" else "u8")
                    found = target_rules.check(self.folder / f"{build.__name__}-{target}.onnx", target)
                    self.assertEqual([text for _, text in found], [])

    def test_the_rules_find_what_is_wrong(self):
        """Files for other readers, and files that were changed, break the rules that they should break."""
        for build in (residual, pools):
            self.make(build)
            for target in (*TARGETS, "pipit"):
                self.quantize(build.__name__, target)

        def broken(name, reader):
            return {rule for rule, _ in target_rules.check(self.folder / name, reader)}

        self.assertLessEqual({"trt-int8", "trt-zero-points", "trt-outputs"}, broken("residual-pipit.onnx", "tensorrt"))
        self.assertIn("ort-around", broken("residual-pipit.onnx", "onnxruntime"))
        self.assertLessEqual({"ort-around", "ort-bias"}, broken("residual-openvino.onnx", "onnxruntime"))
        self.assertLessEqual({"openvino-bias", "openvino-outputs"}, broken("residual-pipit.onnx", "openvino"))
        changes = {
            "trt-opset": (WRITER.field(8, WRITER.field(2, 13)), WRITER.field(8, WRITER.field(2, 21))),
            "trt-per-channel": (b"\x0a\x04axis\x18\x00", b"\x0a\x04axis\x18\x01"),
        }
        good = (self.folder / "pools-tensorrt.onnx").read_bytes()
        for rule, (old, new) in changes.items():
            with self.subTest(rule):
                self.assertIn(old, good)
                self.write("changed.onnx", good.replace(old, new))
                self.assertIn(rule, broken("changed.onnx", "tensorrt"))
        self.write_wrong_file("wrong.onnx")
        self.assertEqual(broken("wrong.onnx", "tensorrt"), {
            "trt-inputs", "trt-residual", "trt-int8-outputs", "trt-as-many-zero-points", "trt-positive-scales",
            "trt-zero-points", "commuting-scale"})
        self.assertEqual(broken("wrong.onnx", "openvino"), {"commuting-scale", "ort-weights", "openvino-moves"})

    def write_wrong_file(self, name):
        """A layer of one quantized factor, a residual that is not quantized, a pool between two scales, another that is
        not rounded, and weights with a zero point too many and a scale of 0."""
        def number(label, value):
            return WRITER.tensor(label, WRITER.FLOAT, (), struct.pack("<f", value))

        def pair(x, scale):
            return [WRITER.node("QuantizeLinear", [x, scale, "zero"], f"{x}.q"),
                    WRITER.node("DequantizeLinear", [f"{x}.q", scale, "zero"], f"{x}.dq")]

        tensors = [number("s", 0.1), number("t", 0.2), number("none", 0.0),
                   WRITER.tensor("zero", target_rules.INT8, (), b"\0"),
                   WRITER.tensor("zeros", target_rules.INT8, (2,), b"\1\0"),
                   WRITER.tensor("w.q", target_rules.INT8, (1, 3, 1, 1), b"\1\2\3"),
                   WRITER.tensor("v", WRITER.FLOAT, (1, 3, 1, 1), struct.pack("<3f", 1, 2, 3))]
        nodes = [*pair("x", "s"), WRITER.node("DequantizeLinear", ["w.q", "none", "zeros"], "w"),
                 WRITER.node("Conv", ["x.dq", "w"], "conv"), WRITER.node("Conv", ["x.dq", "v"], "half"),
                 WRITER.node("Add", ["conv", "half"], "sum"),
                 WRITER.node("MaxPool", ["x.dq"], "pool", kernel_shape=[1, 1]), *pair("pool", "t"),
                 WRITER.node("MaxPool", ["x.dq"], "real", kernel_shape=[1, 1]),
                 WRITER.node("Relu", ["real"], "real.relu"), WRITER.node("Sigmoid", ["real.relu"], "y")]
        self.write(name, WRITER.model((1, *IMAGE), nodes, tensors))

    def test_pipit_reads_every_file(self):
        """In INT8 throughout, with the rewrites and kernels that files of other tools get."""
        for build in NETWORKS:
            name = build.__name__
            self.make(build)
            for target in TARGETS:
                with self.subTest(name, target=target, seed=self.seed):
                    self.quantize(name, target)
                    layers = self.json("inspect", f"{name}-{target}.onnx")
                    # It finds no integers after the interleaving of a convolution's channels that is not rounded.
                    if (name, target) != ("transposed", "openvino"):
                        self.assertEqual(layers["int8"]["macs"], layers["macs"])
                    self.assertNotIn("reference", {layer["kernel"] for layer in layers["layers"]})

    def check_peer(self, run, wrong=()):
        """That a runtime computes the plan from every file but those that it is known to get wrong."""
        for build in NETWORKS:
            name = build.__name__
            arrays = self.make(build)[:8]
            for target in ("pipit", *TARGETS):
                if (name, target) in wrong:
                    continue
                with self.subTest(name, target=target, seed=self.seed):
                    self.quantize(name, target)
                    answers = run(self.folder / f"{name}-{target}.onnx", arrays)
                    self.assertGreater(max(abs(score) for one in answers for score in one), 20 * self.step(name))
                    if (name, target) != ("residual", "onnxruntime"):  # which has roundings that the plan has not
                        self.expect(name, f"{name}.onnx", arrays, answers, "--precision", "int8", "--plan",
                                    f"{name}.json")
                    self.expect(name, f"{name}-{target}.onnx", arrays, answers)

    @unittest.skipUnless(onnxruntime, "onnxruntime is not installed")
    def test_onnx_runtime_computes_the_plan(self):
        def run(path, arrays):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            return [session.run(None, {"x": numpy.array(values, numpy.float32).reshape(1, *IMAGE)})[0].ravel().tolist()
                    for values in arrays]

        self.check_peer(run)

    @unittest.skipUnless(openvino, "openvino is not installed")
    def test_openvino_computes_the_plan(self):
        # OpenVINO 2026.4 takes all operands of a Concat of i8 for unsigned where one of them is the result of a Relu.
        # It leaves out the rounding of a convolution before its residual.
        def run(path, arrays):
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            return [compiled([numpy.array(values, numpy.float32).reshape(1, *IMAGE)])[0].ravel().tolist()
                    for values in arrays]

        self.check_peer(run, wrong={("concat", "tensorrt"), ("residual", "onnxruntime")})

    def test_what_is_refused(self):
        self.make(gemm)
        for words, arguments in (("TensorRT reads no u8", ("--target", "tensorrt", "--activations", "u8")),
                                 ("Concat", ("--target", "openvino", "--activations", "s8")),
                                 ("ncnn", ("--target", "ncnn"))):
            with self.subTest(words):
                self.assert_one_line_error(
                    self.pipit("quantize", "gemm.onnx", "--plan", "gemm.json", "--output", "g.onnx", *arguments,
                               code=USAGE), words)
        self.assertEqual(self.quantize("gemm", "onnxruntime", "--activations", "s8")["activations"], "s8")


if __name__ == "__main__":
    main()
