"""pipit: an inference engine for convolutional networks.

>>> import numpy as np
>>> import pipit
>>> model = pipit.load("resnet20-cifar10")            # or the path or bytes of an ONNX file
>>> model(np.zeros((1, 3, 32, 32), np.float32)).shape  # arrays in, arrays out
(1, 10)

Classifier takes images and gives labels; evaluate, calibrate, quantize, tune, diff, annotate and profile do the same as
the command of these names, which `python -m pipit` runs.
"""

from pipit._classifier import Classifier
from pipit._errors import ArgumentError, Error, UnsupportedError
from pipit._model import Model, Session, load
from pipit._pipit import (
    AnnotatedFile,
    Calibration,
    Difference,
    Evaluation,
    Machine,
    Prediction,
    Profile,
    QuantizedFile,
    TensorInfo,
    TunedPlan,
    version,
)
from pipit._progress import Progress
from pipit._tools import (
    annotate,
    calibrate,
    diff,
    doctor,
    evaluate,
    machine,
    merge_calibrations,
    profile,
    quantize,
    tune,
)
from pipit._types import LoadOptions

__version__ = version()

__all__ = [
    "AnnotatedFile",
    "ArgumentError",
    "Calibration",
    "Classifier",
    "Difference",
    "Error",
    "Evaluation",
    "LoadOptions",
    "Machine",
    "Model",
    "Prediction",
    "Profile",
    "Progress",
    "QuantizedFile",
    "Session",
    "TensorInfo",
    "TunedPlan",
    "UnsupportedError",
    "annotate",
    "calibrate",
    "diff",
    "doctor",
    "evaluate",
    "load",
    "machine",
    "merge_calibrations",
    "profile",
    "quantize",
    "tune",
    "version",
]
