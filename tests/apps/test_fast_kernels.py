"""No operator pattern of the exported models (tests/zoo) runs on a reference kernel, in any precision.

Small networks with the patterns that both exporters of PyTorch write stand for the models, which CI does not have;
tests/zoo/reference_kernels.py checks the models themselves, and by their time. Here kernels are named, not timed."""

import math
import random
import struct

import onnx_model
from command import CommandTest, main
from onnx_model import FLOAT, INT64, node

DOUBLE = 11  # ONNX element type
SIDE = 32
CHANNELS = 16


class Network:
    """A network of [N, 3, SIDE, SIDE] that a pattern grows from `x`, its features of 1 x CHANNELS x SIDE/2 x SIDE/2."""

    def __init__(self):
        self.nodes, self.tensors, self.count = [], [], 0
        self.random = random.Random(5)
        self.shape = [1, CHANNELS, SIDE // 2, SIDE // 2]
        self.x = self.conv("x", 3, CHANNELS, 3, strides=[2, 2], pads=[1, 1, 1, 1])
        self.x = self.add("Relu", [self.x])

    def add(self, op, inputs, outputs=1, **attributes):
        self.count += 1
        name = f"{op}_{self.count}"
        names = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        text = node(op, inputs, names[0], name, **attributes)
        text += b"".join(onnx_model.field(2, other) for other in names[1:])
        self.nodes.append(text)
        return names[0] if outputs == 1 else names

    def floats(self, shape, low=-0.5, high=0.5):
        self.count += 1
        values = [self.random.uniform(low, high) for _ in range(math.prod(shape))]
        self.tensors.append(onnx_model.tensor(f"c{self.count}", FLOAT, shape, struct.pack(f"<{len(values)}f", *values)))
        return f"c{self.count}"

    def number(self, value):
        self.count += 1
        self.tensors.append(onnx_model.tensor(f"c{self.count}", FLOAT, [], struct.pack("<f", value)))
        return f"c{self.count}"

    def integers(self, *values):
        self.count += 1
        self.tensors.append(onnx_model.tensor(f"c{self.count}", INT64, [len(values)], struct.pack(f"<{len(values)}q", *values)))
        return f"c{self.count}"

    def conv(self, x, inputs, outputs, kernel=1, group=1, bias=True, **attributes):
        kernel = [kernel, kernel] if isinstance(kernel, int) else kernel
        operands = [x, self.floats([outputs, inputs // group, *kernel])] + ([self.floats([outputs])] if bias else [])
        return self.add("Conv", operands, kernel_shape=kernel, group=group, **attributes)

    def channels(self, *, positive=False):
        """One constant per channel, as it meets an image."""
        return self.floats([CHANNELS, 1, 1], 0.5 if positive else -0.5, 1.5)

    def transposed(self, x, *permutation):
        return self.add("Transpose", [x], perm=list(permutation))

    def pooled(self, x):
        return self.add("GlobalAveragePool", [x])

    def classifier(self, x, channels=CHANNELS):
        """The model's bytes: what x comes to as 12 scores."""
        x = self.add("Flatten", [self.pooled(x)], axis=1)
        self.nodes.append(node("Gemm", [x, self.floats([12, channels]), self.floats([12])], "y", transB=1))
        return onnx_model.model(["N", 3, SIDE, SIDE], self.nodes, self.tensors)


def layer_norm(n, x, axis, square, root):
    """Written out, as exporters do below opset 17."""
    mean = n.add("ReduceMean", [x], axes=[axis], keepdims=1)
    d = n.add("Sub", [x, mean])
    squares = n.add("Pow", [d, n.number(2.0)]) if square == "Pow" else n.add("Mul", [d, d])
    v = n.add("Add", [n.add("ReduceMean", [squares], axes=[axis], keepdims=1), n.number(1e-6)])
    deviation = n.add("Sqrt", [v])
    y = (n.add("Div", [d, deviation]) if root == "Div" else n.add("Mul", [d, n.add("Reciprocal", [deviation])]))
    shape = [CHANNELS] if axis == -1 else [CHANNELS, 1, 1]
    return n.add("Add", [n.add("Mul", [y, n.floats(shape, 0.5, 1.5)]), n.floats(shape)])


def gelu(n, x):
    erf = n.add("Erf", [n.add("Div", [x, n.number(math.sqrt(2))])])
    return n.add("Mul", [n.add("Mul", [x, n.add("Add", [erf, n.number(1.0)])]), n.number(0.5)])


def gelu_tanh(n, x):
    cube = n.add("Mul", [n.add("Pow", [x, n.number(3.0)]), n.number(0.044715)])
    inner = n.add("Mul", [n.add("Add", [x, cube]), n.number(math.sqrt(2 / math.pi))])
    one = n.add("Add", [n.add("Tanh", [inner]), n.number(1.0)])
    return n.add("Mul", [n.add("Mul", [x, one]), n.number(0.5)])


def linear(n, x, inputs, outputs):
    return n.add("Add", [n.floats([outputs]), n.add("MatMul", [x, n.floats([inputs, outputs])])])


def convnext(square="Pow", root="Div", activation=gelu, fused=False):
    def pattern(n):
        y = n.conv(n.x, CHANNELS, CHANNELS, 7, CHANNELS, pads=[3] * 4)
        y = n.transposed(y, 0, 2, 3, 1)
        if fused:
            y = n.add("LayerNormalization", [y, n.floats([CHANNELS], 0.5, 1.5), n.floats([CHANNELS])], axis=-1)
        else:
            y = layer_norm(n, y, -1, square, root)
        y = activation(n, linear(n, y, CHANNELS, 4 * CHANNELS))
        y = n.transposed(linear(n, y, 4 * CHANNELS, CHANNELS), 0, 3, 1, 2)
        y = n.add("Add", [n.add("Mul", [n.channels(), y]), n.x])
        return layer_norm(n, y, 1, square, root)
    return pattern


def tensorflow_norm(n):
    """x * k + (bias - mean * k), as tf2onnx writes LayerNormalization of Keras."""
    x = n.transposed(n.x, 0, 2, 3, 1)
    mean = n.add("ReduceMean", [x], axes=[-1], keepdims=1)
    d = n.add("Sub", [x, mean])
    v = n.add("Add", [n.add("ReduceMean", [n.add("Mul", [d, d])], axes=[-1], keepdims=1), n.number(1e-3)])
    k = n.add("Mul", [n.add("Reciprocal", [n.add("Sqrt", [v])]), n.floats([CHANNELS], 0.5, 1.5)])
    y = n.add("Add", [n.add("Mul", [x, k]), n.add("Sub", [n.floats([CHANNELS]), n.add("Mul", [mean, k])])])
    return n.transposed(y, 0, 3, 1, 2)


def batch_norm(n):
    y = n.conv(n.x, CHANNELS, CHANNELS, 3, pads=[1] * 4, bias=False)
    parameters = [n.floats([CHANNELS], 0.5, 1.5) for _ in range(4)]
    y = n.add("Relu", [n.add("BatchNormalization", [y, *parameters], epsilon=1e-5)])
    # Before the convolution, as in DenseNet and ResNet v2: nothing to fold it into.
    y = n.add("Relu", [n.add("BatchNormalization", [n.add("Add", [y, n.x]), *parameters], epsilon=1e-5)])
    return n.add("Add", [n.conv(y, CHANNELS, CHANNELS, 3, 4, pads=[1] * 4), n.x])


def depthwise(op):
    def pattern(n):
        y = n.conv(n.x, CHANNELS, 32)
        y = activated(n, y, op)
        y = activated(n, n.conv(y, 32, 32, 3, 32, pads=[1] * 4), op)
        return n.add("Add", [n.conv(y, 32, CHANNELS), n.x])
    return pattern


def activated(n, x, op):
    if op == "Clip":
        return n.add("Clip", [x, n.number(0.0), n.number(6.0)])
    if op == "Silu":
        return n.add("Mul", [x, n.add("Sigmoid", [x])])
    if op == "HardSigmoidMul":
        return n.add("Mul", [x, n.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
    return n.add(op, [x])


def squeeze_excitation(mean, gate):
    def pattern(n):
        y = n.conv(n.x, CHANNELS, CHANNELS, 3, pads=[1] * 4)
        s = n.add("ReduceMean", [y], axes=[2, 3], keepdims=1) if mean == "ReduceMean" else n.pooled(y)
        s = n.conv(n.add("Relu", [n.conv(s, CHANNELS, 8)]), 8, CHANNELS)
        s = n.add("HardSigmoid", [s], alpha=1 / 6, beta=0.5) if gate == "HardSigmoid" else n.add("Sigmoid", [s])
        return n.conv(n.add("Mul", [y, s]), CHANNELS, CHANNELS)
    return pattern


def efficient_channel_attention(n):
    """A convolution over the channels of the pooled image."""
    s = n.add("Reshape", [n.pooled(n.x), n.integers(-1, 1, CHANNELS)])
    s = n.add("Conv", [s, n.floats([1, 1, 3])], kernel_shape=[3], pads=[1, 1])
    s = n.add("Reshape", [n.add("Sigmoid", [s]), n.integers(-1, CHANNELS, 1, 1)])
    return n.add("Mul", [n.x, s])


def channel_shuffle(n):
    a, b = n.add("Split", [n.x, n.integers(8, 8)], outputs=2, axis=1)
    b = n.conv(n.add("Relu", [n.conv(b, 8, 8)]), 8, 8, 3, 8, pads=[1] * 4)
    y = n.add("Concat", [a, b], axis=1)
    half = SIDE // 2
    y = n.add("Reshape", [y, n.integers(0, 2, 8, half, half)])
    return n.add("Reshape", [n.transposed(y, 0, 2, 1, 3, 4), n.integers(0, CHANNELS, half, half)])


def inception(n):
    a = n.conv(n.conv(n.x, CHANNELS, 8, [1, 7], pads=[0, 3, 0, 3]), 8, 8, [7, 1], pads=[3, 0, 3, 0])
    b = n.conv(n.add("AveragePool", [n.x], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1), CHANNELS, 4)
    c = n.conv(n.add("MaxPool", [n.x], kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]), CHANNELS, 4)
    return n.add("Concat", [a, b, c], axis=1)


def pools(n):
    y = n.add("MaxPool", [n.x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    y = n.add("AveragePool", [y], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    return n.add("Add", [y, n.add("Pad", [y, n.integers(0, 0, 0, 0, 0, 0, 0, 0)])])


def resize(n):
    y = n.conv(n.x, CHANNELS, CHANNELS, 3, strides=[2, 2], pads=[1] * 4)
    scales = n.floats([4])
    n.tensors[-1] = onnx_model.tensor(scales, FLOAT, [4], struct.pack("<4f", 1, 1, 2, 2))
    y = n.add("Resize", [y, "", scales], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return n.add("Relu", [n.add("Add", [y, n.x])])


def selective_kernel(n):
    """Two branches, a softmax over them, and their weighted sum (SK-ResNet)."""
    half = SIDE // 2
    branches = [n.add("Unsqueeze", [n.conv(n.x, CHANNELS, CHANNELS, k, pads=[k // 2] * 4), n.integers(1)]) for k in (1, 3)]
    y = n.add("Concat", branches, axis=1)
    s = n.pooled(n.add("ReduceSum", [y, n.integers(1)], keepdims=0))
    s = n.add("Reshape", [n.conv(s, CHANNELS, 2 * CHANNELS), n.integers(0, 2, CHANNELS, 1, 1)])
    y = n.add("Mul", [y, n.add("Softmax", [s], axis=1)])
    y = n.add("ReduceSum", [y, n.integers(1)], keepdims=0)
    return n.add("Reshape", [y, n.integers(0, CHANNELS, half, half)])


def slices(n):
    """Res2Net, GhostNet: parts of the channels, and joined again."""
    a = n.add("Slice", [n.x, n.integers(0), n.integers(8), n.integers(1)])
    b = n.add("Slice", [n.x, n.integers(8), n.integers(16), n.integers(1)])
    c = n.add("Add", [n.conv(a, 8, 8, 3, pads=[1] * 4), b])
    return n.add("Concat", [a, n.conv(c, 8, 8, 3, 8, pads=[1] * 4)], axis=1)


def scaled_residual(n):
    """NFNet: activations and sums with scalars."""
    y = n.add("Mul", [gelu(n, n.x), n.number(1.7015)])
    y = n.conv(n.add("Mul", [y, n.number(0.98)]), CHANNELS, CHANNELS, 3, pads=[1] * 4)
    return n.add("Add", [n.add("Mul", [y, n.number(0.2)]), n.x])


def gathered_pool(n):
    """The mean as the newer exporter writes it, with the strided view after it."""
    y = n.add("ReduceMean", [n.x], axes=[-1, -2], keepdims=1)
    flat = n.add("Reshape", [y, n.integers(-1, CHANNELS)])
    y = n.add("Gather", [flat, n.integers(*range(CHANNELS))], axis=1)
    y = n.add("Reshape", [y, n.integers(-1, CHANNELS, 1, 1)])
    return n.add("Mul", [n.x, n.add("Expand", [y, n.integers(1, CHANNELS, 1, 1)])])


def powers(n):
    """GeM pooling: a mean of powers and its root."""
    y = n.add("Pow", [n.add("Clip", [n.x, n.number(1e-6)]), n.number(3.0)])
    y = n.add("Pow", [n.add("AveragePool", [y], kernel_shape=[2, 2], strides=[2, 2]), n.number(1 / 3)])
    return n.add("Pow", [y, n.channels(positive=True)])


def volume(n):
    """The features as CHANNELS volumes of 4 x 8 x 8."""
    return n.add("Reshape", [n.x, n.integers(0, CHANNELS, 4, 8, 8)])


def conv_3d(n, x, inputs, outputs, kernel, group=1, **attributes):
    return n.conv(x, inputs, outputs, list(kernel), group, pads=[k // 2 for k in kernel] * 2, **attributes)


def residual_volumes(n):
    """R3D and R(2+1)D: windows over all dimensions, over a slice and over slices, with strides."""
    x = volume(n)
    parameters = [n.floats([CHANNELS], 0.5, 1.5) for _ in range(4)]
    y = n.add("Relu", [n.add("BatchNormalization", [conv_3d(n, x, CHANNELS, CHANNELS, (3, 3, 3), bias=False), *parameters])])
    x = n.add("Relu", [n.add("Add", [conv_3d(n, y, CHANNELS, CHANNELS, (3, 3, 3)), x])])
    y = n.add("Relu", [conv_3d(n, x, CHANNELS, 24, (1, 3, 3), strides=[1, 2, 2])])
    y = conv_3d(n, y, 24, CHANNELS, (3, 1, 1), strides=[2, 1, 1])
    return n.add("Add", [y, conv_3d(n, x, CHANNELS, CHANNELS, (1, 1, 1), strides=[2, 2, 2])])


def pooled_volumes(n):
    y = n.add("MaxPool", [volume(n)], kernel_shape=[3, 3, 3], strides=[1, 2, 2], pads=[1] * 6)
    y = n.add("AveragePool", [conv_3d(n, y, CHANNELS, CHANNELS, (1, 1, 1))], kernel_shape=[2, 2, 2], ceil_mode=1)
    s = n.add("Sigmoid", [conv_3d(n, n.add("ReduceMean", [y], axes=[2, 3, 4], keepdims=1), CHANNELS, CHANNELS, (1, 1, 1))])
    return n.add("MaxPool", [n.add("Mul", [y, s])], kernel_shape=[1, 2, 2], strides=[1, 2, 2])


def segmented_volumes(n):
    """A U-Net over volumes."""
    x = conv_3d(n, volume(n), CHANNELS, CHANNELS, (3, 3, 3))
    x = n.add("InstanceNormalization", [x, n.floats([CHANNELS], 0.5, 1.5), n.floats([CHANNELS])])
    x = n.add("LeakyRelu", [x], alpha=0.01)
    y = n.add("MaxPool", [x], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    y = n.add("ConvTranspose", [y, n.floats([CHANNELS, CHANNELS, 2, 2, 2])], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    return conv_3d(n, n.add("Concat", [x, y], axis=1), 2 * CHANNELS, CHANNELS, (3, 3, 3))


def depthwise_volumes(n):
    """X3D."""
    y = conv_3d(n, volume(n), CHANNELS, CHANNELS, (5, 1, 1), CHANNELS)
    y = conv_3d(n, n.add("Relu", [y]), CHANNELS, 40, (1, 1, 1))
    y = conv_3d(n, y, 40, 40, (3, 3, 3), 40, strides=[1, 2, 2])
    s = n.add("Relu", [conv_3d(n, n.pooled(y), 40, 8, (1, 1, 1))])
    y = n.add("Mul", [y, n.add("Sigmoid", [conv_3d(n, s, 8, 40, (1, 1, 1))])])
    return conv_3d(n, activated(n, y, "Silu"), 40, CHANNELS, (1, 1, 1))


PATTERNS = {
    "ConvNeXt": convnext(),
    "ConvNeXt, Mul and Reciprocal": convnext("Mul", "Reciprocal"),
    "ConvNeXt, tanh": convnext(activation=gelu_tanh),
    "ConvNeXt, LayerNormalization": convnext(fused=True),
    "Keras layer normalization": tensorflow_norm,
    "batch normalization": batch_norm,
    **{f"depthwise with {op}": depthwise(op) for op in ("Relu", "Clip", "Silu", "HardSwish", "HardSigmoidMul", "LeakyRelu")},
    "squeeze and excitation": squeeze_excitation("GlobalAveragePool", "Sigmoid"),
    "squeeze and excitation, ReduceMean": squeeze_excitation("ReduceMean", "HardSigmoid"),
    "efficient channel attention": efficient_channel_attention,
    "channel shuffle": channel_shuffle,
    "Inception": inception,
    "pools": pools,
    "resize": resize,
    "selective kernels": selective_kernel,
    "slices": slices,
    "scaled residual": scaled_residual,
    "gathered pool": gathered_pool,
    "powers": powers,
    "residual volumes": residual_volumes,
    "pooled volumes": pooled_volumes,
    "depthwise volumes": depthwise_volumes,
    "segmented volumes": segmented_volumes,
}


class FastKernels(CommandTest):
    def images(self):
        for i, colour in enumerate([(250, 30, 40), (20, 200, 90), (60, 60, 220), (128, 128, 128)]):
            self.write_bmp(f"images/{i}.bmp", colour, SIDE)
        return self.folder / "images"

    def test_no_pattern_runs_on_a_reference_kernel(self):
        images = self.images()
        for name, pattern in PATTERNS.items():
            network = Network()
            model = self.write("model.onnx", network.classifier(pattern(network)))
            self.pipit("calibrate", model, images, "--output", "plan.json", "--quiet")
            for options in (["fp32"], ["fp16"], ["int8", "--plan", "plan.json"], ["int8-dynamic"], ["w8"]):
                for batch in (1, 3):
                    layers = self.json("inspect", model, "--batch", batch, "--precision", *options)["layers"]
                    slow = [f"{layer['type']} {layer['geometry']} ({layer['name']})" for layer in layers
                            if "reference" in layer["kernel"]]
                    with self.subTest(pattern=name, precision=options[0], batch=batch):
                        self.assertGreater(len(layers), 2)
                        self.assertEqual(slow, [])

    def test_a_convnext_block_is_one_normalization_and_convolutions(self):
        for name in (name for name in PATTERNS if name.startswith("ConvNeXt")):
            network = Network()
            model = self.write("model.onnx", network.classifier(PATTERNS[name](network)))
            types = [layer["type"] for layer in self.json("inspect", model)["layers"]]
            with self.subTest(pattern=name):
                self.assertEqual([t for t in types if t not in ("Transpose", "Reshape", "ToLayout")],
                                 ["Conv", "Conv", "LayerNorm", "Conv", "Conv", "LayerNorm", "Pool", "Gemm"])
            self.pipit("calibrate", model, self.images(), "--output", "plan.json", "--quiet")
            layers = self.json("inspect", model, "--precision", "int8", "--plan", "plan.json")["layers"]
            with self.subTest(pattern=name, precision="int8"):
                self.assertEqual([layer["type"] for layer in layers].count("QConv"), 5)
                self.assertFalse([layer for layer in layers if layer["type"] in ("Conv", "MatMul", "Gemm")])

    def test_heads_that_share_keys_are_one_attention(self):
        numbers = [onnx_model.tensor(str(i), INT64, [1], struct.pack("<q", i)) for i in range(3)]
        nodes = [node("Slice", ["x", "0", "2", "1"], "k"), node("Relu", ["k"], "v"),
                 node("Attention", ["x", "k", "v"], "y")]
        model = onnx_model.model([1, 8, 16, 32], nodes, numbers)
        opset = [onnx_model.field(8, onnx_model.field(2, version)) for version in (17, 23)]
        layers = self.json("inspect", self.write("shared.onnx", model.replace(*opset)))["layers"]
        self.assertEqual([layer["kernel"] for layer in layers].count("attention"), 1)
        self.assertFalse([layer for layer in layers if layer["type"] in ("Softmax", "MatMul")])

    def test_profile_says_what_reference_kernels_cost(self):
        network = Network()
        # Nothing but the reference takes functions of f64.
        y = network.add("Exp", [network.add("Cast", [network.x], to=DOUBLE)])
        model = self.write("model.onnx", network.classifier(network.add("Cast", [y], to=FLOAT)))
        done = self.pipit("profile", model, "--runs", "2", silent=False)
        self.assertRegex(done.stderr, r"\Apipit: note: 1 layer on reference kernels, plain loops, takes [\d.]+ of [\d.]+ ms "
                                      r"\(\d+%\), most of it 'Exp_\d+' \(Unary exp[^\n]*--why[^\n]*\n"
                                      r"(pipit: note: [^\n]*: the times vary by [^\n]*\n)?"
                                      r"(pipit: note: [^\n]* may run [^\n]* with --precision bf16: [^\n]*\n)?\Z")
        self.assertEqual(self.pipit("profile", model, "--runs", "2", "--quiet").stderr, "")
        share = self.json("profile", model, "--runs", "2", "--quiet")["reference_share"]
        self.assertGreater(share, 0.01)
        network = Network()
        model = self.write("fast.onnx", network.classifier(network.x))
        self.assertEqual(self.json("profile", model, "--runs", "2")["reference_share"], 0)


if __name__ == "__main__":
    main()
