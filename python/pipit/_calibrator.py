"""Calibration in parts, for several processes or machines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pipit import _log, _pipit
from pipit._errors import ArgumentError, Error
from pipit._options import absolute, assign, model_name, paths, recipe
from pipit._progress import ProgressOption, Report, reporting
from pipit._tools import merge_calibrations

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from pipit._types import CalibratorOptions, RangeMethod, StrPath

AT_ONCE = 64  # files in memory at once


class Calibrator:
    """A calibration in parts: each process counts the values of its own images, and the parts merge in any order.

    The plan has the same bytes as that of calibrate() on all images with these names. A pickle has what was counted,
    about 100 KB; another process can merge it or go on. Only one thread at a time may use a Calibrator.

    >>> import pipit
    >>> header = "424d3a0000000000000036000000280000000100000001000000010018000000000004" + "00" * 19
    >>> photo = bytes.fromhex(header + "2040c000")  # a BMP file of one pixel
    >>> one, other = pipit.Calibrator("resnet20-cifar10"), pipit.Calibrator("resnet20-cifar10")
    >>> one.update({"a.bmp": photo})
    >>> other.update({"b.bmp": photo, "damaged.bmp": photo[:20]})
    >>> one.merge(other).images, [str(image.path) for image in one.excluded]
    (2, ['damaged.bmp'])
    """

    def __init__(self, model: StrPath, *, root: StrPath | None = None, **options: Unpack[CalibratorOptions]) -> None:
        """Loads a model to run it in fp32 on the CPU.

        root: the folder that the plan's names of image files are relative to; unset: they are absolute paths. A plan
        has the bytes of calibrate(model, FOLDER) with root=FOLDER.
        Options: those of load(), preset=, resize=, crop=, interpolation=, mean=, std=, bgr=, ignore_exif_orientation=,
        method=, percentile=, per_channel_weights=, equalize=, strict=. Raises what calibrate() does, and ArgumentError
        for bias_correction=, which needs all images at once.
        """
        from pipit import _types

        for option in options:
            if option not in _types.CalibratorOptions.__annotations__:
                raise TypeError(f"Calibrator() got an unexpected keyword argument '{option}'")
        name = model_name(model)
        self._set(name, root, {**options}, b"")
        for note in self._made_with(name):
            _log.note(note)

    def _set(self, model: str, root: StrPath | None, options: dict[str, Any], part: bytes) -> None:
        self._recipe = (absolute(model), root if root is None else os.path.abspath(root), recipe(options))
        self._native: _pipit.Calibrator | None = None
        self._part = part  # what to begin with
        self._copies: dict[str, int] = {}  # of samples that are arrays

    def __reduce__(self) -> tuple[Any, ...]:
        import zlib

        return _again, (*self._recipe, zlib.compress(self.part()))

    def __repr__(self) -> str:
        return f"<pipit.Calibrator {self._recipe[0]}: {self.images} images>"

    def update(self, images: Any, *, progress: ProgressOption = None) -> None:
        """Runs the model over images and counts the values of its tensors.

        images: paths of images, or folders of them; a dict with the bytes of image files by the names that the plan
        gets; or the model's input as it is, without preparation: an array [samples, ...], a list of arrays of one
        sample each, or for several inputs a dict of arrays by name. An image that cannot be decoded is left out and is
        in `excluded`; with strict=True it raises Error. Raises Error, and counts nothing, for a name that was counted
        before, and Error for a file that cannot be opened. After Ctrl-C or another exception in the middle all other
        calls raise Error.
        """
        total, named = self._named(images)
        done = 0
        with reporting(progress, "calibrating") as report:
            for some in _chunks(named):
                names, files = [os.fsencode(name) for name, _ in some], [file for _, file in some]
                self._made().update(names, files, report and _after(done, total, report))
                done += len(some)

    def merge(self, *others: Calibrator | bytes) -> Calibrator:
        """Adds what other Calibrators, or their part(), counted, and returns this one. Raises Error, and does not add
        the one that is at fault, if model or options differ or an image is in both."""
        if any(other is self for other in others):
            raise ArgumentError("a calibrator cannot be merged into itself: its images would count twice")
        for other in others:
            self._made().merge(other.part() if isinstance(other, Calibrator) else other)
        return self

    def part(self) -> bytes:
        """All that was counted, for merge()."""
        return self._part if self._native is None else self._native.part()

    def plan(
        self,
        output: StrPath,
        *,
        method: RangeMethod | None = None,
        percentile: float | None = None,
        histograms: bool | None = None,
        trt_cache: StrPath | None = None,
    ) -> _pipit.Calibration:
        """Sets the scales and writes the plan. May be called again, also after more images. Raises Error if there is no
        image.

        method, percentile: instead of the Calibrator's. histograms, trt_cache: as in calibrate().
        """
        if method is not None or percentile is not None:
            import tempfile

            with tempfile.TemporaryDirectory(prefix="pipit-") as folder:
                own = os.path.join(folder, "plan.json")
                self._write(own, None, None)
                return merge_calibrations(
                    own, output, method=method, percentile=percentile, histograms=histograms, trt_cache=trt_cache
                )
        result = self._write(output, histograms, trt_cache)
        _log.Notes().all(result.notes)
        return result

    def _write(self, output: StrPath, histograms: bool | None, trt_cache: StrPath | None) -> _pipit.Calibration:
        files = _pipit.PlanFiles()
        files.plan = output
        assign("plan", {"histograms": histograms, "trt_cache": trt_cache}, files)
        return self._made().write(files)

    @property
    def images(self) -> int:
        """Images that count."""
        return self._made().images

    @property
    def excluded(self) -> list[_pipit.ExcludedImage]:
        """Images that could not be used, by name, and why."""
        return self._made().excluded

    def _made(self) -> _pipit.Calibrator:
        """A pickle that is only merged into another Calibrator needs no model."""
        if self._native is None:
            self._made_with(self._recipe[0])
        assert self._native is not None
        return self._native

    def _made_with(self, model: str) -> list[str]:
        native, notes = _pipit.CalibrateOptions(), list[str]()
        assign("Calibrator", self._recipe[2], native, native.range, native.load, native.preprocess)
        made = _pipit.make_calibrator(model, native, notes.append)
        if self._part:
            made.merge(self._part)
        self._native, self._part = made, b""
        return notes

    def _named(self, images: Any) -> tuple[int, Iterable[tuple[str, bytes]]]:
        """The number of images, and an iterator over names and contents that reads each file when it is reached."""
        if isinstance(images, Mapping) and all(
            isinstance(file, (bytes, bytearray, memoryview)) for file in images.values()
        ):
            return len(images), ((name, bytes(file)) for name, file in images.items())
        if _are_paths(images):
            files = [file for path in paths(images) for file in _files(path)]
            return len(files), ((self.name_of(file), _content(file)) for file in files)
        samples = [*_samples(images)]
        return len(samples), map(self._sample, samples)

    def _sample(self, sample: Any) -> tuple[str, bytes]:
        """Named by its content; copies are counted."""
        import hashlib
        import io

        import numpy

        file = io.BytesIO()
        if isinstance(sample, dict):
            numpy.savez(file, **sample)
        else:
            numpy.save(file, sample)
        name = hashlib.blake2b(file.getvalue(), digest_size=16).hexdigest()
        self._copies[name] = copy = self._copies.get(name, 0) + 1
        end = ".npz" if isinstance(sample, dict) else ".npy"
        return f"{name}{end}" if copy == 1 else f"{name}-{copy}{end}", file.getvalue()

    def name_of(self, path: StrPath) -> str:
        """What the plan calls a file. Raises ArgumentError if it is not below `root`."""
        root, whole = self._recipe[1], os.path.abspath(path)
        if root is None:
            return whole
        below = os.path.relpath(whole, root)
        if below.split(os.sep)[0] == os.pardir:
            raise ArgumentError(f"{os.fspath(path)!r} is not below root={root!r}, which names are relative to")
        return below


def _are_paths(images: Any) -> bool:
    if isinstance(images, (str, os.PathLike)):
        return True
    return isinstance(images, Sequence) and bool(images) and all(isinstance(p, (str, os.PathLike)) for p in images)


def _content(path: StrPath) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Error(f"{os.fspath(path)}: cannot be read: {error.strerror}") from error


def _files(path: StrPath) -> list[str]:
    """The file, or the images below a folder; where there are none, the arrays."""
    if not os.path.isdir(path):
        return [os.fspath(path)]
    found: dict[bool, list[str]] = {True: [], False: []}
    entered: set[str] = set()  # links may lead around
    for folder, folders, names in os.walk(path, followlinks=True):
        if (place := os.path.realpath(folder)) in entered:
            folders.clear()
            continue
        entered.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = os.path.join(folder, name)
            if name.startswith(".") or not os.path.isfile(file):
                continue
            if name.endswith((".npy", ".npz")):
                found[False].append(file)
            elif _is_image(file):
                found[True].append(file)
    if not (files := found[True] or found[False]):
        raise Error(f"{os.fspath(path)}: there are no images")
    return files


def _is_image(path: str) -> bool:
    """Whether a file begins as a JPEG, PNG, BMP or WebP file."""
    with suppress(OSError), open(path, "rb") as file:
        start = file.read(12)
        return start.startswith((b"\xff\xd8", b"\x89PNG", b"BM")) or (start[:4], start[8:]) == (b"RIFF", b"WEBP")
    return False


def _samples(samples: Any) -> Iterator[Any]:
    import numpy

    def rows(array: Any) -> NDArray[Any]:
        found = numpy.asarray(array)
        if found.ndim == 0 or found.dtype == object:
            raise ArgumentError(
                f"samples are of type {type(array).__name__}; expected paths, a dict of encoded images, or "
                "an array with a sample in each row"
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


def _after(before: int, total: int, report: Report) -> Report:
    """Reports a part of the work as part of all."""
    return lambda stage, done, _, found: report(stage, before + done, total, found)


def _chunks(images: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    some: list[tuple[str, bytes]] = []
    for image in images:
        some.append(image)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _again(model: str, root: str | None, options: dict[str, Any], part: bytes) -> Calibrator:
    import zlib

    calibrator = Calibrator.__new__(Calibrator)
    calibrator._set(model, root, options, zlib.decompress(part))
    return calibrator
