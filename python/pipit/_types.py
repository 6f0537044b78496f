"""What arguments may be: the words of options, and the options of each function.

Where an option is not given, or is None, pipit's default holds, which is that of the command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]

Precision = Literal["fp32", "fp16", "bf16", "int8", "int8-dynamic", "w8", "w4"]
ScoreKind = Literal["logits", "softmax", "log-softmax", "sigmoid", "sigmoid-logits"]
RangeMethod = Literal["minmax", "percentile", "entropy", "mse"]
JudgeBy = Literal["labels", "model"]


class CompileOptions(TypedDict, total=False):
    """How a model is read and compiled."""

    device: str
    """'cpu', 'cuda', or 'cuda:1' for one GPU of several."""
    gpus: Sequence[int] | None
    """Ordinals of the GPUs that get a copy each."""
    precision: Precision
    """What the model computes in; 'int8' needs a plan."""
    keep: str | Sequence[str] | None
    """'NAME=fp32' and the like: layers that stay in floating point besides the plan's; 'first' and 'last' are names."""
    threads: int | None
    """CPU threads of a run; 0: all that this process may use."""
    batch: int | None
    """Samples of a run. Unset: what the file fixes, else 1."""
    shapes: Mapping[str, Sequence[int]] | None
    """Shapes of inputs that the file leaves open, by input."""
    dimensions: Mapping[str, int] | None
    """Extents of symbolic dimensions, by their names in the file."""
    values: Mapping[str, Any] | None
    """Inputs that become constants, by name: a number for all elements, or one for each."""
    arrays: Mapping[str, StrPath] | None
    """The same from .npy files."""
    per_sample_scales: bool | None
    """For 'int8-dynamic': a scale for each sample, else one for the batch."""
    group_size: int | None
    """For 'w4': neighbouring weights that share a scale, 32, 64 or 128."""
    autotune: bool | None
    """Kernels are chosen by timing; takes seconds to minutes, once where a cache keeps the times."""
    tuning_cache: StrPath | None
    """File with the times of earlier runs."""
    prefer_kernels: str | Sequence[str] | None
    """Kernels to use wherever they accept a layer: 'NAME', or 'TYPE=NAME'."""
    exclude_kernels: str | Sequence[str] | None
    """Kernels never to use."""
    allow_fallback: bool | None
    """On a GPU: layers without a GPU kernel run on the CPU."""
    micro_batch: int | None
    """On the CPU: how many samples of a batch go through all layers together; 0: all."""


class LoadOptions(CompileOptions, total=False):
    """Of load()."""

    plan: StrPath | None
    """The file that calibrate() or tune() wrote for this model."""
    output: str | None
    """The one output to keep, by name."""


class PreprocessOptions(TypedDict, total=False):
    """How images are prepared; what is not set is as the model stores it, else as the preset says."""

    preset: str | None
    """'torchvision', 'timm', 'caffe' or 'cifar'."""
    resize: int | None
    """Short side after resizing, in pixels; 0: not resized."""
    crop: int | None
    """Side of the square cut from the centre, in pixels."""
    interpolation: str | None
    """'nearest', 'bilinear' or 'bicubic', antialiased as Pillow's."""
    mean: Sequence[float] | None
    """Three values, subtracted from each channel after scaling to [0, 1]."""
    std: Sequence[float] | None
    """Three values that divide each channel after that."""
    bgr: bool | None
    """Channels in the order blue, green, red."""
    ignore_exif_orientation: bool | None
    """Photographs are left as they are stored."""


class ScoreOptions(TypedDict, total=False):
    """What a classifier's scores mean."""

    scores: ScoreKind | None
    """What the model's scores are. Unset: what the model stores, else what its graph says."""
    threshold: float | None
    """Probability from which on one score alone says yes."""


class LabelOptions(TypedDict, total=False):
    """What its classes are called."""

    labels: StrPath | None
    """File with one class name per line, or a JSON list. Unset: the names that the model stores."""


class ClassifierOptions(LoadOptions, PreprocessOptions, ScoreOptions, total=False):
    """Of Classifier, besides the labels."""


class AnnotateOptions(PreprocessOptions, ScoreOptions, LabelOptions, total=False):
    """What annotate() stores."""


class RangeOptions(TypedDict, total=False):
    """How ranges are chosen from histograms, and what is written of them."""

    method: RangeMethod | None
    """How far ranges reach: 'mse' unless given."""
    percentile: float | None
    """For 'percentile', in (0, 100]."""
    histograms: bool | None
    """The plan holds the histograms, which merge_calibrations() and another method need."""
    trt_cache: StrPath | None
    """Also write the ranges as a calibration cache of TensorRT."""
    ncnn_table: StrPath | None
    """Also write the scales as a table of ncnn."""


class CalibrateOptions(CompileOptions, PreprocessOptions, RangeOptions, total=False):
    """Of calibrate()."""

    per_channel_weights: bool | None
    """A scale per output channel (the default), else one for all weights of a layer."""
    equalize: bool | None
    """Cross-layer equalization."""
    bias_correction: bool | None
    """Bias correction."""
    skip: int | None
    """Images at the beginning that are left out."""
    limit: int | None
    """Images to use of the others, spread evenly; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class EvaluateOptions(ClassifierOptions, LabelOptions, total=False):
    """Of evaluate()."""

    truth: StrPath | None
    """CSV file with the classes of the images, instead of the names of folders and files."""
    limit: int | None
    """Images to use, spread evenly; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""
    against: Precision | None
    """Also run the images in that precision, or through another model, and compare."""
    against_model: StrPath | None
    """The model for that; unset: the same."""
    max_drop: float | None
    """For `against`: the largest drop that is allowed, in points."""


class TuneOptions(CompileOptions, PreprocessOptions, ScoreOptions, LabelOptions, total=False):
    """Of tune()."""

    plan: StrPath | None
    """Its scales are used; unset: scales are found first."""

    max_drop: float | None
    """The largest drop against fp32 that is allowed, in points; 1 unless given."""
    confidence: float | None
    """Percent, from 50 on: how sure the search must be."""
    judge_by: JudgeBy | None
    """What counts as right: the images' labels, or the answers of the model in fp32."""
    keep_as: Precision | None
    """What kept layers compute in."""
    limit: int | None
    """Images to use, spread evenly; 0: all."""
    calibrate_limit: int | None
    """Without a plan: images of the search that scales are of; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class DiffOptions(CompileOptions, PreprocessOptions, total=False):
    """Of diff()."""

    output: str | None
    """The one output to keep, by name."""

    limit: int | None
    """Images to use, spread evenly; 0: all."""
    shares: bool | None
    """Also run the model twice for each layer, for what each contributes to the error at the output."""
    share_limit: int | None
    """Images for that; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class QuantizeOptions(CompileOptions, total=False):
    """Of quantize()."""

    signed_activations: bool | None
    """i8 with zero point 0 instead of u8 with 128; both hold the same values."""
