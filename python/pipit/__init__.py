"""pipit: an inference engine for convolutional networks.

>>> import numpy as np
>>> import pipit
>>> model = pipit.load("resnet20-cifar10")            # or the path or bytes of an ONNX file
>>> model(np.zeros((1, 3, 32, 32), np.float32)).shape  # arrays in, arrays out
(1, 10)

Classifier takes images and gives labels, AsyncRunner runs a model on many inputs at once, Calibrator finds INT8 scales
in parts. evaluate, calibrate, quantize, tune, prune, diff, annotate, profile, bench, compare, sweep_convolutions,
sweep_sparsity, verify, models, fetch and ceilings do the same as the command of these names, which `python -m pipit`
runs.
"""

from typing import TYPE_CHECKING, Any

from pipit._async_runner import AsyncRunner
from pipit._calibrator import Calibrator
from pipit._classifier import Classifier
from pipit._errors import ArgumentError, Error, UnsupportedError
from pipit._model import Model, Session, load
from pipit._overlays import write_annotated_nodes, write_node_data
from pipit._pipit import (
    AnnotatedFile,
    Bench,
    Calibration,
    Ceilings,
    Comparisons,
    ConvSweep,
    DeviceArray,
    Difference,
    Evaluation,
    ExcludedImage,
    FetchResult,
    InspectedModel,
    Machine,
    ModelList,
    Prediction,
    Profile,
    PrunedModel,
    QuantizedFile,
    SparsitySweep,
    TensorInfo,
    TunedPlan,
    Verification,
    version,
)
from pipit._progress import Progress
from pipit._tools import (
    annotate,
    bench,
    calibrate,
    ceilings,
    compare,
    diff,
    doctor,
    evaluate,
    fetch,
    machine,
    merge_calibrations,
    models,
    profile,
    prune,
    quantize,
    sweep_convolutions,
    sweep_sparsity,
    tune,
    verify,
)

if TYPE_CHECKING:
    from pipit._types import LoadOptions

__version__ = version()


def __getattr__(name: str) -> Any:
    if name != "LoadOptions":
        raise AttributeError(f"module 'pipit' has no attribute '{name}'")
    from pipit._types import LoadOptions  # takes as long to import as all the rest

    return LoadOptions


__all__ = [
    "AnnotatedFile",
    "ArgumentError",
    "AsyncRunner",
    "Bench",
    "Calibration",
    "Calibrator",
    "Ceilings",
    "Classifier",
    "Comparisons",
    "ConvSweep",
    "DeviceArray",
    "Difference",
    "Error",
    "Evaluation",
    "ExcludedImage",
    "FetchResult",
    "InspectedModel",
    "LoadOptions",
    "Machine",
    "Model",
    "ModelList",
    "Prediction",
    "Profile",
    "Progress",
    "PrunedModel",
    "QuantizedFile",
    "Session",
    "SparsitySweep",
    "TensorInfo",
    "TunedPlan",
    "UnsupportedError",
    "Verification",
    "annotate",
    "bench",
    "calibrate",
    "ceilings",
    "compare",
    "diff",
    "doctor",
    "evaluate",
    "fetch",
    "load",
    "machine",
    "merge_calibrations",
    "models",
    "profile",
    "prune",
    "quantize",
    "sweep_convolutions",
    "sweep_sparsity",
    "tune",
    "verify",
    "version",
    "write_annotated_nodes",
    "write_node_data",
]
