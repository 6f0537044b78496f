"""The models of corners.py: one operator each, alone or with 1x1 convolutions around it, with seeded random weights."""

from __future__ import annotations

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:  # corners.py says what is missing
    pass

OUTSIDE = 16  # channels of the image before the first 1x1 convolution
WHERE = ("between", "first", "last", "alone")


class Net:
    """A graph that grows; x is the value that the next operator reads, of shape `shape`."""

    def __init__(self, shape: list[int]):
        self.shape, self.x, self.count = list(shape), "x", 0
        self.input = list(shape)
        self.nodes, self.tensors = [], []
        self.random = np.random.default_rng(5)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, array) -> str:
        name = self.name()
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def positive(self, *shape: int) -> str:
        return self.constant(self.random.uniform(0.5, 1.5, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, *more: str, **attributes) -> None:
        """The next operator: reads x and `more`."""
        y = self.name()
        self.nodes.append(helper.make_node(op, [self.x, *more], [y], **attributes))
        self.x = y

    def conv(self, outputs: int, kernel, *, group: int = 1, **attributes) -> None:
        rank = len(self.shape) - 2
        kernel = [kernel] * rank if isinstance(kernel, int) else list(kernel)
        inputs = self.shape[1] // group
        scale = (2.0 / (inputs * np.prod(kernel))) ** 0.5
        self.add("Conv", self.floats(outputs, inputs, *kernel, scale=scale), self.floats(outputs, scale=0.1),
                 kernel_shape=kernel, group=group, **attributes)
        self.shape[1] = outputs

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "corner", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)],
            [helper.make_empty_tensor_value_info(self.x)], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def same(kernel, dilations=None):
    """Pads that keep extents with stride 1; for an even kernel one less in front."""
    dilations = dilations or [1] * len(kernel)
    total = [d * (k - 1) for k, d in zip(kernel, dilations)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def depthwise(*kernel, dilation=1, stride=1):
    def add(n: Net):
        dilations = [dilation] * len(kernel)
        n.conv(n.shape[1], kernel, group=n.shape[1], pads=same(kernel, dilations), dilations=dilations,
               strides=[stride] * len(kernel))
    return add


def dense(*kernel, outputs=None, group=1, **attributes):
    def add(n: Net):
        n.conv(outputs or n.shape[1], kernel, group=group, pads=same(kernel, attributes.get("dilations")), **attributes)
    return add


def grouped(channels, *kernel, **attributes):
    """Groups of `channels` channels."""
    def add(n: Net):
        n.conv(n.shape[1], kernel, group=n.shape[1] // channels, pads=same(kernel), **attributes)
    return add


def op(name, *operands, **attributes):
    """An operator; operands are functions of the net that give the name of a constant."""
    def add(n: Net):
        n.add(name, *(operand(n) for operand in operands), **attributes)
    return add


def pool(name, *kernel, **attributes):
    return op(name, kernel_shape=list(kernel), **attributes)


def pad(mode, *amounts):
    """Padding of the spatial dimensions, `amounts` at both ends."""
    def add(n: Net):
        both = [0, 0, *amounts]
        n.add("Pad", n.ints(*both, *both), *([n.constant(np.float32(0.25))] if mode == "constant" else []), mode=mode)
    return add


def resize(mode, transform, *scales):
    def add(n: Net):
        n.nodes.append(helper.make_node("Resize", [n.x, "", n.constant(np.array([1, 1, *scales], np.float32))], ["resized"],
                                        mode=mode, coordinate_transformation_mode=transform,
                                        **({"nearest_mode": "floor"} if mode == "nearest" else {})))
        n.x = "resized"
    return add


def batch_norm(n: Net):
    c = n.shape[1]
    n.add("BatchNormalization", n.positive(c), n.floats(c), n.floats(c), n.positive(c))


def instance_norm(n: Net):
    n.add("InstanceNormalization", n.positive(n.shape[1]), n.floats(n.shape[1]))


def group_norm(groups):
    """As PyTorch's exporter writes it."""
    def add(n: Net):
        c, rank = n.shape[1], len(n.shape) - 2
        n.add("Reshape", n.ints(0, groups, -1))
        n.add("InstanceNormalization", n.constant(np.ones(groups, np.float32)), n.constant(np.zeros(groups, np.float32)))
        n.add("Reshape", n.ints(*n.shape))
        n.add("Mul", n.positive(c, *[1] * rank))
        n.add("Add", n.floats(c, *[1] * rank))
    return add


def arg(name, axis):
    """The index, as a float again so that a convolution can read it."""
    def add(n: Net):
        n.add(name, axis=axis, keepdims=1)
        n.add("Cast", to=TensorProto.FLOAT)
        if axis == 1:
            n.shape[1] = 1
    return add


def softmax_arg_max(n: Net):
    n.add("Softmax", axis=1)
    arg("ArgMax", 1)(n)


def gather_channels(n: Net):
    n.add("Gather", n.constant(n.random.permutation(n.shape[1]).astype(np.int64)), axis=1)


def tile(n: Net):
    n.add("Tile", n.ints(*[1] * (len(n.shape) - 1), 2))


def expand(n: Net):
    """The means over the image, at every position again."""
    image = n.x
    n.add("GlobalAveragePool")
    n.add("Expand", n.ints(*n.shape))
    n.add("Add", image)


def where(n: Net):
    image = n.x
    n.add("Greater", n.constant(np.float32(0.3)))
    condition = n.x
    y = n.name()
    n.nodes.append(helper.make_node("Where", [condition, image, n.constant(np.float32(-0.5))], [y]))
    n.x = y


def reduction(name, *axes):
    """Over the axes, and multiplied back onto the image."""
    def add(n: Net):
        image = n.x
        n.add(name, n.ints(*axes), keepdims=1)
        n.add("Add", image)
    return add


def shared_products(n: Net):
    """One matrix that 18 products share, as unrolled recurrent layers have it."""
    c = n.shape[1]
    weights = n.floats(c, c, scale=c**-0.5)
    n.add("Transpose", perm=[0, 2, 1])
    for _ in range(18):
        n.add("MatMul", weights)
        n.add("Tanh")
    n.add("Transpose", perm=[0, 2, 1])


def cases() -> dict[str, tuple[list[int], object, tuple[str, ...]]]:
    """{name: (shape of the operator's input, what adds it, where it stands)}."""
    between, all_places, ends = ("between",), WHERE, ("between", "first", "last")
    found: dict[str, tuple] = {}

    def case(name, shape, add, places=between):
        found[name] = (shape, add, places)

    volume = [1, 32, 8, 28, 28]
    case("conv 3x3x3", volume, dense(3, 3, 3))
    case("conv 3x3x3 of 3 channels", [1, 3, 8, 112, 112], dense(3, 7, 7, outputs=32, strides=[1, 2, 2]), ("last",))
    case("conv 1x3x3", volume, dense(1, 3, 3))
    case("conv 3x1x1", volume, dense(3, 1, 1))
    case("conv 3x3x3 s2", volume, dense(3, 3, 3, strides=[2, 2, 2]))
    case("depthwise 3x3x3", volume, depthwise(3, 3, 3))
    case("depthwise 5x1x1", volume, depthwise(5, 1, 1))
    case("max pool 2x2x2", volume, pool("MaxPool", 2, 2, 2, strides=[2, 2, 2]), ends)
    case("max pool 3x3x3", volume, pool("MaxPool", 3, 3, 3, pads=[1] * 6))
    case("average pool 2x2x2", volume, pool("AveragePool", 2, 2, 2, strides=[2, 2, 2]), ends)
    case("global average pool of a volume", volume, op("GlobalAveragePool"))
    case("batch norm of a volume", volume, batch_norm, ends)

    for k in (9, 13, 31):
        case(f"depthwise {k}x{k}", [1, 64, 28, 28], depthwise(k, k))
    case("depthwise 3x3 d4", [1, 128, 28, 28], depthwise(3, 3, dilation=4))
    case("depthwise 5x5 d2", [1, 96, 28, 28], depthwise(5, 5, dilation=2))
    case("depthwise 2x2", [1, 96, 28, 28], depthwise(2, 2))
    case("depthwise 4x4 s2", [1, 96, 28, 28], depthwise(4, 4, stride=2))
    case("depthwise 1x11", [1, 96, 56, 56], depthwise(1, 11))
    case("depthwise 21x1", [1, 96, 56, 56], depthwise(21, 1))
    case("depthwise 3x3", [1, 96, 56, 56], depthwise(3, 3))
    case("depthwise 7x7", [1, 96, 28, 28], depthwise(7, 7))
    case("depthwise of 5 channels", [1, 5, 112, 112], depthwise(3, 3))
    case("depthwise k31 of a signal", [1, 256, 1000], depthwise(31))
    case("depthwise k5 d8 of a signal", [1, 256, 1000], depthwise(5, dilation=8))
    case("depthwise k9 s2 of a signal", [1, 128, 2000], depthwise(9, stride=2))

    for c in (2, 3, 4, 5, 8):
        case(f"groups of {c} channels", [1, 120 if c in (3, 5) else 128, 28, 28], grouped(c, 3, 3))
    case("groups of 4 channels s2", [1, 128, 56, 56], grouped(4, 3, 3, strides=[2, 2]))
    case("groups of 4 channels, 1x1", [1, 128, 28, 28], grouped(4, 1, 1))
    case("groups of 4 channels of a signal", [1, 128, 1000], grouped(4, 5))
    case("two outputs a group", [1, 64, 28, 28], dense(3, 3, outputs=128, group=64))

    for outputs in (1, 2, 3, 5, 10):
        case(f"conv 3x3 to {outputs}", [1, 64, 56, 56], dense(3, 3, outputs=outputs), ("between", "last"))
    case("conv 1x1 to 1", [1, 64, 112, 112], dense(1, 1, outputs=1), ("between", "last"))
    case("conv 9x9 to 3", [1, 32, 56, 56], dense(9, 9, outputs=3), ("last",))
    case("conv 5x5 to 1 of a large image", [1, 32, 128, 128], dense(5, 5, outputs=1), ("last",))
    case("conv k7 to 1 of a signal", [1, 64, 4000], dense(7, outputs=1), ("last",))

    image = [1, 32, 56, 56]
    case("resize nearest 2", image, resize("nearest", "asymmetric", 2, 2), all_places)
    case("resize linear 2", image, resize("linear", "half_pixel", 2, 2), all_places)
    case("resize linear 0.35", [1, 3, 480, 640], resize("linear", "half_pixel", 0.35, 0.35), ("first", "alone"))
    case("resize linear 8, 21 classes", [1, 21, 32, 32], resize("linear", "align_corners", 8, 8), ("last", "alone"))
    case("batch norm", image, batch_norm, all_places)
    case("instance norm", image, instance_norm, all_places)
    case("group norm of 4", image, group_norm(4), all_places)
    case("group norm of 32", [1, 64, 56, 56], group_norm(32))
    for mode in ("reflect", "edge", "wrap", "constant"):
        case(f"pad {mode}", image, pad(mode, 2, 2), all_places)
    case("pad reflect of a signal", [1, 64, 2000], pad("reflect", 7), ends)
    case("pad reflect of an image of 3", [1, 3, 224, 224], pad("reflect", 3, 3), ("first", "alone"))

    for name in ("Softplus", "Sigmoid", "Tanh", "Erf", "Exp", "HardSwish", "Mish", "Elu", "Gelu", "Softsign", "Selu",
                 "Abs", "Neg", "Floor", "Round", "Sin", "Cos"):
        case(name.lower(), image, op(name), ends if name in ("Softplus", "Sigmoid", "Gelu") else between)
    for name in ("Sqrt", "Log", "Reciprocal"):
        case(name.lower(), image, lambda n, name=name: (n.add("Add", n.constant(np.float32(1.5))), n.add("Abs"), n.add(name)))
    case("pow 0.45", image, lambda n: (n.add("Abs"), n.add("Pow", n.constant(np.float32(0.45)))), ends)
    case("pow of channels", image, lambda n: (n.add("Abs"), n.add("Pow", n.positive(n.shape[1], 1, 1))))
    case("prelu", image, lambda n: n.add("PRelu", n.floats(n.shape[1], 1, 1)), ends)
    case("where", image, where, ends)
    case("clip", image, lambda n: n.add("Clip", n.constant(np.float32(-0.5)), n.constant(np.float32(0.7))), ends)

    case("gather of channels", [1, 64, 28, 28], gather_channels, all_places)
    case("argmax over channels", [1, 16, 128, 128], arg("ArgMax", 1), ends)
    case("argmin over rows", image, arg("ArgMin", 2))
    case("softmax and argmax, 21 classes", [1, 21, 256, 256], softmax_arg_max, ("last",))
    case("softmax over channels", image, op("Softmax", axis=1), all_places)
    case("softmax over columns", image, op("Softmax", axis=3), ends)
    case("tile", image, tile, all_places)
    case("expand", image, expand, ends)
    case("slice with steps", image, lambda n: n.add("Slice", n.ints(0, 0), n.ints(56, 56), n.ints(2, 3), n.ints(2, 2)), ends)
    case("depth to space", [1, 64, 56, 56], lambda n: (n.add("DepthToSpace", blocksize=2), n.shape.__setitem__(1, 16)), ends)
    case("space to depth", [1, 12, 112, 112],
         lambda n: (n.add("SpaceToDepth", blocksize=2), n.shape.__setitem__(1, 48)), ends)
    case("transpose to rows", image, lambda n: (n.add("Transpose", perm=[0, 2, 3, 1]), n.add("Relu"),
                                                n.add("Transpose", perm=[0, 3, 1, 2])), ends)
    for name in ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
        case(f"{name} over the image", image, reduction(name, 2, 3))
        case(f"{name} over channels", image, reduction(name, 1))
    case("lrn", image, op("LRN", size=5), ends)
    case("transposed conv 2x2 s2", [1, 32, 28, 28],
         lambda n: n.add("ConvTranspose", n.floats(32, 32, 2, 2, scale=0.1), kernel_shape=[2, 2], strides=[2, 2]), ends)
    case("transposed conv 4x4 s2 depthwise", [1, 32, 28, 28],
         lambda n: n.add("ConvTranspose", n.floats(32, 1, 4, 4, scale=0.3), kernel_shape=[4, 4], strides=[2, 2], group=32))
    case("average pool 3x3", image, pool("AveragePool", 3, 3, pads=[1] * 4), ends)
    case("max pool 3x3 s2", image, pool("MaxPool", 3, 3, strides=[2, 2], pads=[1] * 4), ends)
    case("average pool of a signal", [1, 64, 2000], pool("AveragePool", 4, strides=[4]), ends)
    case("a matrix that 18 products share", [1, 256, 196], shared_products, ("alone",))
    return found


def build(shape, add, place: str) -> onnx.ModelProto:
    channels, extents = shape[1], shape[2:]
    net = Net([1, OUTSIDE, *extents] if place in ("between", "last") and channels != 3 else [1, channels, *extents])
    if place in ("between", "last") and channels != 3:
        net.conv(channels, 1)
        net.add("Relu")
    add(net)
    if place in ("between", "first"):
        net.conv(OUTSIDE, 1)
    return net.model()
