"""A file of QuantizeLinear and DequantizeLinear nodes as a PyTorch network with the arithmetic of pipit's INT8 layers.

Weights and biases are trained as real numbers and rounded in every forward
pass; gradients pass through the rounding as if it were not there (the
straight-through estimator, Bengio et al. 2013), and are zero where values are
clipped.  Layers multiply and add the integers themselves, as f32 numbers: sums
up to 2^24 are exact.  They become the integers of the next layer as
layers/ops/quantization.h says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnx_network import OPERATORS, OnnxNetwork

# What a bias may be in units of the sums (quant/int8_weights.cpp): int32 has room for the products, too.
LARGEST_BIAS = 2.0**29
# A trained scale stays within this factor of the calibrated one. At the bounds 2 of 8 bits are lost already, and
# products of two scales, by which biases are divided, are still far from zero.
LARGEST_CHANGE = 4.0
# They compute on integers what they compute on the values that these stand for.
MOVING = ("Flatten", "Identity", "MaxPool", "Reshape")
AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")


class Round(torch.autograd.Function):
    """To the nearest integer in [low, high], ties to even. Its gradient is that of the identity, and zero where a value
    is clipped: beyond the last integer by more than half a step."""

    @staticmethod
    def forward(context: Any, x: Tensor, low: float, high: float) -> Tensor:
        context.save_for_backward(x)
        context.bounds = low - 0.5, high + 0.5
        return x.clamp(low, high).round_()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (x,) = context.saved_tensors
        return torch.ops.aten.hardtanh_backward(gradient, x, *context.bounds), None, None


@dataclass(frozen=True)
class Scaled:
    """A real value as numbers times a scale, or as the sum of two such products; then clipped."""

    terms: tuple[tuple[Tensor, Tensor], ...]
    step: str = ""  # the name of the scale, if the numbers are integers of 8 bits
    positive: bool = False  # clipped to 0 and more
    low: Tensor | None = None  # clipped to [low, high]
    high: Tensor | None = None

    @property
    def is_clipped(self) -> bool:
        return self.positive or self.low is not None or self.high is not None

    @property
    def is_product(self) -> bool:
        return len(self.terms) == 1 and not self.is_clipped

    @property
    def is_integers(self) -> bool:
        """Whether it is nothing but integers of 8 bits times their scale."""
        return self.is_product and self.step != ""

    def real(self) -> Tensor:
        total = self._clipped(self._sum(lambda scale: scale), self.low, self.high)
        return total.relu() if self.positive else total

    def rounded(self, step: Tensor, name: str, least: int, most: int) -> Tensor:
        """The nearest integers in steps of a scale of this name. As in the kernels, scales and bounds are divided, not
        products."""
        total = self.terms[0][0] if self.step == name else self._sum(lambda scale: scale / step)
        low, high = (None if bound is None else bound / step for bound in (self.low, self.high))
        return Round.apply(self._clipped(total, low, high), max(least, 0) if self.positive else least, most)

    def _sum(self, factor: Callable[[Tensor], Tensor]) -> Tensor:
        products = [numbers * factor(scale) for numbers, scale in self.terms]
        return products[0] if len(products) == 1 else products[0] + products[1]

    @staticmethod
    def _clipped(total: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
        return total if low is None and high is None else torch.clamp(total, low, high)


@dataclass(frozen=True)
class Stored:
    """How an initializer of integers stands for real numbers."""

    dtype: np.dtype
    zero_point: int
    low: int  # of the integers less the zero point
    high: int
    scale: str  # the name of its scales
    axis: int  # that they lie along, if they are several

    @property
    def is_bias(self) -> bool:
        return self.dtype == np.int32


def along(scale: Tensor, axis: int, rank: int) -> Tensor:
    """Scales in a shape that broadcasts over a tensor of this rank."""
    return scale if scale.numel() == 1 else scale.view([-1 if d == axis % rank else 1 for d in range(rank)])


def sums_integers(op: str, attributes: dict, operands: list) -> bool:
    """Whether the layer is one of INT8: both factors are integers, with a scale for x and scales for the outputs."""
    x, weights = operands[:2]
    if not all(isinstance(factor, Scaled) and factor.is_integers for factor in (x, weights)):
        return False
    if op == "Gemm" and (attributes.get("transA") or {attributes.get(key, 1.0) for key in ("alpha", "beta")} != {1.0}):
        return False
    output_axis = 0 if op == "Conv" or attributes.get("transB") else 1
    scale = weights.terms[0][1]
    return x.terms[0][1].numel() == 1 and (scale.numel() == 1 or scale.shape[output_axis] == scale.numel())


class QuantizedNetwork(OnnxNetwork):
    """The graph of a quantized file.

    Its parameters begin as the values of the file's integers, so that the
    network computes what the file computes until they are trained.  With
    `learn_scales` the scales are trained as well, by the gradient of learned
    step sizes (Esser et al. 2020); else they stay.

    For each scale the parameter is the logarithm of its change, as for trained
    quantization thresholds (Jain et al. 2020).  Scales stay positive, and a step
    changes each by a fraction of itself that clipping the gradient limits.
    Scales of channels differ by factors of up to a million: a step that suits
    one would take another below zero.
    """

    KNOWN = frozenset({*OPERATORS, "QuantizeLinear", "DequantizeLinear"})
    MIXED_PRECISION = False  # bfloat16 does not hold the sums of integers

    def __init__(self, path: Path, learn_scales: bool = False) -> None:
        self.changes: dict[str, str] = {}  # names of trained scales, and of their parameters
        super().__init__(path)
        if not self.stored:
            raise SystemExit(f"{path}: it holds no weights in 8 bits; pipit quantize writes files that do")
        if learn_scales:
            self._train_scales()
        self.units: dict[str, Tensor] | None = None  # of biases, while they are collected

    # --- the file ---

    def _real_constants(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        self.narrow = any((p.key, p.value) == ("pipit.quantized_range", "narrow") for p in self.model.metadata_props)
        self.ranges: dict[tuple[str, ...], tuple[int, int]] = {}  # of activations, by their scale and zero point
        self.stored: dict[str, Stored] = {}
        self.initializer_of_value: dict[str, str] = {}  # initializers, by the values that are made of them
        for op, attributes, inputs, output in self.steps:
            if op not in ("QuantizeLinear", "DequantizeLinear"):
                continue
            source = self.initializer_of_value.get(inputs[0], inputs[0])
            if source in stored:
                self.initializer_of_value[output] = source
            zero_point = stored[inputs[2]] if len(inputs) > 2 else torch.zeros((), dtype=torch.uint8)
            if op == "QuantizeLinear":
                self.ranges[tuple(inputs[1:])] = self._range(inputs[0], zero_point)
            elif inputs[0] in stored:
                self._keep_form(inputs, attributes.get("axis", 1), stored)
        real = dict(stored)
        for name, form in self.stored.items():
            integers = stored[name].float() - form.zero_point
            real[name] = integers * along(stored[form.scale], form.axis, integers.ndim)
        return real

    def _range(self, name: str, zero_point: Tensor) -> tuple[int, int]:
        """The least and the largest integer less the zero point, which is one for all."""
        if zero_point.dtype not in (torch.int8, torch.uint8) or len(zero_point.unique()) != 1:
            raise SystemExit(f"{name}: quantized with zero points other than one of i8 or u8")
        zero, least = int(zero_point.flatten()[0]), torch.iinfo(zero_point.dtype).min
        low = least - zero
        return (-127 if self.narrow and low == -128 else low), low + 255

    def _keep_form(self, inputs: list[str], axis: int, stored: dict[str, Tensor]) -> None:
        name, scale = inputs[:2]
        integers = stored[name]
        zero_point = stored[inputs[2]] if len(inputs) > 2 else torch.zeros((), dtype=integers.dtype)
        if integers.dtype == torch.int32:
            low, high = int(-LARGEST_BIAS), int(LARGEST_BIAS)
        else:
            low, high = self._range(name, zero_point)
            # Symmetric weights leave the lowest integer out, unless the file has it.
            if low == -128 and int(integers.min()) - int(zero_point.flatten()[0]) > -128:
                low = -127
        form = Stored(integers.numpy().dtype, int(zero_point.flatten()[0]), low, high, scale, axis)
        if self.stored.setdefault(name, form) != form:
            raise SystemExit(f"{name}: dequantized with two scales")

    def _initializer_of(self, name: str) -> str:
        return self.initializer_of_value.get(name, name)

    def _train_scales(self) -> None:
        conversions = [inputs for op, _, inputs, _ in self.steps if op in ("QuantizeLinear", "DequantizeLinear")]
        # The scale of a bias is a product of two others.
        for name in sorted({inputs[1] for inputs in conversions if not self._is_bias(inputs[0])}):
            change = f"change_of_{self.names[name]}"
            # Not the logarithm of the scale itself: its exponential may not have the bits of the scale in the file.
            self.register_parameter(change, nn.Parameter(torch.zeros_like(self.tensor(name))))
            self.changes[name] = change

    def tensor(self, name: str) -> Tensor:
        stored = super().tensor(name)
        return stored * getattr(self, self.changes[name]).exp() if name in self.changes else stored

    def _is_bias(self, name: str) -> bool:
        return name in self.stored and self.stored[name].is_bias

    @torch.no_grad()
    def hold(self) -> None:
        super().hold()
        for change in self.changes.values():
            getattr(self, change).clamp_(-math.log(LARGEST_CHANGE), math.log(LARGEST_CHANGE))

    @torch.no_grad()
    def arrays(self) -> dict[str, np.ndarray]:
        arrays = super().arrays() | {name: self.tensor(name).cpu().numpy() for name in self.changes}
        units = self._units_of_biases()
        for name, form in self.stored.items():
            scale = self.tensor(form.scale)
            if form.is_bias and name in units:
                scale = units[name].reshape(scale.shape)
                arrays[form.scale] = scale.cpu().numpy()
            integers = self._rounded(name, scale) + form.zero_point
            arrays[name] = integers.double().cpu().numpy().astype(form.dtype)
        return arrays

    def _units_of_biases(self) -> dict[str, Tensor]:
        """What 1 stands for in every bias that is added to a sum of integers: one unit of the sum."""
        dims = next(v for v in self.model.graph.input if v.name == self.input).type.tensor_type.shape.dim
        self.units = {}
        device = next(self.parameters()).device
        self.values(torch.zeros([max(1, dim.dim_value) for dim in dims], device=device), ())
        units, self.units = self.units, None
        return units

    # --- the arithmetic ---

    def _rounded(self, name: str, scale: Tensor) -> Tensor:
        """The integers of a trained tensor, less the zero point."""
        form, real = self.stored[name], self.tensor(name)
        return Round.apply(real / along(scale, form.axis, real.ndim), form.low, form.high)

    def _compute(self, op: str, attributes: dict, inputs: list[str], operands: list) -> Tensor | Scaled:
        if op == "QuantizeLinear":
            return self._quantize(attributes, inputs, operands[0])
        if op == "DequantizeLinear":
            return self._dequantize(attributes, inputs, operands[0])
        if op in ("Conv", "Gemm", "MatMul") and sums_integers(op, attributes, operands):
            return self._sum_of_integers(op, attributes, inputs, operands)
        x = operands[0]
        if op in ("Relu", "Clip") and isinstance(x, Scaled) and not x.is_clipped:
            low, high = [*operands[1:], None, None][:2]
            return Scaled(x.terms, x.step, op == "Relu", low, high)
        if op == "Add" and all(isinstance(operand, Scaled) and operand.is_product for operand in operands):
            return Scaled(x.terms + operands[1].terms)
        if op in (*MOVING, *AVERAGES) and isinstance(x, Scaled) and x.is_integers and x.terms[0][1].numel() == 1:
            integers, scale = x.terms[0]
            made = OPERATORS[op](attributes, [integers, *operands[1:]])
            return Scaled(((made, scale),), x.step if op in MOVING else "")
        return super()._compute(op, attributes, inputs, [self._real(operand) for operand in operands])

    def _real(self, value: Tensor | Scaled) -> Tensor:
        return value.real() if isinstance(value, Scaled) else value

    def _quantize(self, attributes: dict, inputs: list[str], x: Tensor | Scaled) -> Scaled:
        name, (low, high) = inputs[1], self.ranges[tuple(inputs[1:])]
        if isinstance(x, Scaled) and x.step == name and not x.is_clipped:
            return x
        rank = (x.terms[0][0] if isinstance(x, Scaled) else x).ndim
        scale = along(self.tensor(name), attributes.get("axis", 1), rank)
        if not isinstance(x, Scaled):
            return Scaled(((Round.apply(x / scale, low, high), scale),), name)
        return Scaled(((x.rounded(scale, name, low, high), scale),), name)

    def _dequantize(self, attributes: dict, inputs: list[str], x: Any) -> Tensor | Scaled:
        name, scale_name = inputs[:2]
        if self._is_bias(name):
            return x  # the layer that adds it says in which units it is rounded
        if name in self.stored:
            form, scale = self.stored[name], self.tensor(scale_name)
            return Scaled(((self._rounded(name, scale), along(scale, form.axis, x.ndim)),), scale_name)
        if not isinstance(x, Scaled):
            raise SystemExit(f"{name}: integers that no QuantizeLinear computes are not known here")
        if x.step == scale_name:
            return x
        integers, scale = x.terms[0][0], self.tensor(scale_name)
        return Scaled(((integers, along(scale, attributes.get("axis", 1), integers.ndim)),), scale_name)

    def _sum_of_integers(self, op: str, attributes: dict, inputs: list[str], operands: list) -> Scaled:
        (x, x_scale), (weights, weight_scale) = (operand.terms[0] for operand in operands[:2])
        sums = OPERATORS[op](attributes, [x, weights])
        unit = (x_scale * weight_scale).flatten()
        per_output = [-1] + [1] * (sums.ndim - 2)
        if len(operands) > 2:
            bias = self._real(operands[2]).flatten()
            if self.units is not None:
                self.units[self._initializer_of(inputs[2])] = unit
            steps = Round.apply(bias / unit, -LARGEST_BIAS, LARGEST_BIAS)
            sums = sums + steps.view(per_output)
        return Scaled(((sums, unit.view(per_output)),))
