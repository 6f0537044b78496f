"""What the readers of quantized files document that they take and fuse, as checks of a file.

check(path, target) returns a list of "RULE: node: what is wrong", empty for a file that keeps all of them. RULES gives
each rule with its source. Reads the file with the few messages of protobuf that it needs, so that no package is needed.
"""

import struct

from onnx_model import fields

FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# They commute with quantization: the largest of integers is the integer of the largest.
COMMUTING = ("MaxPool", "Concat", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split")

_EXPLICIT = "TensorRT 11 documentation, Inference library, Explicit quantization"
_PARSER = "onnx-tensorrt 10.1-GA"
_SELECTORS = "ONNX Runtime 1.2x (commit 32d19a81), qdq_selectors.cc"
RULES = {
    "trt-opset": ("an opset from 9 to 20", f"{_PARSER}, docs/operators.md: the inclusive range of opsets"),
    "trt-int8": ("integers are i8: QuantizeLinear and DequantizeLinear of u8 and i32 are refused",
                 f"{_PARSER}, onnxOpImporters.cpp, QuantDequantLinearHelper (notInvalidType UINT8); i32: "
                 "\"only activation types allowed as input to this layer\", onnxruntime issue 14229"),
    "trt-zero-points": ("zero points are 0", f"{_PARSER}, onnxOpImporters.cpp: TensorRT only supports symmetric "
                                             "quantization; docs/operators.md"),
    "trt-as-many-zero-points": ("a scale has as many zero points", f"{_PARSER}, onnxOpImporters.cpp: the scale and zero "
                                                                   "point must have the same volume"),
    "trt-positive-scales": ("scales are positive", f"{_PARSER}, onnxOpImporters.cpp: Scale coefficients must all be "
                                                   "positive"),
    "trt-inputs": ("both factors of a layer with weights are quantized or none is",
                   f"{_EXPLICIT}, Q/DQ layer-placement recommendations: quantize all inputs of weighted operations"),
    "trt-outputs": ("no layer with weights is rounded before its activation or addition",
                    f"{_EXPLICIT}, Q/DQ layer-placement recommendations: by default, do not quantize the outputs of "
                    "weighted operations; do not simulate ReLU fusions"),
    "trt-residual": ("the other operand of an addition after a layer in INT8 is dequantized",
                     f"{_EXPLICIT}, Q/DQ layer-placement recommendations: quantize the residual input in skip "
                     "connections; TensorRT 11.1 OSS, tools/pytorch-quantization, quant_resnet50.rst"),
    "trt-per-channel": ("weights have a scale per output channel, activations one per tensor",
                        f"{_EXPLICIT}, Q/DQ layer-placement recommendations: per-tensor quantization for activations "
                        "and per-channel quantization for weights; the axis: " + _PARSER + ", onnxOpImporters.cpp, K == "
                        "scaleSize"),
    "trt-int8-outputs": ("a layer without weights that reads INT8 writes INT8",
                         f"{_EXPLICIT}, Q/DQ layer-placement recommendations: non-weighted layers with INT8 inputs also "
                         "require INT8 outputs"),
    "commuting-scale": ("what commutes with quantization reads and writes one scale",
                        f"{_EXPLICIT}: propagation over commuting layers; {_SELECTORS}, DropQDQNodeGroupSelector: "
                        "IsQDQPairSupported, equal scales and zero points on both sides"),
    "ort-weights": ("weights are i8 with zero point 0",
                    "ONNX Runtime documentation, Quantize ONNX models, Data type selection: S8S8 and U8S8"),
    "ort-bias": ("biases of layers in INT8 are i32 with the scale of the products",
                 f"{_SELECTORS}, ConvNodeGroupSelector, GemmNodeGroupSelector: dt_bias is INT32"),
    "ort-around": ("a Conv, Add, Mul, average, Sigmoid or LeakyRelu with dequantized inputs is followed by QuantizeLinear",
                   f"{_SELECTORS}, NodeGroupSelector::CheckQDQNodes: all readers of the node are QuantizeLinear and it "
                   "writes no output of the graph"),
    "openvino-bias": ("biases are f32", "OpenVINO 2024 documentation, Low precision transformations, Convolution: "
                                        "dequantization moves past the layer, biases are added in real values"),
    "openvino-per-tensor": ("activations have one scale per tensor",
                            "OpenVINO 2024 documentation, ConvolutionTransformation: dequantization on activations must "
                            "be per-tensor"),
    "openvino-moves": ("what commutes with quantization is not rounded again",
                       "OpenVINO 2024 documentation, Low precision transformations: dequantization is propagated through "
                       "the operations of the model"),
    "openvino-outputs": ("no layer with weights is rounded before its activation or addition",
                         "OpenVINO 2024 documentation, Quantized models compute and restrictions: dequantization is "
                         "propagated through the layer and fused with the next quantization"),
}


class Tensor:
    def __init__(self, message):
        self.shape, self.values = [], ()
        for key, value in fields(message):
            if key == 1:
                # Extents may be packed.
                self.shape += [value] if isinstance(value, int) else _packed(value)
            elif key == 2:
                self.type = value
            elif key == 8:
                self.name = value.decode()
            elif key == 9:
                code = {FLOAT: "f", UINT8: "B", INT8: "b", INT32: "i", 7: "q"}.get(self.type)
                if code:
                    self.values = struct.unpack(f"<{len(value) // struct.calcsize(code)}{code}", value)


def _packed(data):
    values, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(number)
            number = shift = 0
    return values


class Node:
    def __init__(self, message):
        self.inputs, self.outputs, self.attributes, self.name = [], [], {}, ""
        for key, value in fields(message):
            if key == 1:
                self.inputs.append(value.decode())
            elif key == 2:
                self.outputs.append(value.decode())
            elif key == 3:
                self.name = value.decode()
            elif key == 4:
                self.op = value.decode()
            elif key == 5:
                held = dict(fields(value))
                self.attributes[held[1].decode()] = held.get(3, held.get(2))


class File:
    """A model, its graph as the checks look at it."""

    def __init__(self, path):
        model = path.read_bytes()
        self.opset = 0
        for key, value in fields(model):
            if key == 7:
                graph = value
            elif key == 8:
                held = dict(fields(value))
                if not held.get(1):
                    self.opset = held[2]
        self.nodes = [Node(value) for key, value in fields(graph) if key == 1]
        self.constants = {t.name: t for t in (Tensor(value) for key, value in fields(graph) if key == 5)}
        self.outputs = [dict(fields(value))[1].decode() for key, value in fields(graph) if key == 12]
        self.writer = {name: node for node in self.nodes for name in node.outputs}
        self.readers = {}
        for node in self.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)

    def of_op(self, *ops):
        return [node for node in self.nodes if node.op in ops]

    def dequantized(self, name):
        """The DequantizeLinear that writes the value, or None."""
        node = self.writer.get(name)
        return node if node is not None and node.op == "DequantizeLinear" else None

    def constant_behind(self, name):
        """The initializer that a value is, dequantized or not."""
        node = self.dequantized(name)
        return self.constants.get(node.inputs[0] if node else name)

    def in_int8(self, node):
        """Whether a layer with weights has integers for both factors."""
        return node.op in WEIGHTED and all(self.dequantized(name) for name in node.inputs[:2])

    def quantizers(self, name):
        """The QuantizeLinear nodes that read a value, or None where something else reads it too, or it is an output."""
        readers = self.readers.get(name, [])
        if name in self.outputs or not readers or any(node.op != "QuantizeLinear" for node in readers):
            return None
        return readers

    def scale(self, node):
        """Scales and zero points of a QuantizeLinear or DequantizeLinear."""
        zero = self.constants[node.inputs[2]].values if len(node.inputs) > 2 else (0,)
        return self.constants[node.inputs[1]].values, zero


