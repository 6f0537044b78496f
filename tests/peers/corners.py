#!/usr/bin/env python3
"""Times single operators against ONNX Runtime: each stands between two 1x1 convolutions, first, last or alone.

    corners.py build/pipit [--only WORD] [--precision fp32,int8] [--rounds 7] [--json result.json]

The models are generated, with seeded random weights. In INT8 both engines run the same file, which ONNX Runtime's
quantize_static made (QDQ, u8 activations, s8 weights per channel). Both engines use one thread and are timed in turns:
every round runs ONNX Runtime for --seconds in this process, and pipit in one of its own, each after a warm-up. The
time of a round is the fastest tenth of its runs, which other work on the machine disturbs least. Printed for each case:
the median over rounds, and the ratio pipit / ONNX Runtime round by round with its range (above 1: pipit is slower).

Before that, both compute the same input. In fp32 they must agree within 1e-4 of the output's norm, in INT8 within 5 %
(ONNX Runtime rounds between layers where pipit does not, or the reverse); a case that does not is an error, and the
exit code is 4. Models that pipit refuses are listed with the reason. --limit RATIO also exits with 4 where a median is
above it.

Needs: pip install numpy onnx onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:  # --help needs none of them
    MISSING = error
else:
    MISSING = None

import cpu

OUTSIDE = 16  # channels of the image in front of the first 1x1 convolution
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
    """Groups of so many channels."""
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
                 "Abs", "Neg", "Floor", "Round", "Sin", "Cos", "Reciprocal"):
        case(name.lower(), image, op(name), ends if name in ("Softplus", "Sigmoid", "Gelu") else between)
    for name in ("Sqrt", "Log"):
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


def quantized(model: onnx.ModelProto, folder: Path) -> Path:
    import logging

    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    logging.disable(logging.WARNING)  # advice about pre-processing, which these models do not need

    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i in range(2)]

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, source)
    quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return target


def fastest_tenth(samples: list[float]) -> float:
    ordered = sorted(samples)
    return ordered[len(ordered) // 10]


class Peer:
    def __init__(self, model: Path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(self, x):
        return self.session.run(None, {"x": x})[0]

    def time(self, x, seconds: float) -> float:
        end, samples = time.perf_counter() + 0.2 * seconds, []
        while time.perf_counter() < end:
            self.run(x)
        end = time.perf_counter() + seconds
        while len(samples) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            self.run(x)
            samples.append(1e3 * (time.perf_counter() - begin))
        return fastest_tenth(samples)


def time_pipit(pipit: Path, model: Path, seconds: float, options: list[str]) -> dict:
    command = [str(pipit), "bench", str(model), "--threads", "1", "--json", "--quiet", "--warmup", "2", "--seconds",
               str(seconds), *options]
    return json.loads(cpu.call(command, 1))["results"][0]


def check(pipit: Path, model: Path, x, expected, folder: Path) -> float:
    """The relative error of pipit's answer, through `pipit verify`; raises cpu.Skip with the reason of a refusal."""
    data = folder / "case" / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    link = folder / "case" / "model.onnx"
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve())
    output = onnx.load(str(model)).graph.output[0].name
    for file, name, value in (("input_0.pb", "x", x), ("output_0.pb", output, expected)):
        (data / file).write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    done = subprocess.run([str(pipit), "verify", str(folder / "case"), "--json", "--norm", "1e30", "--threads", "1"],
                          capture_output=True, text=True, check=False)
    try:
        test = json.loads(done.stdout)["tests"][0]
    except (json.JSONDecodeError, LookupError):
        raise cpu.Skip(f"exit code {done.returncode}: {done.stderr.strip()}") from None
    if "relative_error" not in test:
        raise cpu.Skip(str(test.get("reason") or test.get("message") or test))
    return test["relative_error"]


