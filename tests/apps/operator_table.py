"""Every operator of docs/operators.md as a small graph, first, between two convolutions, last and alone, on signals,
images and volumes, in floats and as quantizing tools write it (QuantizeLinear and DequantizeLinear)."""

import math
import random
import struct

import onnx_model
from onnx_model import FLOAT, INT64, field, node, tensor, value

INT8, INT32, BOOL, UINT8 = 3, 6, 9, 2
CHANNELS = 16
EXTENTS = {1: [40], 2: [12, 10], 3: [6, 10, 8]}
OPSET = 20


class Net:
    """The operators of one place, rank and precision, side by side on the input x."""

    def __init__(self, rank, quantized):
        self.rank, self.quantized = rank, quantized
        self.shape = [1, CHANNELS, *EXTENTS[rank]]
        self.nodes, self.tensors, self.outputs, self.count = [], [], [], 0
        self.random = random.Random(5)
        self.operator = ""

    def name(self):
        self.count += 1
        return f"{self.operator}/{self.count}"

    def add(self, op, *inputs, outputs=1, domain="", **attributes):
        names = [self.name() for _ in range(outputs)]
        text = node(op, list(inputs), names[0], names[0], **attributes)
        text += b"".join(field(2, other) for other in names[1:])
        self.nodes.append(text + (field(7, domain) if domain else b""))
        return names[0] if outputs == 1 else names

    def constant(self, dtype, shape, data):
        name = self.name()
        self.tensors.append(tensor(name, dtype, shape, data))
        return name

    def floats(self, *shape, low=-0.5, high=0.5):
        values = [self.random.uniform(low, high) for _ in range(math.prod(shape))]
        return self.constant(FLOAT, shape, struct.pack(f"<{len(values)}f", *values))

    def list(self, *values):
        return self.constant(FLOAT, [len(values)], struct.pack(f"<{len(values)}f", *values))

    def number(self, x):
        return self.constant(FLOAT, [], struct.pack("<f", x))

    def ints(self, *values):
        return self.constant(INT64, [len(values)], struct.pack(f"<{len(values)}q", *values))

    def channels(self, low=0.5, high=1.5):
        return self.floats(CHANNELS, low=low, high=high)

    def qdq(self, x):
        """x rounded to 8 bits, in an INT8 graph."""
        if not self.quantized:
            return x
        scale, zero = self.number(0.05), self.constant(UINT8, [], b"\x80")
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, scale, zero), scale, zero)

    def weights(self, *shape, axis=0):
        if not self.quantized:
            return self.floats(*shape)
        bytes_ = bytes(self.random.randrange(256) for _ in range(math.prod(shape)))
        extent = shape[axis]
        return self.add("DequantizeLinear", self.constant(INT8, shape, bytes_),
                        self.floats(extent, low=0.001, high=0.005), self.constant(INT8, [extent], bytes(extent)), axis=axis)

    def conv(self, x, inputs, outputs, kernel=1, group=1, op="Conv", **attributes):
        shape = [outputs, inputs // group] if op == "Conv" else [inputs, outputs // group]
        w = self.weights(*shape, *[kernel] * self.rank, axis=0 if op == "Conv" else 1)
        return self.qdq(self.add(op, x, w, kernel_shape=[kernel] * self.rank, group=group, **attributes))

    def model(self):
        graph = b"".join(field(1, one) for one in self.nodes) + field(2, "graph")
        graph += b"".join(field(5, one) for one in self.tensors) + field(11, value("x", self.shape))
        graph += b"".join(field(12, field(1, name)) for name in self.outputs)
        opsets = field(8, field(2, OPSET)) + field(8, field(1, "com.microsoft") + field(2, 1))
        return field(1, 9) + field(7, graph) + opsets


def to_float(n, x):
    return n.add("Cast", x, to=FLOAT)


def simple(op, **attributes):
    return lambda n, x: n.add(op, x, **attributes)


def positive(op):
    """Of a logarithm or a root: arguments of at least 0.1."""
    return lambda n, x: n.add(op, n.add("Max", x, n.number(0.1)))


def with_number(op, y=0.7):
    return lambda n, x: n.add(op, x, n.number(y))


def compared(op):
    return lambda n, x: to_float(n, n.add(op, x, n.number(0.1)))


def boolean(op):
    def add(n, x):
        a = n.add("Greater", x, n.number(0.1))
        return to_float(n, n.add(op, a) if op == "Not" else n.add(op, a, n.add("Less", x, n.number(0.4))))
    return add


def reduced(op, positive_only=False):
    """Over channels, over the image and over the last axis, each added to x again."""
    def add(n, x):
        source = n.add("Max", x, n.number(0.1)) if positive_only else x
        y = x
        for axes in ([1], list(range(2, 2 + n.rank)), [1 + n.rank]):
            y = n.add("Add", y, n.add(op, source, n.ints(*axes), keepdims=1))
        return y
    return add


def arg(op):
    return lambda n, x: n.add("Add", x, n.add("Add", to_float(n, n.add(op, x, axis=1, keepdims=1)),
                                             to_float(n, n.add(op, x, axis=-1, keepdims=1))))


def pooled(op, *, kernel=2, stride=2, **attributes):
    def add(n, x):
        return n.add(op, x, kernel_shape=[kernel] * n.rank, strides=[stride] * n.rank, **attributes)
    return add


def gathered(n, x):
    y = n.add("Gather", x, n.ints(*n.random.sample(range(CHANNELS), CHANNELS)), axis=1)
    return n.add("Gather", y, n.ints(*reversed(range(EXTENTS[n.rank][-1]))), axis=-1)


def split(n, x):
    a, b = n.add("Split", x, n.ints(6, 10), outputs=2, axis=1)
    return n.add("Concat", n.add("Relu", b), a, axis=1)


def reshaped(n, x):
    y = n.add("Reshape", x, n.ints(1, 2, CHANNELS // 2, -1))
    return n.add("Reshape", n.add("Transpose", y, perm=[0, 2, 1, 3]), n.ints(*n.shape))


def squeezed(n, x):
    return n.add("Squeeze", n.add("Relu", n.add("Unsqueeze", x, n.ints(0))), n.ints(0))


def padded(n, x):
    y = x
    for mode in ("reflect", "edge", "wrap"):
        amounts = [0, 0] + [1] * n.rank
        y = n.add("Pad", y, n.ints(*amounts, *amounts), mode=mode)
    return n.add("Pad", y, n.ints(*[0] * 2, *[2] * n.rank, *[0] * 2, *[1] * n.rank), n.number(0.0), mode="constant")


def resized(n, x):
    y = x
    for mode, transform in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
        y = n.add("Resize", y, "", n.list(1, 1, *[1.5] * n.rank), mode=mode, coordinate_transformation_mode=transform)
    return y


def sliced(n, x):
    ends = [2**31 - 1] * n.rank
    y = n.add("Slice", x, n.ints(*[1] * n.rank), n.ints(*ends), n.ints(*range(2, 2 + n.rank)), n.ints(*[2] * n.rank))
    return n.add("Slice", y, n.ints(-1), n.ints(-(2**31)), n.ints(2), n.ints(-1))


def normalized(op):
    def add(n, x):
        if op == "BatchNormalization":
            return n.add(op, x, n.channels(), n.channels(), n.channels(), n.channels())
        return n.add(op, x, n.channels(), n.channels())
    return add


def layer_normalized(n, x):
    y = n.add("LayerNormalization", x, n.floats(EXTENTS[n.rank][-1]), n.floats(EXTENTS[n.rank][-1]), axis=-1)
    last = list(range(2, 2 + n.rank))
    y = n.add("Transpose", y, perm=[0, *last, 1])
    y = n.add("LayerNormalization", y, n.channels(), n.channels(), axis=-1)
    return n.add("Transpose", y, perm=[0, 1 + n.rank, *range(1, 1 + n.rank)])


def group_normalized(n, x):
    y = n.add("Reshape", x, n.ints(0, 4, -1))
    y = n.add("InstanceNormalization", y, n.floats(4, low=1, high=1), n.floats(4, low=0, high=0))
    y = n.add("Reshape", y, n.ints(*n.shape))
    one = [1] * n.rank
    return n.add("Add", n.add("Mul", y, n.floats(CHANNELS, *one)), n.floats(CHANNELS, *one))


def product(n, x):
    """Over the channels of every position, and over the positions."""
    y = n.add("Transpose", n.add("Reshape", x, n.ints(1, CHANNELS, -1)), perm=[0, 2, 1])
    y = n.qdq(n.add("MatMul", y, n.weights(CHANNELS, CHANNELS, axis=1)))
    scores = n.add("MatMul", y, n.add("Transpose", y, perm=[0, 2, 1]))
    y = n.add("MatMul", n.add("Softmax", scores, axis=-1), y)
    return n.add("Reshape", n.add("Transpose", y, perm=[0, 2, 1]), n.ints(*n.shape))


def general_product(n, x):
    y = n.add("Reshape", x, n.ints(-1, CHANNELS))
    return n.add("Reshape", n.add("Gemm", y, n.weights(CHANNELS, CHANNELS), n.channels(), transB=1), n.ints(*n.shape))


def convolved(n, x):
    y = n.conv(x, CHANNELS, CHANNELS, 3, pads=[1] * 2 * n.rank)
    y = n.add("Add", y, n.conv(x, CHANNELS, CHANNELS, 3, CHANNELS, pads=[2] * 2 * n.rank, dilations=[2] * n.rank))
    y = n.qdq(y)
    y = n.conv(y, CHANNELS, CHANNELS, 2, CHANNELS // 4, strides=[2] * n.rank)
    return n.conv(y, CHANNELS, CHANNELS, 1)


def transposed_conv(n, x):
    y = n.conv(x, CHANNELS, CHANNELS, 2, op="ConvTranspose", strides=[2] * n.rank)
    return n.conv(y, CHANNELS, CHANNELS, 3, CHANNELS, op="ConvTranspose", pads=[1] * 2 * n.rank)


def dropped(n, x):
    return n.add("Relu", n.add("Dropout", x))


def where(n, x):
    return n.add("Where", n.add("Greater", x, n.number(0.1)), x, n.add("Neg", x))


def expanded(n, x):
    y = n.add("GlobalAveragePool", x)
    return n.add("Add", x, n.add("Expand", y, n.ints(*n.shape)))


def tiled(n, x):
    return n.add("Tile", x, n.ints(1, 1, *[1] * (n.rank - 1), 2))


def channel_major(op):
    """DepthToSpace and SpaceToDepth are of images."""
    def add(n, x):
        if op == "SpaceToDepth":
            return n.add("DepthToSpace", n.add("Relu", n.add(op, x, blocksize=2)), blocksize=2)
        return n.add("SpaceToDepth", n.add("Relu", n.add(op, x, blocksize=2)), blocksize=2)
    return add


def lp_pool(n, x):
    return n.add("LpPool", x, kernel_shape=[2] * n.rank, strides=[2] * n.rank, p=2)


def shared_lp(n, x):
    return n.add("Mul", x, n.add("GlobalLpPool", x))


def pooled_and_back(op):
    return lambda n, x: n.add("Mul", x, n.add(op, x))


def chain(op):
    return lambda n, x: n.add(op, x, n.add("Relu", x), n.floats(CHANNELS, *[1] * n.rank))


def like(n, x):
    return to_float(n, n.add("CastLike", x, n.constant(INT32, [], bytes(4))))


def microsoft(op, **attributes):
    return lambda n, x: n.add(op, x, domain="com.microsoft", **attributes)


def fused_conv(n, x):
    return n.add("FusedConv", x, n.floats(CHANNELS, CHANNELS, *[3] * n.rank), n.channels(), domain="com.microsoft",
                 kernel_shape=[3] * n.rank, pads=[1] * 2 * n.rank, activation="Relu")


OPERATORS = {
    **{op: simple(op) for op in (
        "Abs", "Ceil", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Tanh", "Celu", "Cos", "Sin", "Elu", "HardSigmoid", "LeakyRelu",
        "Selu", "Erf", "Sign", "Gelu", "HardSwish", "Mish", "Round", "Softplus", "Softsign", "ThresholdedRelu")},
    **{op: positive(op) for op in ("Log", "Sqrt", "Reciprocal")},
    **{op: with_number(op) for op in ("Add", "Sub", "Mul", "Div")},
    **{op: compared(op) for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    **{op: boolean(op) for op in ("And", "Or", "Xor", "Not")},
    **{op: arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: reduced(op) for op in ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
                                  "ReduceProd", "ReduceSum", "ReduceSumSquare")},
    "ReduceLogSum": reduced("ReduceLogSum", positive_only=True),
    **{op: chain(op) for op in ("Max", "Mean", "Min", "Sum")},
    **{op: pooled_and_back(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "GlobalLpPool": shared_lp,
    "LpPool": lp_pool,
    "AveragePool": lambda n, x: pooled("AveragePool", kernel=3, stride=1, pads=[1] * 2 * n.rank, count_include_pad=1)(
        n, pooled("AveragePool")(n, x)),
    "MaxPool": lambda n, x: pooled("MaxPool", kernel=3, stride=1, pads=[1] * 2 * n.rank)(n, pooled("MaxPool", ceil_mode=1)(n, x)),
    "BatchNormalization": normalized("BatchNormalization"),
    "InstanceNormalization": normalized("InstanceNormalization"),
    "GroupNormalization": group_normalized,
    "LayerNormalization": layer_normalized,
    "LRN": simple("LRN", size=5),
    "Cast": lambda n, x: to_float(n, n.add("Cast", x, to=INT32)),
    "CastLike": like,
    "Clip": lambda n, x: n.add("Clip", x, n.number(-0.3), n.number(0.4)),
    "Concat": lambda n, x: n.add("Concat", n.add("Relu", x), n.add("Neg", x), axis=-1),
    "Conv": convolved,
    "ConvTranspose": transposed_conv,
    "DepthToSpace": channel_major("DepthToSpace"),
    "SpaceToDepth": channel_major("SpaceToDepth"),
    "Dropout": dropped,
    "Expand": expanded,
    "Flatten": lambda n, x: n.add("Reshape", n.add("Relu", n.add("Flatten", x, axis=1)), n.ints(*n.shape)),
    "Gather": gathered,
    "Gemm": general_product,
    "MatMul": product,
    "Identity": lambda n, x: n.add("Relu", n.add("Identity", x)),
    **{name: simple(name) for name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan")},
    "Shrink": simple("Shrink", lambd=0.2, bias=0.1),
    "Einsum": lambda n, x: n.add("Einsum", x, n.floats(CHANNELS, CHANNELS), equation="bc...,cd->bd..."),
    "Hardmax": simple("Hardmax", axis=1),
    "IsNaN": lambda n, x: n.add("Where", n.add("IsNaN", x), n.number(0.5), x),
    "IsInf": lambda n, x: n.add("Where", n.add("IsInf", x), n.number(0.5), x),
    "LpNormalization": simple("LpNormalization", axis=1),
    "MeanVarianceNormalization": simple("MeanVarianceNormalization", axes=[0, 2]),
    "LogSoftmax": simple("LogSoftmax", axis=1),
    "Softmax": lambda n, x: n.add("Softmax", n.add("Softmax", x, axis=1), axis=-1),
    "Mod": lambda n, x: n.add("Mod", x, n.number(0.3), fmod=1),
    "PRelu": lambda n, x: n.add("PRelu", x, n.floats(CHANNELS, *[1] * n.rank)),
    "Pad": padded,
    "Pow": lambda n, x: n.add("Pow", n.add("Abs", n.add("Pow", x, n.number(2.0))), n.number(0.45)),
    "Reshape": reshaped,
    "Resize": resized,
    "Slice": sliced,
    "Split": split,
    "Squeeze": squeezed,
    "Unsqueeze": squeezed,
    "Tile": tiled,
    "Transpose": lambda n, x: n.add("Transpose", n.add("Relu", n.add("Transpose", x, perm=[0, *range(2, 2 + n.rank), 1])),
                                    perm=[0, 1 + n.rank, *range(1, 1 + n.rank)]),
    "Where": where,
    "com.microsoft.FusedConv": fused_conv,
    "com.microsoft.QuickGelu": microsoft("QuickGelu", alpha=1.702),
}

ONLY_IMAGES = {"DepthToSpace", "SpaceToDepth"}
PLACES = ("first", "between", "last", "alone")


def operators(rank):
    """The names of those that a tensor of that many spatial dimensions has."""
    return [operator for operator in OPERATORS if rank == 2 or operator not in ONLY_IMAGES]


def network(names, place, rank, quantized):
    """The bytes of a model: these operators side by side on the input x, each in its place."""
    n = Net(rank, quantized)
    for operator in names:
        n.operator = f"{operator}, {place}"
        x = n.qdq("x") if place in ("first", "alone") else n.qdq(n.add("Relu", n.conv(n.qdq("x"), CHANNELS, CHANNELS)))
        x = n.qdq(OPERATORS[operator](n, x))
        n.outputs.append(n.conv(x, CHANNELS, CHANNELS) if place in ("first", "between") else x)
    return n.model()