def _check_trt(file):
    if not 9 <= file.opset <= 20:
        yield "trt-opset", None, f"opset {file.opset}"
    for node in file.of_op("QuantizeLinear", "DequantizeLinear"):
        read = file.constants.get(node.inputs[0])
        zeros = file.constants[node.inputs[2]] if len(node.inputs) > 2 else None
        if (zeros is not None and zeros.type != INT8) or (node.op == "DequantizeLinear" and read is not None
                                                        and read.type != INT8):
            yield "trt-int8", node, "integers that are not i8"
        scale, zero = file.scale(node)
        if any(zero):
            yield "trt-zero-points", node, f"zero points {sorted(set(zero))[:4]}"
        if len(zero) != len(scale):
            yield "trt-as-many-zero-points", node, f"{len(scale)} scales, {len(zero)} zero points"
        if min(scale) <= 0:
            yield "trt-positive-scales", node, f"a scale of {min(scale)}"
        if len(scale) > 1:
            axis = node.attributes.get("axis", 1)
            weights = file.constants.get(node.inputs[0])
            users = [user for name in node.outputs for user in file.readers.get(name, [])]
            if weights is None:
                yield "trt-per-channel", node, f"{len(scale)} scales of an activation"
                continue
            for user in users:
                outputs = _output_axis(user)
                if axis != outputs or len(scale) != weights.shape[axis]:
                    yield "trt-per-channel", node, (f"{len(scale)} scales along axis {axis} of {weights.shape}; outputs of "
                                                    f"{user.op} are along axis {outputs}")
    for node in file.of_op(*WEIGHTED):
        quantized = [file.dequantized(name) is not None for name in node.inputs[:2]]
        if any(quantized) and not all(quantized):
            yield "trt-inputs", node, "one factor is quantized, the other is not"
        if all(quantized):
            scale, _ = file.scale(file.dequantized(node.inputs[1]))
            weights = file.constant_behind(node.inputs[1])
            if weights is not None and len(scale) != weights.shape[_output_axis(node)]:
                yield "trt-per-channel", node, f"{len(scale)} scales for {weights.shape[_output_axis(node)]} outputs"
    yield from _check_outputs(file, "trt-outputs")
    for node in file.of_op("Add"):
        writers = [file.writer.get(name) for name in node.inputs]
        layers = [writer for writer in writers if writer is not None and file.in_int8(writer)]
        others = [name for name, writer in zip(node.inputs, writers) if writer not in layers]
        if layers and (len(layers) > 1 or not all(file.dequantized(name) for name in others)):
            yield "trt-residual", node, "an operand beside the layer is not dequantized"
    for node in file.of_op("MaxPool", "Concat", "Add", "Mul"):
        if all(file.dequantized(name) for name in node.inputs) and _float_reader(file, node):
            yield "trt-int8-outputs", node, "reads INT8 and is not rounded"


