"""INT8 scales from images that are seen in parts, in one process or in several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipit import _pipit
from pipit._errors import ArgumentError
from pipit._options import absolute, assign, model_name, paths, recipe
from pipit._progress import ProgressOption
from pipit._tools import calibrate, merge_calibrations
from pipit._types import CalibratorOptions, RangeMethod, StrPath

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory
    from typing import Unpack

    from numpy.typing import NDArray


class Calibrator:
    """A calibration that is done in parts: update() runs the model on some images, merge() adds what other calibrators
    have seen, and plan() writes the scales. The plan has the same scales as one calibrate() on all images, however they
    were spread and in whatever order. A pickle holds the histograms, so workers can return their calibrators.

    >>> import numpy as np, pipit, tempfile
    >>> images = np.random.default_rng(0).standard_normal((8, 3, 32, 32)).astype(np.float32)
    >>> first, second = pipit.Calibrator("resnet20-cifar10"), pipit.Calibrator("resnet20-cifar10")
    >>> first.update(images[:4])
    >>> second.update(images[4:])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first.merge(second).plan(folder + "/plan.json").images
    8
    """

    def __init__(self, model: StrPath, **options: Unpack[CalibratorOptions]) -> None:
        """model: the path of an ONNX file, or a name. Options: those of calibrate() about the model, the preparation of
        images and the scales. Raises TypeError and ArgumentError for options; the model is read by update()."""
        for option in options:
            if option not in CalibratorOptions.__annotations__:
                raise TypeError(f"Calibrator() got an unexpected keyword argument '{option}'")
        name = model_name(model)
        native = _pipit.CalibrateOptions()
        assign("Calibrator", options, native, native.range, native.load, native.preprocess)
        self._model, self._options = absolute(name), recipe(options)
        self._parts: list[bytes] = []
        self._arrays = 0
        self._images = 0

    def __repr__(self) -> str:
        return f"<pipit.Calibrator {self._model}: {self._images} images>"

    @property
    def images(self) -> int:
        """Images that were seen, by this calibrator and by those merged into it."""
        return self._images

    def update(self, images: Any, *, progress: ProgressOption = None) -> None:
        """Runs the model in fp32 on the CPU over images, and adds up the histograms of its tensors.

        images: paths of images, or folders of them; or the model's input as it is, without preparation: an array
        [samples, ...], a list of arrays of one sample each, or for several inputs a dict of arrays by name. A call
        reads and compiles the model, so give it many images. Raises what calibrate() does; then nothing is added.
        """
        with _folder() as folder:
            plan, written = os.path.join(folder, "plan.json"), 0
            if _are_paths(images):
                given = paths(images)
            else:
                given = [os.path.join(folder, "samples")]
                written = _write_samples(images, given[0], self._arrays)
            found = calibrate(self._model, given, plan, progress=progress, **self._options)
            self._parts.append(_packed(plan))
        self._arrays += written
        self._images += found.images

    def merge(self, *others: Calibrator) -> Calibrator:
        """Adds what other calibrators of the same model and options have seen, and returns this one. That they are of
        the same model, and share no image, is checked by plan()."""
        for other in others:
            if other is self:
                raise ArgumentError("a calibrator cannot be merged into itself: its images would count twice")
        for other in others:
            self._parts += other._parts
            self._images += other._images
        return self

    def plan(
        self,
        output: StrPath,
        *,
        method: RangeMethod | None = None,
        percentile: float | None = None,
        histograms: bool | None = None,
        trt_cache: StrPath | None = None,
    ) -> _pipit.Calibration:
        """Writes the plan of all images to `output`, as calibrate() does, and returns what was found. May be called
        again, also after more images. method: instead of that of the calibrator. Raises Error for calibrators of
        different models or options, for an image (or a copy of it) in two parts, and for a file that cannot be
        written."""
        if not self._parts:
            raise ArgumentError("no images were given: call update() or merge() first")
        import zlib

        with _folder() as folder:
            plans = [os.path.join(folder, f"{index}.json") for index in range(len(self._parts))]
            for name, part in zip(plans, self._parts, strict=True):
                with open(name, "wb") as file:
                    file.write(zlib.decompress(part))
            merged = os.path.join(folder, "merged.json")
            merge_calibrations(plans, merged)
            self._parts = [_packed(merged)]
            return merge_calibrations(
                merged,
                output,
                method=method,
                percentile=percentile,
                histograms=histograms,
                trt_cache=trt_cache,
            )


def _packed(plan: str) -> bytes:
    import zlib

    with open(plan, "rb") as file:
        return zlib.compress(file.read(), 1)


def _are_paths(images: Any) -> bool:
    if isinstance(images, (str, os.PathLike)):
        return True
    return isinstance(images, Sequence) and bool(images) and all(isinstance(p, (str, os.PathLike)) for p in images)


def _write_samples(samples: Any, folder: str, first: int) -> int:
    """Writes a file for each sample, and returns their number."""
    import numpy

    os.mkdir(folder)
    count = 0
    for count, sample in enumerate(_samples(samples), start=1):
        name = os.path.join(folder, f"{first + count - 1:09}")
        if isinstance(sample, dict):
            numpy.savez(name, **sample)
        else:
            numpy.save(name, sample)
    if count == 0:
        raise ArgumentError("there is no sample: expected paths, or an array with one in each row")
    return count


def _samples(samples: Any) -> Iterator[Any]:
    import numpy

    def rows(array: Any) -> NDArray[Any]:
        found = numpy.asarray(array)
        if found.ndim == 0 or found.dtype == object:
            raise ArgumentError(
                f"samples are of type {type(array).__name__}; expected paths, or an array with a sample in each row"
            )
        return found

    if not isinstance(samples, Mapping):
        many: Iterable[Any] = samples if isinstance(samples, (list, tuple)) else rows(samples)
        for sample in many:
            yield rows(sample)
        return
    arrays = {name: rows(array) for name, array in samples.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    if len({*counts.values()}) > 1:
        raise ArgumentError(f"the inputs have different numbers of samples: {counts}")
    for index in range(next(iter(counts.values()), 0)):
        yield {name: array[index] for name, array in arrays.items()}


def _folder() -> TemporaryDirectory[str]:
    import tempfile

    return tempfile.TemporaryDirectory(prefix="pipit-")
