"""Evaluating, calibrating, quantizing, comparing and profiling models, as the commands of these names do.

The functions take a model's file or name, keyword options (None means the default), and `progress`: a function that is
called with a Progress and may raise to end the work, True for a tqdm bar, False for none; unset: a bar in terminals
and notebooks if tqdm is installed. Ctrl-C ends the work; a file is written in full or not at all. Notes go to the
logger "pipit". They raise Error for models and files that cannot be read or written, UnsupportedError for what pipit
does not implement, and ArgumentError for invalid options. Other threads can run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from pipit import _log, _pipit
from pipit._model import Model, load
from pipit._options import assign, listed, model_name, paths
from pipit._progress import ProgressOption, reporting

if TYPE_CHECKING:
    from typing import Unpack

    from pipit._types import (
        AnnotateOptions,
        BenchOptions,
        CalibrateOptions,
        ConvSweepOptions,
        DiffOptions,
        EvaluateOptions,
        LoadOptions,
        Paths,
        PruneOptions,
        QuantizeOptions,
        RangeMethod,
        SparsitySweepOptions,
        StrPath,
        TuneOptions,
        VerifyOptions,
    )


@runtime_checkable
class _HasNotes(Protocol):
    @property
    def notes(self) -> Sequence[str]: ...


Result = TypeVar("Result")
Work = Callable[[Callable[..., None] | None, Callable[[str], None]], Result]


def _reported(title: str, progress: ProgressOption, work: Work[Result]) -> Result:
    """Runs `work(progress, note)` and logs the notes of its result."""
    notes = _log.Notes()
    with reporting(progress, title) as report:
        result = work(report, notes)
    if isinstance(result, _HasNotes):
        notes.all(result.notes)
    return result


def evaluate(
    model: StrPath, folder: StrPath, *, progress: ProgressOption = None, **options: Unpack[EvaluateOptions]
) -> _pipit.Evaluation:
    """Runs a classifier over the labelled images of a folder: one sub-folder for each class, or files whose names begin
    with the class index and '_'.

    Options: those of Classifier, and truth=, limit=, strict=, against=PRECISION, against_model=, max_drop=POINTS.
    """
    given: dict[str, Any] = dict(options)
    against, other = given.pop("against", None), given.pop("against_model", None)
    native = _pipit.EvaluateOptions()
    if against is not None or other is not None:
        baseline = _pipit.Baseline()
        assign("evaluate", {"model": other and os.fspath(other), "precision": against}, baseline)
        native.against = baseline
    classifier = native.classifier
    assign("evaluate", given, native, classifier, classifier.load, classifier.preprocess)
    name = model_name(model)
    return _reported("evaluating", progress, lambda report, note: _pipit.evaluate(name, folder, native, report, note))


def tune(
    model: StrPath,
    images: StrPath,
    output: StrPath,
    *,
    progress: ProgressOption = None,
    **options: Unpack[TuneOptions],
) -> _pipit.TunedPlan:
    """Finds the layers to keep in floating point so that INT8 costs at most max_drop points, and writes a plan that
    keeps them to `output`.

    images: labelled, as evaluate() takes them. Options: those of Classifier, and max_drop=, confidence=, judge_by=,
    keep_as=, limit=, calibrate_limit=, strict=.
    """
    native = _pipit.TuneOptions()
    classifier = native.classifier
    assign("tune", options, native, classifier, classifier.load, classifier.preprocess)
    name = model_name(model)
    return _reported("tuning", progress, lambda report, note: _pipit.tune(name, images, output, native, report, note))


def calibrate(
    model: StrPath,
    images: Paths,
    output: StrPath,
    *,
    progress: ProgressOption = None,
    **options: Unpack[CalibrateOptions],
) -> _pipit.Calibration:
    """Runs a model in fp32 on the CPU over images, or folders of them, and writes the INT8 scales of its tensors to the
    plan `output`. The same images give the same plan; a hundred images of all kinds are a good start.

    Options: those of load(), preset=, resize=, crop=, interpolation=, mean=, std=, bgr=, ignore_exif_orientation=,
    method=, percentile=, histograms=, trt_cache=, trt_version=, ncnn_table=, per_channel_weights=, equalize=,
    bias_correction=, skip=, limit=, strict=; check=FOLDER evaluates the plan against fp32 on other images (`checked` of
    the result), with truth=, labels=, scores=, threshold=, check_limit=.
    """
    native, files = _pipit.CalibrateOptions(), _plan_files(output)
    if "plan" in options:  # also the name of a member of the structs
        raise TypeError("calibrate() got an unexpected keyword argument 'plan'; it writes `output`")
    assign("calibrate", options, native, native.range, files, native.checking, native.load, native.preprocess)
    name, listed = model_name(model), paths(images)
    return _reported(
        "calibrating", progress, lambda report, note: _pipit.calibrate(name, listed, files, native, report, note)
    )


def merge_calibrations(
    plans: Paths,
    output: StrPath,
    *,
    method: RangeMethod | None = None,
    percentile: float | None = None,
    histograms: bool | None = None,
    trt_cache: StrPath | None = None,
) -> _pipit.Calibration:
    """Merges plans of one model that were calibrated on different images with the same options: the result is that of
    one calibration on all images. method: replaces that of the plans."""
    files = _plan_files(output)
    assign("merge_calibrations", {"histograms": histograms, "trt_cache": trt_cache}, files)
    ranges = None
    if method is not None or percentile is not None:
        ranges = _pipit.RangeOptions()
        assign("merge_calibrations", {"method": method or "percentile", "percentile": percentile}, ranges)
    result = _pipit.merge_calibrations(paths(plans), files, ranges)
    _log.Notes().all(result.notes)
    return result


def diff(
    model: StrPath,
    images: Paths,
    plan: StrPath,
    *,
    progress: ProgressOption = None,
    **options: Unpack[DiffOptions],
) -> _pipit.Difference:
    """Runs a model in fp32 and in INT8 with the scales of a plan over images, or folders of them, and compares every
    layer.

    Options: those of load(), preset=, resize=, crop=, interpolation=, mean=, std=, bgr=, ignore_exif_orientation=,
    limit=, shares=, share_limit=, strict=.
    """
    native = _pipit.DiffOptions()
    assign("diff", options, native, native.load, native.preprocess)
    name, listed = model_name(model), paths(images)
    return _reported("comparing", progress, lambda report, note: _pipit.diff(name, listed, plan, native, report, note))


def prune(
    model: StrPath,
    images: StrPath,
    output: StrPath,
    *,
    progress: ProgressOption = None,
    **options: Unpack[PruneOptions],
) -> _pipit.PrunedModel:
    """Removes groups of weights of a model, fits the others, without training, and writes the result as ONNX to
    `output`; where nothing that meets the goal is faster, no file is written and `problem` says why.

    images: labelled, as evaluate() takes them. The goal is one of keep=SHARE, speedup=TIMES and max_drop=POINTS; other
    options: those of Classifier, and global_=, seconds=, judge_by=, mode=, importance=,
    rows=, group=, panel=, block=, refit=, ridge=, check=, limit=, calibrate_limit=, strict=.
    """
    native = _pipit.PruneOptions()
    classifier, goal = native.classifier, native.goal
    assign("prune", options, native, goal, classifier, classifier.load, classifier.preprocess)
    name = model_name(model)
    return _reported("pruning", progress, lambda report, note: _pipit.prune(name, images, output, native, report, note))


def bench(models: Paths, *, progress: ProgressOption = None, **options: Unpack[BenchOptions]) -> _pipit.Bench:
    """Times whole runs of models in every combination of precision=, batch=, threads= and streams=, each of which may
    be a list. Rows of a model run in turns and are compared. What goes wrong with a row is its `error`.

    Other options: those of load(), inputs=, image_bytes=, seconds=, runs=, warmup=, against=MODEL,
    max_slowdown=PERCENT, peaks=.

    >>> import pipit
    >>> found = pipit.bench("resnet20-cifar10", batch=[1, 2], threads=1, runs=3)
    >>> [row.setting for row in found.rows]
    ['fp32, batch 1, 1 thread', 'fp32, batch 2, 1 thread']
    """
    given: dict[str, Any] = dict(options)
    native = _pipit.BenchOptions()
    timing = native.timing
    for one, several in (("precision", "precisions"), ("batch", "batches")):
        if several in given:
            raise TypeError(f"bench() got an unexpected keyword argument '{several}'; {one}= may be a list")
        if isinstance(given.get(one), Sequence) and not isinstance(given[one], str):
            given[several] = given.pop(one)
    for name in ("threads", "streams"):
        given[name] = listed(given.get(name))
    inputs = given.pop("inputs", None)
    if isinstance(inputs, Mapping):
        timing.inputs = [f"{name}={os.fspath(path)}" for name, path in inputs.items()]
    elif inputs is not None:
        timing.inputs = paths(inputs)
    if given.get("against") is not None:
        given["against"] = model_name(given["against"])
    assign("bench", given, native, timing, timing.load)
    names = [model_name(model) for model in listed(models) or ()]
    return _reported("timing", progress, lambda report, note: _pipit.bench(names, native, report, note))


def compare(first: StrPath, second: StrPath, *, max_slowdown: float | None = None) -> _pipit.Comparisons:
    """Compares two files with the JSON of profiles, benches or sweeps, one document after the other, each of a process
    of its own: whether the second is slower, by more than the noise of both. A verdict takes three processes of each.

    max_slowdown: the largest one that a whole run may show, in percent; `too_slow` says whether one does.
    """
    native = _pipit.CompareOptions()
    assign("compare", {"max_slowdown": max_slowdown}, native)
    result = _pipit.compare(first, second, native, None, None)
    _log.Notes().all(result.notes)
    return result


def verify(folders: Paths, *, progress: ProgressOption = None, **options: Unpack[VerifyOptions]) -> _pipit.Verification:
    """Runs tests in ONNX's layout, folders with model.onnx and test_data_set_*/input_*.pb and output_*.pb, at or below
    `folders`. What is wrong with a test is in it.

    Options: those of load(), rtol=, atol=, norm=.
    """
    native = _pipit.VerifyOptions()
    assign("verify", options, native, native.load)
    with reporting(progress, "verifying") as report:
        return _pipit.verify(paths(folders), native, report, _log.Notes())


def quantize(
    model: StrPath,
    plan: StrPath | None,
    output: StrPath,
    *,
    progress: ProgressOption = None,
    **options: Unpack[QuantizeOptions],
) -> _pipit.QuantizedFile:
    """Writes a model with a plan's scales as standard INT8 ONNX; with precision='w8' or 'w4' and None for the plan,
    with weights in 8 or 4 bits.

    Options: those of load() that say how the model is read, precision=, group_size=, keep=, target=,
    signed_activations=, weight_bits=; images=, on which weights are rounded, with rounding=, preset=, resize=, crop=,
    interpolation=, mean=, std=, bgr=, ignore_exif_orientation=, limit=, strict=, threads=.
    """
    given: dict[str, Any] = dict(options)
    if given.get("precision") is None:
        given["precision"] = "int8"
    if given.get("images") is not None:
        given["images"] = paths(given["images"])
    native = _pipit.QuantizeOptions()
    assign("quantize", given, native, native.load, native.preprocess)
    name = model_name(model)
    return _reported(
        "quantizing",
        progress,
        lambda report, note: _pipit.quantize(name, "" if plan is None else plan, output, native, report, note),
    )


def annotate(model: StrPath, output: StrPath, **options: Unpack[AnnotateOptions]) -> _pipit.AnnotatedFile:
    """Writes a copy of an ONNX file that stores labels=FILE, the preprocessing (preset=, resize=, crop=,
    interpolation=, mean=, std=, bgr=) and the kind of its scores=. threshold= and ignore_exif_orientation= are not
    stored. Raises ArgumentError if there is nothing to store."""
    native = _pipit.AnnotateOptions()
    classifier = native.classifier
    assign("annotate", options, classifier, classifier.preprocess)
    result = _pipit.annotate(model_name(model), output, native, None, None)
    _log.Notes().all(result.notes)
    return result


def profile(
    model: StrPath | Model,
    *inputs: Any,
    runs: int = 50,
    warmup: int = 10,
    device_index: int = 0,
    floors: bool = False,
    **options: Unpack[LoadOptions],
) -> _pipit.Profile:
    """Times every layer: Model.profile() of a loaded model, or of load(model, **options).

    >>> import pipit
    >>> times = pipit.profile("resnet20-cifar10", runs=3, warmup=1, threads=1)
    >>> times.to_dict()["runs"]
    3
    """
    if isinstance(model, Model):
        if options:
            raise TypeError(
                f"profile() takes options of load() only for a model that is not loaded: {', '.join(options)}"
            )
    else:
        model = load(model, **options)
    return model.profile(*inputs, runs=runs, warmup=warmup, device=device_index, floors=floors)


def sweep_convolutions(*, progress: ProgressOption = None, **options: Unpack[ConvSweepOptions]) -> _pipit.ConvSweep:
    """Times single convolutions on random data, always the same: which of them a precision or a kernel makes faster.
    Each layer runs in turns with every base. A variant that does not run has the reason in its row.

    Options: batch=, in_channels=, out_channels=, size=, kernel= and stride= (numbers, or lists of which every
    combination is a layer), all=, sample=, seed=, precision='int8', backends='auto', bases='fp32', device=, threads=,
    seconds= of a row, results=FILE, resume=, floor=.

    >>> import pipit
    >>> found = pipit.sweep_convolutions(
    ...     batch=1, in_channels=8, out_channels=[8, 16], size=16, kernel=3, stride=1, precision="bf16", seconds=0.001
    ... )
    >>> [(row.point.out_channels, row.against[0].base) for row in found.rows]
    [(8, 'fp32'), (16, 'fp32')]
    """
    native = _pipit.ConvSweepOptions()
    lists = ("batch", "in_channels", "out_channels", "size", "kernel", "stride", "backends", "bases")
    given = _plural("sweep_convolutions", options, {"precision": "precisions"}, lists)
    assign("sweep_convolutions", given, native, native.run, native.grid)
    return _reported("sweeping", progress, lambda report, note: _pipit.sweep_convolutions(native, report, note))


def sweep_sparsity(
    model: StrPath | None = None, *, progress: ProgressOption = None, **options: Unpack[SparsitySweepOptions]
) -> _pipit.SparsitySweep:
    """Times single layers, of a model or of layers=, with all weights and with those that a mode and a share keep, in
    turns, and compares their results: what structured sparsity brings and costs.

    Options: layers='1x64x56x56:64x3x3', mode=, keep=, precision='fp32', importance=, group=, panel=, block=, refit=,
    device=, threads=, seconds= of a row, results=FILE, resume=, and of a model batch=, shapes=, dimensions=, values=,
    arrays=.

    >>> import pipit
    >>> found = pipit.sweep_sparsity(layers="1x16x8x8:16x3x3", mode="k", keep=[1, 0.5], seconds=0.001)
    >>> [row.keep for row in found.rows]
    [1.0, 0.5]
    """
    native = _pipit.SparsitySweepOptions()
    plurals = {"precision": "precisions", "mode": "modes", "keep": "keeps"}
    given = _plural("sweep_sparsity", options, plurals, ("layers",))
    if model is not None:
        given["model"] = model_name(model)
    assign("sweep_sparsity", given, native, native.run, native.load)
    return _reported("sweeping", progress, lambda report, note: _pipit.sweep_sparsity(native, report, note))


def _plural(function: str, given: Any, plurals: Mapping[str, str], lists: Sequence[str]) -> dict[str, Any]:
    """The options with lists where one value may stand for a list; `plurals`: those that the struct calls otherwise."""
    options = {}
    for name, value in given.items():
        if name in plurals.values():
            one = next(one for one, several in plurals.items() if several == name)
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'; {one}= may be a list")
        is_list = name in plurals or name in lists
        options[plurals.get(name, name)] = listed(value) if is_list else value
    return options


def models() -> _pipit.ModelList:
    """The models that have names, and which of them can be used now. Files of fetched models are checked.

    >>> import pipit
    >>> [(one.model.side, one.is_here) for one in pipit.models().models if one.model.name == "resnet20-cifar10"]
    [(32, True)]
    """
    return _pipit.list_models()


def fetch(names: str | Sequence[str]) -> _pipit.FetchResult:
    """Downloads the weights of named models, checks them, and stores the models as ONNX files in the user's cache
    folder. An existing model is kept. Raises ArgumentError for names that cannot be fetched, and Error, beginning with
    the model, if a download fails."""
    return _pipit.fetch([names] if isinstance(names, str) else [*names], _log.Notes())


def ceilings(
    *,
    device: str = "cpu",
    threads: int = 0,
    kept: bool = False,
    progress: ProgressOption = None,
) -> _pipit.Ceilings:
    """Measures how much this machine can compute and move at most, which takes some seconds, and stores that in the
    user's cache folder for profile(floors=True).

    device: 'cpu' or 'cuda', the first GPU. threads: CPU threads; 0: all that this process may use. kept: reads stored
    ceilings instead. Raises Error if the device cannot be used, the file cannot be written, or with `kept` if nothing
    is stored for this machine.
    """
    native = _pipit.CeilingsOptions()
    assign("ceilings", {"device": device, "threads": threads, "kept": kept}, native)
    return _reported("measuring", progress, lambda report, note: _pipit.measure_ceilings(native, report, note))


def machine() -> _pipit.Machine:
    """What the machine offers to pipit: CPUs, memory, GPU, libraries. Nothing is measured.

    >>> import pipit
    >>> [f.name for f in pipit.machine().findings][0]
    'pipit'
    """
    return _pipit.examine_machine()


def doctor() -> None:
    """Prints machine(), with advice."""
    for finding in machine().findings:
        print(f"{finding.name:22} {finding.value}")
        if finding.advice:
            print(f"{'':22} -> {finding.advice}")


def _plan_files(output: StrPath) -> _pipit.PlanFiles:
    files = _pipit.PlanFiles()
    files.plan = output
    return files
