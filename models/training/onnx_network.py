"""An ONNX file as a PyTorch network that can be trained and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

# Which inputs of an operator are trained: weights and what is added per channel.
TRAINED = {"Conv": (1, 2), "Gemm": (1, 2), "MatMul": (1,), "BatchNormalization": (1, 2)}

Operator = Callable[[dict, list], Tensor]


def spatial(attributes: dict, x: Tensor) -> tuple[Tensor, list[int]]:
    """x and the padding that a torch operator takes; uneven padding is put around x first."""
    pads = attributes.get("pads", [0] * (2 * (x.ndim - 2)))
    begin, end = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if begin == end:
        return x, begin
    return F.pad(x, [p for pair in reversed(list(zip(begin, end))) for p in pair]), [0] * len(begin)


def conv(attributes: dict, inputs: list) -> Tensor:
    x, padding = spatial(attributes, inputs[0])
    function = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    bias = inputs[2] if len(inputs) > 2 else None
    return function(x, inputs[1], bias, attributes.get("strides", 1), padding,
                    attributes.get("dilations", 1), attributes.get("group", 1))  # fmt: skip


def gemm(attributes: dict, inputs: list) -> Tensor:
    a = inputs[0].T if attributes.get("transA") else inputs[0]
    b = inputs[1].T if attributes.get("transB") else inputs[1]
    y = attributes.get("alpha", 1.0) * (a @ b)
    return y + attributes.get("beta", 1.0) * inputs[2] if len(inputs) > 2 else y


def batch_norm(attributes: dict, inputs: list) -> Tensor:
    x, scale, shift, mean, variance = inputs
    return F.batch_norm(x, mean, variance, scale, shift, eps=attributes.get("epsilon", 1e-5))


def max_pool(attributes: dict, inputs: list) -> Tensor:
    pads = attributes.get("pads", [0] * 4)
    if pads[:2] != pads[2:]:
        raise SystemExit("MaxPool with uneven padding is not known here")
    return F.max_pool2d(inputs[0], attributes["kernel_shape"], attributes.get("strides", 1), pads[:2],
                        attributes.get("dilations", 1), bool(attributes.get("ceil_mode")))  # fmt: skip


def average_pool(attributes: dict, inputs: list) -> Tensor:
    pads = attributes.get("pads", [0] * 4)
    if pads[:2] != pads[2:]:
        raise SystemExit("AveragePool with uneven padding is not known here")
    return F.avg_pool2d(inputs[0], attributes["kernel_shape"], attributes.get("strides", 1), pads[:2],
                        bool(attributes.get("ceil_mode")), bool(attributes.get("count_include_pad")))  # fmt: skip


def clip(_: dict, inputs: list) -> Tensor:
    low, high = (inputs[i] if len(inputs) > i else None for i in (1, 2))
    return torch.clamp(inputs[0], low, high)


def reshape(_: dict, inputs: list) -> Tensor:
    x, shape = inputs[0], inputs[1].tolist()
    return x.reshape([x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape)])


OPERATORS: dict[str, Operator] = {
    "Add": lambda a, i: i[0] + i[1],
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "Clip": clip,
    "Concat": lambda a, i: torch.cat(i, a["axis"]),
    "Conv": conv,
    "Div": lambda a, i: i[0] / i[1],
    "Flatten": lambda a, i: i[0].flatten(a.get("axis", 1)),
    "Gemm": gemm,
    "GlobalAveragePool": lambda a, i: i[0].mean((2, 3), keepdim=True),
    "HardSigmoid": lambda a, i: (a.get("alpha", 0.2) * i[0] + a.get("beta", 0.5)).clamp(0, 1),
    "Identity": lambda a, i: i[0],
    "LeakyRelu": lambda a, i: F.leaky_relu(i[0], a.get("alpha", 0.01)),
    "MatMul": lambda a, i: i[0] @ i[1],
    "MaxPool": max_pool,
    "Mul": lambda a, i: i[0] * i[1],
    "ReduceMean": lambda a, i: i[0].mean(a["axes"], keepdim=bool(a.get("keepdims", 1))),
    "Relu": lambda a, i: F.relu(i[0]),
    "Reshape": reshape,
    "Sigmoid": lambda a, i: torch.sigmoid(i[0]),
    "Sub": lambda a, i: i[0] - i[1],
}


class OnnxNetwork(nn.Module):
    """The graph of a file with one input and one output.

    Weights and biases are parameters, everything else is constant; batch
    normalization keeps its running statistics.  Zeros in weights are a mask:
    hold() puts them back.
    """

    KNOWN = frozenset(OPERATORS)
    MIXED_PRECISION = True  # whether training on a GPU may compute in bfloat16

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.model = onnx.load(path)
        graph = self.model.graph
        unknown = sorted({node.op_type for node in graph.node} - self.KNOWN)
        if unknown:
            known = ", ".join(sorted(self.KNOWN))
            raise SystemExit(f"{path}: no training with {', '.join(unknown)}; known are {known}")
        self.steps = [
            (node.op_type, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
             list(node.input), node.output[0])
            for node in graph.node
        ]  # fmt: skip
        if any(attributes.get("block_size", 0) for _, attributes, _, _ in self.steps):
            raise SystemExit(f"{path}: weights in blocks (w8, w4) are not trained; use a file of quantize in INT8")
        stored = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
        self.input = next(value.name for value in graph.input if value.name not in stored)
        self.output = graph.output[0].name
        tensors = self._real_constants(stored)
        trained = self._trained(tensors)
        self.names = {name: f"tensor{index}" for index, name in enumerate(tensors)}
        for name, tensor in tensors.items():
            if name in trained and tensor.is_floating_point():
                self.register_parameter(self.names[name], nn.Parameter(tensor))
            elif tensor.is_floating_point():
                self.register_buffer(self.names[name], tensor)
            else:  # a shape, which the host reads
                setattr(self, self.names[name], tensor)
        self.masks = {}  # names of tensors, and of the buffers with their masks
        for name, kept in self._find_masks().items():
            self.masks[name] = f"mask_of_{self.names[name]}"
            self.register_buffer(self.masks[name], kept)

    def _real_constants(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """The initializers with real numbers for everything that is trained."""
        return stored

    def _initializer_of(self, name: str) -> str:
        """The name of the initializer whose values an operand has; any other name otherwise."""
        return name

    def _trained(self, tensors: dict[str, Tensor]) -> set[str]:
        operands = [name for op, _, inputs, _ in self.steps for i in TRAINED.get(op, ()) for name in inputs[i : i + 1]]
        return {self._initializer_of(name) for name in operands} & tensors.keys()

    def tensor(self, name: str) -> Tensor:
        return getattr(self, self.names[name])

    def _find_masks(self) -> dict[str, Tensor]:
        """Weights that are not zero; and biases of outputs that have weights."""
        masks = {}
        for op, attributes, inputs, _ in self.steps:
            constants = [self._initializer_of(name) for name in inputs]
            if op not in ("Conv", "Gemm", "MatMul") or constants[1] not in self.names:
                continue
            kept = self.tensor(constants[1]).detach() != 0
            if kept.all():
                continue
            masks[constants[1]] = kept
            rows = kept if op == "Conv" or attributes.get("transB") else kept.T
            if len(constants) > 2:
                masks[constants[2]] = rows.flatten(1).any(1) | (self.tensor(constants[2]).detach() != 0)
        return masks

    @torch.no_grad()
    def hold(self) -> None:
        """Restore masked zeros and the bounds of scales; to be called after every step of an optimizer."""
        for name, mask in self.masks.items():
            self.tensor(name).mul_(getattr(self, mask))

    def values(self, x: Tensor, wanted: Iterable[str]) -> dict[str, Tensor]:
        """The output, and the values of these names."""
        wanted = {*wanted, self.output}
        last_use = {name: step for step, (_, _, inputs, _) in enumerate(self.steps) for name in inputs}
        known, found = {self.input: x}, {}
        for step, (op, attributes, inputs, output) in enumerate(self.steps):
            operands = [known.get(n, None) if n not in self.names else self.tensor(n) for n in inputs]
            known[output] = self._compute(op, attributes, inputs, operands)
            if output in wanted:
                found[output] = self._real(known[output])
            for name in inputs:
                if last_use[name] == step:
                    known.pop(name, None)
        return found

    def _compute(self, op: str, attributes: dict, inputs: list[str], operands: list) -> Any:
        """The value of a step, from the values of its inputs and their names."""
        return OPERATORS[op](attributes, operands)

    def _real(self, value: Any) -> Tensor:
        return value

    def forward(self, x: Tensor) -> Tensor:
        return self.values(x, ())[self.output]

    def arrays(self) -> dict[str, np.ndarray]:
        """What the file is to hold for every tensor that training changes."""
        parameters = ((name, self.tensor(name)) for name in self.names)
        return {name: p.detach().cpu().numpy() for name, p in parameters if isinstance(p, nn.Parameter)}

    def save(self, path: Path) -> None:
        """The same file with the weights as they are now."""
        arrays = self.arrays()
        for proto in self.model.graph.initializer:
            if proto.name in arrays:
                proto.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(arrays[proto.name]), proto.name))
        onnx.checker.check_model(self.model, full_check=True)
        onnx.save(self.model, path)
