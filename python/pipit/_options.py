"""Converts keyword arguments to the structs of options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipit import _pipit
from pipit._errors import ArgumentError

if TYPE_CHECKING:
    from pipit import _types

PATHS = ("plan", "tuning_cache", "labels", "truth", "trt_cache", "ncnn_table", "results", "check")
NESTED = {"load", "preprocess", "classifier", "range", "tuning", "timing", "goal", "run", "grid", "checking"}


def choices(name: str) -> tuple[str, ...] | None:
    """The words of an option; None if it takes others."""
    from typing import get_args

    from pipit import _types  # takes time to import, so only where it is needed

    words: dict[str, tuple[str, ...]] = {
        "precision": get_args(_types.Precision),
        "keep_as": get_args(_types.Precision),
        "against": get_args(_types.Precision),
        "scores": get_args(_types.ScoreKind),
        "method": get_args(_types.RangeMethod),
        "target": get_args(_types.QuantizeTarget),
        "rounding": get_args(_types.Rounding),
        "judge_by": get_args(_types.JudgeBy),
        "mode": get_args(_types.PruneMode),
        "importance": get_args(_types.Importance),
        "rows": get_args(_types.PrunedRows),
        "modes": get_args(_types.SparsityMode),
        "precisions": get_args(_types.Precision),
        "device": ("cpu", "cuda", "cuda:N"),
    }
    return words.get(name)


def _refuse(name: str, value: object, expected: str) -> ArgumentError:
    return ArgumentError(f"{name}={value!r}: expected {expected}")


def _device(options: dict[str, Any]) -> None:
    device, colon, ordinal = str(options["device"]).partition(":")
    if colon:
        if device != "cuda" or not ordinal.isdecimal():
            raise _refuse("device", options["device"], "'cpu', 'cuda' or 'cuda:N'")
        if options.get("gpus") is not None:
            raise ArgumentError(f"device={options['device']!r} contradicts gpus={options['gpus']!r}; give one of them")
        options["gpus"] = [int(ordinal)]
    options["device"] = device


def _numbers(name: str, value: Any) -> list[float]:
    try:
        if isinstance(value, (int, float)):
            return [float(value)]
        flat = value.ravel().tolist() if hasattr(value, "ravel") else value
        return [float(number) for number in flat]
    except (TypeError, ValueError):
        raise _refuse(f"values[{name!r}]", value, "a number or a list of numbers") from None


def normalized(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set, as the structs have them."""
    options = {name: value for name, value in given.items() if value is not None}
    if "device" in options:
        _device(options)
    if "values" in options:
        options["values"] = {name: _numbers(name, value) for name, value in options["values"].items()}
    if "shapes" in options:
        options["shapes"] = {name: tuple(shape) for name, shape in options["shapes"].items()}
    for name in ("keep", "prefer_kernels", "exclude_kernels"):
        if isinstance(options.get(name), str):
            options[name] = [options[name]]
    if "autotune" in options:
        options["tuning"] = "all" if options.pop("autotune") else "by_order"
    return options


def recipe(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same options for another process, in another folder."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in PATHS:
        if isinstance(options.get(name), (str, os.PathLike)):
            options[name] = os.path.abspath(options[name])
    if "arrays" in options:
        options["arrays"] = {name: os.path.abspath(path) for name, path in options["arrays"].items()}
    return options


def assign(function: str, given: Mapping[str, Any], *targets: object) -> None:
    """Sets each option in the first struct that has it; a precision and its options are one value there. Raises
    TypeError for an option that no struct has, and ArgumentError for an invalid value."""
    options = normalized(given)
    setter = "_set_precisions" if "precisions" in options else "_set_precision"
    holder = next((t for t in targets if hasattr(type(t), setter)), None)
    precision = _pipit.PrecisionOptions()
    if holder is not None:
        targets = (*targets, precision)
    for name, value in options.items():
        target = next((t for t in targets if hasattr(type(t), name)), None)
        if target is None or (name in NESTED and name in given):
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
        try:
            setattr(target, name, value)
        except TypeError:
            words = choices(name)
            expected = (
                ", ".join(map(repr, words)) if words else "another type; help(pipit." + function + ") lists options"
            )
            raise _refuse(name, given.get(name, value), expected) from None
    if holder is not None:
        getattr(holder, setter)(precision)


def load_options(function: str, given: Mapping[str, Any]) -> _pipit.LoadOptions:
    options = _pipit.LoadOptions()
    assign(function, given, options)
    return options


def classifier_options(function: str, given: Mapping[str, Any]) -> _pipit.ClassifierOptions:
    options = _pipit.ClassifierOptions()
    assign(function, given, options, options.load, options.preprocess)
    return options


def paths(given: _types.Paths) -> list[str]:
    """One or several paths, as a list."""
    if isinstance(given, (str, os.PathLike)):
        return [os.fspath(given)]
    return [os.fspath(path) for path in given]


def model_name(model: object) -> str:
    """The file or the name of a model. Raises ArgumentError for anything else."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    raise ArgumentError(
        f"model is of type {type(model).__name__}; expected the path of an ONNX file, or a model's name"
    )


def absolute(model: str) -> str:
    """A path that means the same in another folder; a name stays as it is."""
    return os.path.abspath(model) if os.path.exists(model) else model


def listed(value: Any) -> list[Any] | None:
    """One value or several as a list; None stays."""
    return value if value is None else [*value] if is_listing(value) else [value]


def is_listing(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))
