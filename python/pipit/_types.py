"""Types of arguments: the words of options, and the options of each function.

An option that is not given, or is None, has the default of the command.
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
QuantizeTarget = Literal["pipit", "tensorrt", "onnxruntime", "openvino"]
Rounding = Literal["nearest", "second-order"]
JudgeBy = Literal["labels", "model"]
PruneMode = Literal["auto", "k", "channel", "block", "input"]
Importance = Literal["l1", "l2", "activation", "second-order"]
PrunedRows = Literal["auto", "tap", "channel"]
SparsityMode = Literal["k", "k-panel", "channel", "block", "input", "input-panel"]


class ReadOptions(TypedDict, total=False):
    """How a model is read, and which kernels run it."""

    device: str
    """'cpu', 'cuda', or 'cuda:1' for one GPU of several."""
    gpus: Sequence[int] | None
    """Ordinals of the GPUs that get a copy each."""
    shapes: Mapping[str, Sequence[int]] | None
    """Shapes of inputs that the file leaves open, by input."""
    dimensions: Mapping[str, int] | None
    """Extents of symbolic dimensions, by their names in the file."""
    values: Mapping[str, Any] | None
    """Inputs that become constants, by name: a number for all elements, or one for each."""
    arrays: Mapping[str, StrPath] | None
    """The same, read from .npy files."""
    per_sample_scales: bool | None
    """For 'int8-dynamic': one scale per sample instead of one for the batch."""
    group_size: int | None
    """For 'w4': neighbouring weights that share a scale, 32, 64 or 128."""
    autotune: bool | None
    """Choose kernels by timing them; takes seconds to minutes, only once if a cache stores the times."""
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


class CompileOptions(ReadOptions, total=False):
    """How a model is read and compiled."""

    precision: Precision
    """Precision of the computation; 'int8' needs a plan."""
    keep: str | Sequence[str] | None
    """Layers that stay in floating point in addition to the plan's: 'NAME=fp32', 'first=fp32', 'last=bf16', ..."""
    threads: int | None
    """CPU threads of a run; 0: all that this process may use."""
    batch: int | None
    """Samples of a run. Unset: the number in the file, else 1."""


class LoadOptions(CompileOptions, total=False):
    """Options of load()."""

    plan: StrPath | None
    """The file that calibrate() or tune() wrote for this model."""
    output: str | None
    """The one output to keep, by name."""


class PreprocessOptions(TypedDict, total=False):
    """How images are prepared. Unset options: as the model stores them, else as in the preset."""

    preset: str | None
    """'torchvision', 'timm', 'caffe' or 'cifar'."""
    resize: int | None
    """Short side after resizing, in pixels; 0: not resized."""
    crop: int | None
    """Side of the square cut from the centre, in pixels."""
    interpolation: str | None
    """'nearest', 'bilinear' or 'bicubic', antialiased as in Pillow."""
    mean: Sequence[float] | None
    """Three values, subtracted from each channel after scaling to [0, 1]."""
    std: Sequence[float] | None
    """Three values that divide each channel after that."""
    bgr: bool | None
    """Channels in the order blue, green, red."""
    ignore_exif_orientation: bool | None
    """Do not rotate photographs by their EXIF orientation."""


class ScoreOptions(TypedDict, total=False):
    """What a classifier's scores mean."""

    scores: ScoreKind | None
    """The kind of the model's scores. Unset: as the model stores it, else as its graph shows."""
    threshold: float | None
    """Probability from which an independent class counts as yes."""


class LabelOptions(TypedDict, total=False):
    """The names of the classes."""

    labels: StrPath | None
    """File with one class name per line, or a JSON list. Unset: the names that the model stores."""


class ClassifierOptions(LoadOptions, PreprocessOptions, ScoreOptions, total=False):
    """Options of Classifier, except the labels."""


class AnnotateOptions(PreprocessOptions, ScoreOptions, LabelOptions, total=False):
    """What annotate() stores."""


class RangeOptions(TypedDict, total=False):
    """How ranges are chosen from histograms."""

    method: RangeMethod | None
    """How ranges are chosen: 'mse' by default."""
    percentile: float | None
    """For 'percentile', in (0, 100]."""


