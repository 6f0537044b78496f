"""Ray Data: many actors classify, evaluate and calibrate (docs/distributed.md). Needs `ray[data]`.

The columns are those of ray.data.read_binary_files(PATHS, include_paths=True): 'bytes' has encoded images and 'path'
names them. Another image column may have paths, or pixels as of ray.data.read_images().
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

try:
    import ray
    from ray.data import ActorPoolStrategy, Dataset
    from ray.data.aggregate import AggregateFnV2
except ImportError as error:
    raise ImportError(f"pipit.ray needs Ray: pip install 'ray[data]' ({error})") from error

from pipit._calibrator import Calibrator
from pipit._classifier import Classifier
from pipit._errors import ArgumentError, Error
from pipit._options import absolute, model_name, recipe
from pipit._pipit import share_of
from pipit._types import CalibratorOptions, ClassifierOptions, StrPath

if TYPE_CHECKING:
    from typing import Unpack

    from pipit._pipit import Calibration, Share

Damaged = Literal["raise", "name"]
Batch = dict[str, Any]

ANSWERS = ("class", "class_label", "probability", "error")
TOGETHER = 32  # parts of a calibration that are kept before they are merged


def _threads() -> int:
    """The number of CPUs that Ray assigned to this actor or task, at least 1."""
    return max(1, math.floor(_assigned("CPU", 1)))


def _assigned(resource: str, otherwise: float) -> float:
    """What this actor or task has."""
    try:
        return float(ray.get_runtime_context().get_assigned_resources().get(resource, otherwise))
    except AssertionError:  # outside of both
        return otherwise


def _placed(options: dict[str, Any]) -> dict[str, Any]:
    """Options that say where the model runs, as the actor's resources say; those that are given stay."""
    placed = dict(options)
    if placed.get("threads") is None:
        placed["threads"] = _threads()
    gpus = _assigned("GPU", 0)
    if gpus > 1:
        raise ArgumentError(f"num_gpus={gpus:g}: an actor uses one GPU; start more actors, each with num_gpus=1")
    if gpus > 0 and placed.get("device") is None:
        placed["device"] = "cuda"  # Ray shows an actor only the GPUs that it may use
    return placed


class Predictor:
    """A callable class for Dataset.map_batches(): each actor loads the model, decodes images and classifies them.

    Run it with `compute=ray.data.ActorPoolStrategy(size=n)`, `num_cpus=` and `num_gpus=`: the model and the decoders
    get num_cpus threads, and a GPU runs the model if num_gpus is not 0. It adds the columns 'class',
    'class_label', 'probability' (for top > 1 arrays [top], best first) and 'error', and leaves out the images.
    """

    def __init__(
        self,
        model: StrPath,
        *,
        column: str = "bytes",
        top: int = 1,
        damaged: Damaged = "raise",
        **options: Unpack[ClassifierOptions],
    ) -> None:
        """Loads the model, a name or a path that is valid on all machines.

        column: has the images. damaged: whether an image that cannot be decoded raises Error, which ends the work, or
        is named: 'error' then says why, 'class' is -1, 'class_label' is '' and 'probability' is 0. Options: those of
        Classifier, where batch= says how many images run together.
        """
        if damaged not in ("raise", "name"):
            raise ArgumentError(f"damaged={damaged!r}: expected 'raise' or 'name'")
        self._column, self._damaged = column, damaged
        self._classifier = Classifier(model, **_placed({**options}))
        self._top = min(top, self._classifier.classes)

    def __call__(self, batch: Batch) -> Batch:
        import numpy

        if self._column not in batch:
            raise ArgumentError(f"no column {self._column!r} with images; there are {', '.join(batch)}")
        for name in ANSWERS:
            if name in batch:
                raise ArgumentError(f"the column {name!r} would be replaced; rename it")
        images = [image if isinstance(image, (bytes, str)) else numpy.asarray(image) for image in batch[self._column]]
        nothing = numpy.full(self._top, -1), [""] * self._top, numpy.zeros(self._top)
        rows: list[Any] = []
        errors: list[str] = []
        found = self._classifier.classify_all(images, self._top, at_once=max(1, len(images)), skip_errors=True)
        for row, answer in enumerate(found):
            if not isinstance(answer, Error):
                errors.append("")
                rows.append(tuple(zip(*((p.index, p.label, p.probability) for p in answer), strict=True)))
                continue
            message = str(answer)
            if not isinstance(images[row], str):
                place = batch["path"][row] if "path" in batch else f"image {row} of a batch"
                message = f"{place}{message.removeprefix(f'image {row} in memory')}"
            if self._damaged == "raise":
                raise type(answer)(message)
            errors.append(message)
            rows.append(nothing)
        shape = (len(rows),) if self._top == 1 else (len(rows), self._top)
        kinds = ("i8", "U", "f4")
        columns = [numpy.array([row[i] for row in rows], kind).reshape(shape) for i, kind in enumerate(kinds)]
        kept = {name: values for name, values in batch.items() if name != self._column}
        return {**kept, **dict(zip(ANSWERS, [*columns, numpy.array(errors, "U")], strict=True))}