def _output_axis(node):
    if node.op == "ConvTranspose":
        return 1
    if node.op == "Gemm":
        return 0 if node.attributes.get("transB", 0) else 1
    return 1 if node.op == "MatMul" else 0


def _after_activation(file, name):
    """The value after a Relu or Clip that alone reads this one, or itself."""
    readers = file.readers.get(name, [])
    if len(readers) == 1 and readers[0].op in ("Relu", "Clip", "LeakyRelu"):
        return readers[0].outputs[0]
    return name


def _float_reader(file, node):
    return file.quantizers(_after_activation(file, node.outputs[0])) is None and node.outputs[0] not in file.outputs


def _check_outputs(file, rule):
    """What the first rounding after a layer with weights is read by."""
    for node in file.of_op(*WEIGHTED):
        if not file.in_int8(node):
            continue
        for quantize in file.quantizers(node.outputs[0]) or []:
            integers = quantize.outputs[0]
            dequantized = file.readers.get(integers, [])
            users = [user for one in dequantized for user in file.readers.get(one.outputs[0], [])]
            functions = ("Relu", "Clip", "LeakyRelu") if rule == "openvino-outputs" else (
                "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh", "Elu")
            if len(users) == 1 and users[0].op in functions:
                yield rule, node, f"is rounded before {users[0].op}"
            elif len(dequantized) == 1 and users and all(user.op == "Add" for user in users) and any(
                    file.dequantized(name) is dequantized[0] for name in users[0].inputs[:1]) and _is_own(quantize):
                yield rule, node, "is rounded before the addition of its residual"