class CalibratorOptions(CompileOptions, PreprocessOptions, RangeOptions, total=False):
    """Options of Calibrator."""

    per_channel_weights: bool | None
    """One scale per output channel (the default) instead of one for all weights of a layer."""
    equalize: bool | None
    """Cross-layer equalization."""
    bias_correction: bool | None
    """Bias correction."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class CalibrateOptions(CalibratorOptions, ScoreOptions, LabelOptions, total=False):
    """Options of calibrate()."""

    check: StrPath | None
    """A folder of other images in one sub-folder for each class: what INT8 with the plan costs on them."""
    truth: StrPath | None
    """For check: a CSV file with the classes of the images."""
    check_limit: int | None
    """Images to use of check, spread evenly; 0: all."""
    histograms: bool | None
    """Store the histograms in the plan, for merge_calibrations() and other methods."""
    trt_cache: StrPath | None
    """Also write the ranges as a TensorRT calibration cache."""
    trt_version: str | None
    """The release of TensorRT that reads it, such as '10.3.0'."""
    ncnn_table: StrPath | None
    """Also write the scales as an ncnn table."""
    skip: int | None
    """Number of images to skip at the beginning."""
    limit: int | None
    """Images to use from the rest, spread evenly; 0: all."""


class EvaluateOptions(ClassifierOptions, LabelOptions, total=False):
    """Options of evaluate()."""

    truth: StrPath | None
    """CSV file with the classes of the images, instead of the names of folders and files."""
    limit: int | None
    """Images to use, spread evenly; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""
    against: Precision | None
    """Also run the images in this precision, and compare."""
    against_model: StrPath | None
    """Also run the images through this model, and compare; unset: the same model."""
    max_drop: float | None
    """For `against`: the largest allowed drop, in points."""


class TuneOptions(CompileOptions, PreprocessOptions, ScoreOptions, LabelOptions, total=False):
    """Options of tune()."""

    plan: StrPath | None
    """Use the scales of this plan; unset: calibrate first."""

    max_drop: float | None
    """The largest allowed drop against fp32, in points; 1 by default."""
    confidence: float | None
    """Confidence of the search in percent, at least 50."""
    judge_by: JudgeBy | None
    """What counts as right: the images' labels, or the answers of the model in fp32."""
    keep_as: Precision | None
    """Precision of the kept layers."""
    limit: int | None
    """Images to use, spread evenly; 0: all."""
    calibrate_limit: int | None
    """Without a plan: images of the search to calibrate on; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class DiffOptions(CompileOptions, PreprocessOptions, total=False):
    """Options of diff()."""

    output: str | None
    """The one output to keep, by name."""

    limit: int | None
    """Images to use, spread evenly; 0: all."""
    shares: bool | None
    """Also run the model twice for each layer, to measure its contribution to the error at the output."""
    share_limit: int | None
    """Images for that; 0: all."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class QuantizeOptions(CompileOptions, PreprocessOptions, total=False):
    """Options of quantize()."""

    target: QuantizeTarget | None
    """What reads the file: pipit (the default), TensorRT, ONNX Runtime or OpenVINO."""
    signed_activations: bool | None
    weight_bits: int | None
    """i8 with zero point 0 instead of u8 with 128; both hold the same values."""
    rounding: Rounding | None
    """How weights become integers; unset: 'second-order' with images, else 'nearest'."""
    images: Paths | None
    """For 'second-order': images or arrays, or folders of them, that the model runs on."""
    limit: int | None
    """Number of images to use, at even intervals in the list; 0: as many as fit in memory."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class BenchOptions(ReadOptions, total=False):
    """Options of bench(): a list of precisions, batches or threads means each of them."""

    precision: Precision | Sequence[Precision] | None
    """Precision of the computation; 'int8' needs a plan."""
    batch: int | Sequence[int] | None
    """Samples of a run. Unset: the number in the file, else 1."""
    threads: int | Sequence[int] | None
    """CPU threads of a run; 0: all that this process may use."""
    plan: StrPath | None
    """For 'int8': the file that calibrate() or tune() wrote for this model."""
    keep: str | Sequence[str] | None
    """Layers that stay in floating point in addition to the plan's: 'NAME=fp32', 'first=fp32', 'last=bf16', ..."""
    output: str | None
    """The one output to keep, by name."""

    inputs: StrPath | Sequence[StrPath] | Mapping[str, StrPath] | None
    """A .npy file or an image for the input, or one for each by name; else random numbers, always the same."""
    image_bytes: bool | None
    """The model gets images as bytes, and normalizes them on the device."""
    streams: int | Sequence[int] | None
    """How many sessions run at once, which share the weights; rows are of throughput."""
    seconds: float | None
    """Time box of each row; 2 unless runs are given."""
    runs: int | None
    """At most this many timed runs of each row."""
    warmup: int | None
    """Runs before them."""
    against: StrPath | None
    """Another model: runs in turns with each, and is compared with it."""
    max_slowdown: float | None
    """The largest slowdown that a comparison may show, in percent."""
    peaks: bool | None
    """Also the peak rates of the CPU."""


class VerifyOptions(LoadOptions, total=False):
    """Options of verify()."""

    rtol: float | None
    """Tolerance relative to the expected value; 1e-3 unless values are stored in 16 bits."""
    atol: float | None
    """Absolute tolerance, added to that."""
    norm: float | None
    """Compare floats by norms: the largest relative error that an output may have."""