def classify(
    dataset: Dataset,
    model: StrPath,
    *,
    actors: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_size: int = 256,
    column: str = "bytes",
    top: int = 1,
    damaged: Damaged = "raise",
    **options: Unpack[ClassifierOptions],
) -> Dataset:
    """A dataset with the answers of Predictor beside the other columns; it is computed when it is read.

    actors: how many, or at least and at most how many. num_cpus, num_gpus: of each. batch_size: images that an actor
    gets at a time; batch= of the options: images that the model runs together. Ray repeats what a machine that is lost
    had not finished, and each image has one answer.
    """
    pool = ActorPoolStrategy(size=actors) if isinstance(actors, int) else ActorPoolStrategy(None, *actors)
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=(absolute(model_name(model)),),
        fn_constructor_kwargs={"column": column, "top": top, "damaged": damaged, **recipe({**options})},
        compute=pool,
        batch_size=batch_size,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )


@dataclass(frozen=True)
class Evaluation:
    """What evaluate() found."""

    right: Share
    """Images whose most probable class is theirs (top-1)."""
    top5: Share
    """Images whose class is among the five most probable."""
    excluded: list[tuple[str, str]]
    """Images that could not be used: the path, '' without a column 'path', and why."""


class _Judge(Predictor):
    """Counts what is right: one row for each batch."""

    def __init__(self, model: StrPath, label: str, **options: Any) -> None:
        super().__init__(model, top=5, **options)
        self._label = label

    def __call__(self, batch: Batch) -> Batch:
        import numpy

        if self._label not in batch:
            raise ArgumentError(f"no column {self._label!r} with labels; there are {', '.join(batch)}")
        wanted = [self._class(label) for label in batch[self._label]]
        rows = super().__call__({name: batch[name] for name in (self._column, "path") if name in batch})
        errors = [str(error) for error in rows["error"]]
        found = rows["class"].reshape(len(wanted), -1)
        right = found == numpy.reshape(wanted, (-1, 1))
        paths = rows.get("path", [""] * len(errors))
        excluded = [[str(path), error] for path, error in zip(paths, errors, strict=True) if error]
        import json

        counts = {
            "images": errors.count(""),
            "right": int(right[:, :1].any(axis=1).sum()),
            "top5": int(right.any(axis=1).sum()),
        }
        return {**{name: [count] for name, count in counts.items()}, "excluded": [json.dumps(excluded)]}

    def _class(self, label: Any) -> int:
        """Of the class's index or name."""
        if isinstance(label, str):
            names = self._classifier.labels
            if label not in names:
                raise ArgumentError(f"label {label!r} is no class of the model; it has {', '.join(names[:10])}, ...")
            return names.index(label)
        if not 0 <= int(label) < self._classifier.classes:
            raise ArgumentError(f"label {label} is no class of the model; it has {self._classifier.classes}")
        return int(label)