def _is_own(quantize):
    """Whether a rounding is one that stands between the nodes of one layer, and not the layer's result."""
    return quantize.name.endswith("/conv/quantize")


def _check_commuting(file):
    for node in file.of_op(*COMMUTING):
        read = [file.dequantized(name) for name in node.inputs if name not in file.constants]
        if not read or not all(read):
            continue
        scales = {file.scale(one) for one in read}
        for name in node.outputs:
            for quantize in file.quantizers(name) or []:
                scales.add(file.scale(quantize))
        if len(scales) > 1:
            yield "commuting-scale", node, f"scales {sorted(scale for scale, _ in scales)[:4]}"


def _check_ort(file):
    for node in file.of_op(*WEIGHTED):
        if not file.in_int8(node) or len(node.inputs) < 3:
            continue
        bias = file.dequantized(node.inputs[2])
        if bias is None or file.constants[bias.inputs[0]].type != INT32:
            yield "ort-bias", node, "a bias that is not i32"
            continue
        of_x = file.scale(file.dequantized(node.inputs[0]))[0][0]
        of_weights = file.scale(file.dequantized(node.inputs[1]))[0]
        for w, b in zip(of_weights, file.scale(bias)[0]):
            if abs(of_x * w - b) > 1e-6 * b:
                yield "ort-bias", node, f"a bias in units of {b}, not {of_x * w}"
                break
    for node in file.of_op("Conv", "Add", "Mul", "AveragePool", "GlobalAveragePool", "Sigmoid", "LeakyRelu"):
        data = [name for name in node.inputs[:2] if name not in file.constants]
        if node.outputs[0] in file.outputs or not all(file.dequantized(name) for name in data):
            continue
        if file.quantizers(node.outputs[0]) is None:
            readers = {reader.op for reader in file.readers.get(node.outputs[0], [])}
            yield "ort-around", node, f"is read by {', '.join(sorted(readers))} without rounding"


def _check_weights(file):
    for node in file.of_op(*WEIGHTED):
        if not file.in_int8(node):
            continue
        dequantize = file.dequantized(node.inputs[1])
        weights = file.constants.get(dequantize.inputs[0])
        if weights is not None and (weights.type != INT8 or any(file.scale(dequantize)[1])):
            yield "ort-weights", node, "weights that are not i8 with zero point 0"


def _check_openvino(file):
    for node in file.of_op(*WEIGHTED):
        if file.in_int8(node) and len(node.inputs) > 2 and file.dequantized(node.inputs[2]) is not None:
            yield "openvino-bias", node, "a bias that is dequantized"
    for node in file.of_op("QuantizeLinear"):
        if len(file.scale(node)[0]) > 1:
            yield "openvino-per-tensor", node, "several scales"
    for node in file.of_op("MaxPool", "Concat"):
        if all(file.dequantized(name) for name in node.inputs) and file.quantizers(node.outputs[0]):
            yield "openvino-moves", node, "is rounded"
    yield from _check_outputs(file, "openvino-outputs")


_CHECKS = {"tensorrt": (_check_trt, _check_commuting), "onnxruntime": (_check_ort, _check_weights, _check_commuting),
           "openvino": (_check_openvino, _check_weights, _check_commuting)}


def check(path, target):
    """What is wrong with the file for this reader, each as (rule, text)."""
    file = File(path)
    return [(rule, f"{rule}: {node.name if node else path.name}: {what}; expected: {RULES[rule][0]}")
            for one in _CHECKS[target] for rule, node, what in one(file)]