class PruneOptions(ReadOptions, PreprocessOptions, ScoreOptions, LabelOptions, total=False):
    """Options of prune(): exactly one of keep, speedup and max_drop."""

    precision: Precision
    """The precision that the model is pruned for, 'fp32' or 'int8'."""
    threads: int | None
    """CPU threads of a run; 0: all that this process may use."""
    batch: int | None
    """Samples of a run."""

    keep: float | None
    """Share of every layer's weights, or channels, that stays."""
    global_: bool | None
    """For keep: it is the share of all layers together."""
    speedup: float | None
    """Over the dense model in the same precision, above 1."""
    max_drop: float | None
    """The largest drop against the dense model in fp32, in points."""
    seconds: float | None
    """For speedup and max_drop: how long whole selections are measured."""
    judge_by: JudgeBy | None
    """What counts as right: the images' labels, or the answers of the dense model."""
    mode: PruneMode | None
    """What is removed together."""
    importance: Importance | None
    """How the loss that removing a group causes is estimated."""
    rows: PrunedRows | None
    """For mode 'k': which part of an input channel is removed at once."""
    group: int | None
    """For mode 'k': neighbouring input channels that are removed together, 1, 4, 8 or 16."""
    panel: int | None
    """For mode 'k': neighbouring outputs that lose the same ones, 16, 32, 0 (all) or 1 (each its own)."""
    block: int | None
    """For mode 'block': channels of a block, 4, 8, 16 or 32."""
    refit: bool | None
    """Fit the kept weights (the default)."""
    ridge: float | None
    """How strongly these are held to their old values."""
    check: StrPath | None
    """Images to check the result on. Unset: every other one of the images."""
    limit: int | None
    """Images to use of each folder, spread evenly; 0: all."""
    calibrate_limit: int | None
    """Images to choose and fit on; 0: all that fit in 1.9 GiB."""
    strict: bool | None
    """The first image that cannot be used is an error, instead of being excluded."""


class SweepOptions(TypedDict, total=False):
    """Options of both sweeps."""

    device: Literal["cpu", "cuda"]
    """Where layers run; on a GPU, GPU 0."""
    threads: int | None
    """CPU threads of a run; 0: all that this process may use."""
    seconds: float | None
    """Time limit of a row, in which the compared variants run in turns; at least 3 to 7 turns."""
    results: StrPath | None
    """File for every row as a line of JSON, written as soon as it is measured."""
    resume: bool | None
    """Continue the sweep in `results`, which was written with the same settings, machine and version."""
    precision: Precision | Sequence[Precision] | None
    """Of 'fp32', 'fp16', 'bf16' and 'int8'; may be a list."""


class ConvSweepOptions(SweepOptions, total=False):
    """Options of sweep_convolutions(): every combination of the lists of extents is a layer."""

    batch: int | Sequence[int] | None
    """Images."""
    in_channels: int | Sequence[int] | None
    """Input channels."""
    out_channels: int | Sequence[int] | None
    """Output channels."""
    size: int | Sequence[int] | None
    """Heights and widths of images."""
    kernel: int | Sequence[int] | None
    """Heights and widths of windows."""
    stride: int | Sequence[int] | None
    """Strides."""
    all: bool | None
    """Also combinations that are rare in networks or take very long, such as fewer outputs than inputs."""
    sample: int | None
    """Number of layers drawn at random; 0: all."""
    seed: int | None
    """Of the sample; a larger sample contains a smaller one."""
    backends: str | Sequence[str] | None
    """Kernels by name; 'auto': the fastest of all."""
    bases: str | Sequence[str] | None
    """What rows are compared with: precisions, on a GPU also 'cudnn' and 'cudnn-best'. Unset: fp32, on a GPU fp16."""
    floor: bool | None
    """Also the least possible time of each row, from this machine's ceilings."""


class SparsitySweepOptions(SweepOptions, total=False):
    """Options of sweep_sparsity()."""

    layers: str | Sequence[str] | None
    """'NxCxHxW:OxRxS', then ':sSTRIDE', ':pPADDING' and ':dDILATION' as needed. Unset: two that are typical."""
    batch: int | None
    """Samples of a run of the model. Unset: the number in the file, else 1."""
    shapes: Mapping[str, Sequence[int]] | None
    """Shapes of the model's inputs that the file leaves open, by input."""
    dimensions: Mapping[str, int] | None
    """Extents of symbolic dimensions, by their names in the file."""
    values: Mapping[str, Any] | None
    """Inputs that become constants, by name: a number for all elements, or one for each."""
    arrays: Mapping[str, StrPath] | None
    """The same, read from .npy files."""
    mode: SparsityMode | Sequence[SparsityMode] | None
    """What is removed together; unset: each of them."""
    keep: float | Sequence[float] | None
    """Shares of the weights that stay, from 0.05 to 1; 1: the dense layer."""
    importance: Importance | None
    """How losses are estimated; for outputs only 'l1' or 'l2'."""
    group: int | None
    """Neighbouring input channels in a row of K; 0: the number that a kernel leaves out together."""
    panel: int | None
    """Outputs that share rows; unset: those that this CPU computes together."""
    block: int | None
    """Outputs of a block."""
    refit: bool | None
    """Also fit the kept weights and compare again."""