def evaluate(
    dataset: Dataset,
    model: StrPath,
    *,
    label: str = "label",
    actors: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_size: int = 256,
    column: str = "bytes",
    damaged: Damaged = "name",
    **options: Unpack[ClassifierOptions],
) -> Evaluation:
    """Classifies labelled images and counts right answers, as pipit.evaluate() does for a folder.

    label: the column with the index or the name of each image's class. column: the images, as bytes or as paths. Other
    arguments: as in classify(); with damaged='name' images that cannot be decoded are excluded. Raises Error without an
    image that can be used.
    """
    import json

    pool = ActorPoolStrategy(size=actors) if isinstance(actors, int) else ActorPoolStrategy(None, *actors)
    counts = dataset.map_batches(
        _Judge,
        fn_constructor_args=(absolute(model_name(model)), label),
        fn_constructor_kwargs={"column": column, "damaged": damaged, **recipe({**options})},
        compute=pool,
        batch_size=batch_size,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
    images = right = top5 = 0
    excluded: list[tuple[str, str]] = []
    for row in counts.iter_rows():
        images, right, top5 = images + row["images"], right + row["right"], top5 + row["top5"]
        excluded += [(path, error) for path, error in json.loads(row["excluded"])]
    return Evaluation(share_of(right, images), share_of(top5, images), sorted(excluded))


class PartialCalibration(AggregateFnV2[bytes, bytes]):
    """A calibration as an aggregation: `part` of Dataset.aggregate() has what Calibrator.merge() takes, compressed.

    calibrate() does all of it.
    """

    def __init__(
        self,
        model: StrPath,
        *,
        column: str = "bytes",
        name: str = "path",
        root: StrPath | None = None,
        **options: Unpack[CalibratorOptions],
    ) -> None:
        """column: the encoded images. name, root, options: as in calibrate()."""
        self._column, self._name = column, name
        self._model, self._root, self._options = absolute(model_name(model)), root, recipe({**options})
        super().__init__("part", bytes, on=None, ignore_nulls=False)

    def aggregate_block(self, block: Any) -> bytes:
        """Runs the model over the images of a block."""
        from ray.data.block import BlockAccessor

        columns = BlockAccessor.for_block(block).to_numpy([self._column, self._name])
        calibrator = self._calibrator()
        named: dict[str, bytes] = {}
        for path, image in zip(columns[self._name], columns[self._column], strict=True):
            name = str(path) if self._root is None else calibrator.name_of(str(path))
            if name in named:
                raise Error(f"{name}: two rows have this name; images need different names")
            named[name] = image
        calibrator.update(named)
        return _packed([calibrator.part()])

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        """Keeps both, and merges them when there are many."""
        parts = [*_unpacked(current_accumulator), *_unpacked(new)]
        if len(parts) > TOGETHER:
            calibrator = self._calibrator()
            for part in parts:
                calibrator.merge(part)
            parts = [calibrator.part()]
        return _packed(parts)

    def _calibrator(self) -> Calibrator:
        return Calibrator(self._model, root=self._root, **{"threads": _threads(), **self._options})


def _packed(parts: Sequence[bytes]) -> bytes:
    import pickle
    import zlib

    return pickle.dumps([zlib.compress(part) for part in parts])


def _unpacked(parts: bytes) -> list[bytes]:
    import pickle
    import zlib

    return [zlib.decompress(part) for part in pickle.loads(parts)] if parts else []


def calibrate(
    dataset: Dataset,
    model: StrPath,
    output: StrPath,
    *,
    column: str = "bytes",
    name: str = "path",
    root: StrPath | None = None,
    histograms: bool | None = None,
    trt_cache: StrPath | None = None,
    **options: Unpack[CalibratorOptions],
) -> Calibration:
    """Calibrates on all images of a dataset and writes the plan on this machine.

    column: the encoded images. name: the column that names each image, as the plan then does; root: the folder that
    these names are relative to. The plan has the same bytes as that of one process over these images:
    pipit.calibrate(model, FOLDER) with root=FOLDER. histograms, trt_cache, options: as in Calibrator. Raises Error if
    two rows have one name, if no image can be used and, with strict=True, for one that cannot.
    """
    aggregation = PartialCalibration(model, column=column, name=name, root=root, **options)
    calibrator = Calibrator(model, root=root, **options)
    found = dataset.aggregate(aggregation)
    for part in _unpacked(found["part"] if found else b""):
        calibrator.merge(part)
    return calibrator.plan(output, histograms=histograms, trt_cache=trt_cache)


__all__ = ["Evaluation", "PartialCalibration", "Predictor", "calibrate", "classify", "evaluate"]
