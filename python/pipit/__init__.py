"""pipit: an inference engine for convolutional networks.

>>> import numpy as np
>>> import pipit
>>> model = pipit.load("resnet20-cifar10")            # or the path or bytes of an ONNX file
>>> model(np.zeros((1, 3, 32, 32), np.float32)).shape  # arrays in, arrays out
(1, 10)

Classifier takes images and gives labels; evaluate, calibrate, quantize, tune, prune, diff, annotate, profile, bench,
compare and verify do the same as the command of these names, which `python -m pipit` runs.
"""

from pipit._classifier import Classifier
from pipit._errors import ArgumentError, Error, UnsupportedError
from pipit._model import Model, Session, load
from pipit._pipit import (
    AnnotatedFile,
    Bench,
    Calibration,
    Comparisons,
    Difference,
    Evaluation,
    InspectedModel,
    Machine,
    Prediction,
    Profile,
    PrunedModel,
    QuantizedFile,
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
    compare,
    diff,
    doctor,
    evaluate,
    machine,
    merge_calibrations,
    profile,
    prune,
    quantize,
    tune,
    verify,
)
from pipit._types import LoadOptions

__version__ = version()

__all__ = [
    "AnnotatedFile",
    "ArgumentError",
    "Bench",
    "Calibration",
    "Classifier",
    "Comparisons",
    "Difference",
    "Error",
    "Evaluation",
    "InspectedModel",
    "LoadOptions",
    "Machine",
    "Model",
    "Prediction",
    "Profile",
    "Progress",
    "PrunedModel",
    "QuantizedFile",
    "Session",
    "TensorInfo",
    "TunedPlan",
    "UnsupportedError",
    "Verification",
    "annotate",
    "bench",
    "calibrate",
    "compare",
    "diff",
    "doctor",
    "evaluate",
    "load",
    "machine",
    "merge_calibrations",
    "profile",
    "prune",
    "quantize",
    "tune",
    "verify",
    "version",
]