def measure(name: str, precision: str, model: onnx.ModelProto, a: argparse.Namespace) -> dict:
    row: dict = {"case": name, "precision": precision}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if precision == "int8":
            file = quantized(model, folder)
        else:
            file = folder / "model.onnx"
            onnx.save(model, file)
        if a.keep:
            a.keep.mkdir(parents=True, exist_ok=True)
            kept = a.keep / f"{name.replace(' ', '-').replace(',', '')}.{precision}.onnx"
            kept.write_bytes(file.read_bytes())
        options = ["--precision", "fp16"] if precision == "fp16" else []
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        try:
            peer = Peer(file)
            expected = peer.run(x)
        except Exception as reason:  # noqa: BLE001: whatever ONNX Runtime throws
            return row | {"skipped": f"ONNX Runtime: {reason}"}
        try:
            row["relative_error"] = check(a.pipit, file, x, expected.astype(expected.dtype), folder)
            if not row["relative_error"] <= (0.05 if precision == "int8" else 1e-4):
                return row | {"wrong": True}
            rounds = []
            for _ in range(a.rounds):
                theirs = peer.time(x, a.seconds)
                ours = time_pipit(a.pipit, file, a.seconds, options)
                rounds.append((fastest_tenth(ours["samples_ms"]), theirs))
        except cpu.Skip as reason:
            return row | {"refused": str(reason)}
    ratios = [ours / theirs for ours, theirs in rounds]
    return row | {"pipit_ms": statistics.median(ours for ours, _ in rounds),
                  "onnxruntime_ms": statistics.median(theirs for _, theirs in rounds),
                  "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]}


def report(row: dict) -> str:
    head = f"| {row['case']} | {row['precision']} |"
    if "ratio" in row:
        low, high = row["ratio_range"]
        return (f"{head} {row['pipit_ms']:.3f} | {row['onnxruntime_ms']:.3f} "
                f"| {row['ratio']:.2f} [{low:.2f}, {high:.2f}] |")
    for kind in ("skipped", "refused"):
        if kind in row:
            return f"{head} {kind}: {' '.join(row[kind].split())[:150]} | | |"
    return f"{head} WRONG: relative error {row['relative_error']:.3g} | | |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="cases whose names contain a WORD")
    parser.add_argument("--precision", default="fp32,int8", help="some of fp32, fp16, int8; fp16 is pipit's, against "
                                                                 "ONNX Runtime's fp32 [fp32,int8]")
    parser.add_argument("--places", default=",".join(WHERE), help=f"some of {', '.join(WHERE)} [all]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each engine in a round [0.1]")
    parser.add_argument("--limit", type=float, help="exit with 4 where a ratio is above this")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="also write the models here")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    if MISSING:
        parser.exit(1, f"{parser.prog}: {MISSING}; pip install numpy onnx onnxruntime\n")
    precisions, places = a.precision.split(","), a.places.split(",")
    if unknown := (set(precisions) - {"fp32", "fp16", "int8"}) | (set(places) - set(WHERE)):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    rows = []
    if not a.list:
        print("| case | precision | pipit ms | ONNX Runtime ms | pipit / ONNX Runtime [range] |\n|---|---|---|---|---|", flush=True)
    for case, (shape, add, where_it_stands) in cases().items():
        for place in where_it_stands:
            name = f"{case}, {place}"
            if place not in places or (a.only and not any(word in name for word in a.only)):
                continue
            if a.list:
                print(name)
                continue
            model = build(shape, add, place)
            for precision in precisions:
                rows.append(measure(name, precision, model, a))
                print(report(rows[-1]), flush=True)
    timed = [row for row in rows if "ratio" in row]
    if timed:
        slow = sorted((row for row in timed if row["ratio"] > (a.limit or 1.2)), key=lambda row: -row["ratio"])
        print(f"\n{len(timed)} cases timed, geometric mean {statistics.geometric_mean(r['ratio'] for r in timed):.2f}; "
              f"{len(slow)} above {a.limit or 1.2}:", *(f"\n  {row['ratio']:.2f}  {row['case']} ({row['precision']})" for row in slow))
    if a.json:
        document = {"cpu": cpu.cpu_name(), "cpus": os.cpu_count(), "rounds": a.rounds, "seconds": a.seconds,
                    "onnxruntime": version("onnxruntime"), "results": rows}
        temporary = a.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(a.json)
    if any("wrong" in row for row in rows):
        return 4
    return 4 if a.limit and any(row["ratio"] > a.limit for row in timed) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cpu.Skip as reason:
        sys.exit(f"a run failed: {reason}")
