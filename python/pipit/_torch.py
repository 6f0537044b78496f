"""Modules of PyTorch as ONNX files in memory."""

from __future__ import annotations

import inspect
import io
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipit._errors import ArgumentError, Error

if TYPE_CHECKING:
    import torch

_OPSET = 18


def is_module(model: object) -> bool:
    """Whether it is a torch.nn.Module; False where nothing has imported torch."""
    kind = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    return kind is not None and isinstance(model, kind)


def exported(module: torch.nn.Module, example: Any, batch: int | None) -> bytes:
    """The module as it computes in evaluation mode, with the shapes of `example`.

    example: a tensor (or an array), a sequence of them for several arguments, or a mapping by name. batch: the example
    of its first sample, repeated; all tensors with the batch of the first one have it. The module is not changed: its
    parameters and buffers are written as they are, and each submodule is in the mode that it was in afterwards.
    Raises ArgumentError for an example that cannot be, and Error with PyTorch's reason if it cannot export the module.
    """
    arguments, named = _arguments(module, example)
    inputs = [*arguments, *named.values()]
    if batch is not None:
        inputs = _with_batch(inputs, batch)
        arguments, named = tuple(inputs[: len(arguments)]), dict(zip(named, inputs[len(arguments) :], strict=True))
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        return _export(module, arguments, named, _names(module, len(arguments), named))
    finally:
        for part, training in modes.items():
            part.training = training


def _arguments(module: torch.nn.Module, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if example is None:
        raise ArgumentError(
            f"no example for the module {type(module).__name__}: give the tensors that it takes, for instance "
            "pipit.load(module, example=torch.zeros(1, 3, 224, 224))"
        )
    first = next(module.parameters(), None)
    device = first.device if first is not None else None

    def tensor(value: Any) -> torch.Tensor:
        try:
            return torch.as_tensor(value, device=device).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"example has a {type(value).__name__}, which is no tensor: {error}") from error

    if isinstance(example, Mapping):
        return (), {name: tensor(value) for name, value in example.items()}
    if isinstance(example, (list, tuple)):
        return tuple(map(tensor, example)), {}
    return (tensor(example),), {}


def _with_batch(inputs: list[Any], batch: int) -> list[Any]:
    if batch < 1 or not inputs or inputs[0].ndim == 0:
        raise ArgumentError(f"batch={batch}: expected 1 or more, and an example whose first tensor has samples")
    samples = inputs[0].shape[0]
    return [
        value[:1].repeat(batch, *[1] * (value.ndim - 1)) if value.ndim > 0 and value.shape[0] == samples else value
        for value in inputs
    ]


def _names(module: torch.nn.Module, count: int, named: Mapping[str, Any]) -> list[str]:
    """Names of the inputs: those of the parameters of forward()."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        known = []
    if len(known) < count:
        known = ["input"] if count == 1 else [f"input_{i}" for i in range(count)]
    return [*known[:count], *named]


def _export(module: torch.nn.Module, arguments: Sequence[Any], named: dict[str, Any], names: list[str]) -> bytes:
    import torch

    with torch.no_grad():
        result = module(*arguments, **named)
    leaves = torch.utils._pytree.tree_leaves(result)
    outputs = ["output"] if len(leaves) == 1 else [f"output_{i}" for i in range(len(leaves))]

    def write(dynamo: bool) -> bytes:
        file = io.BytesIO()
        options: dict[str, Any] = {"input_names": names, "output_names": outputs, "opset_version": _OPSET}
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = dynamo
        if dynamo:
            program = torch.onnx.export(module, tuple(arguments), kwargs=named, verbose=False, **options)
            program.save(file, external_data=False)
        else:
            if named:  # the last of the arguments of this exporter
                torch.onnx.export(module, (*arguments, named), file, **options)
            else:
                torch.onnx.export(module, tuple(arguments), file, **options)
        return file.getvalue()

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        reasons = []
        # The exporter by tracing needs no other packages; the newer one has onnx and onnxscript.
        for dynamo in (False, True):
            try:
                return write(dynamo)
            except Exception as error:  # of any kind that the module or the exporter raises
                reasons.append(f"{'torch.export' if dynamo else 'tracing'}: {_reason(error)}")
    raise Error(
        f"{type(module).__name__}: PyTorch {torch.__version__} cannot export the module:\n  " + "\n  ".join(reasons)
    )


def _reason(error: BaseException) -> str:
    """The first line of the error that the others come from."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
