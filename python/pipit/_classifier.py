"""Images in, labels with probabilities out."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from pipit import _log, _pipit
from pipit._errors import ArgumentError, Error
from pipit._options import absolute, classifier_options, is_listing, model_name, recipe

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from pipit._types import ClassifierOptions, StrPath


AT_ONCE = 256  # images of a list in one call of the library, rounded to whole batches
STREAMED = 32  # and of a stream, whose first answers are awaited


def _pixels(image: Any) -> Any:
    """The pixels [H, W, 3] of an array of bytes, which may be grey."""
    import numpy

    pixels = numpy.asarray(image)
    if pixels.dtype != numpy.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ArgumentError(
            f"an image is an array of {pixels.dtype} with shape {pixels.shape}; expected uint8 with [height, width, 3] "
            "(red, green, blue) or [height, width] (grey)"
        )
    if pixels.ndim == 2:
        pixels = numpy.repeat(pixels[:, :, None], 3, axis=2)
    return numpy.ascontiguousarray(pixels)


def _is_path(image: object) -> bool:
    return isinstance(image, (str, os.PathLike))


def _is_encoded(image: object) -> bool:
    return isinstance(image, (bytes, bytearray, memoryview))


def _is_pil(image: object) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


class Classifier:
    """An image classifier. Any number of threads may call one at once; a pickle stores how it was loaded.

    >>> import numpy as np, pipit
    >>> classifier = pipit.Classifier("resnet20-cifar10")
    >>> classifier.labels[:2], classifier.scores
    (('airplane', 'automobile'), 'logits')
    >>> best = classifier(np.zeros((32, 32, 3), np.uint8), top=1)[0]
    >>> 0 < best.probability <= 1
    True
    """

    def __init__(
        self,
        model: StrPath,
        *,
        labels: StrPath | Sequence[str] | None = None,
        **options: Unpack[ClassifierOptions],
    ) -> None:
        """Loads a model with one input [N, 3, H, W] or the like and an output [N, classes].

        model: the path of an ONNX file, or a name that `pipit models` lists. labels: the classes' names, or a file with
        them; unset: those that the model stores. Options: those of load(), preset=, resize=, crop=, interpolation=,
        mean=, std=, bgr=, scores=, threshold=. Notes go to the logger "pipit". Raises what load() does, and Error for a
        model that is not an image classifier.
        """
        self._ignore_exif = bool(options.get("ignore_exif_orientation"))
        name = model_name(model)
        names = labels if labels is None or isinstance(labels, (str, os.PathLike)) else [*labels]
        self._recipe = (absolute(name), recipe({**options, "labels": names}))
        if isinstance(names, list):
            self._native = _with_names(name, names, options)
        else:
            native_options = classifier_options("Classifier", {**options, "labels": names})
            self._native = _pipit.make_classifier(name, native_options)
        self._free = deque([self._native])
        for note in self._native.notes:
            _log.note(note)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._recipe

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every class; empty if neither the model nor the options have names."""
        return tuple(self._native.labels)

    @property
    def classes(self) -> int:
        """The number of classes; 2 for a model with a single score, yes or no."""
        return self._native.classes

    @property
    def scores(self) -> str:
        """The kind of the model's scores: 'logits', 'softmax', 'log-softmax', 'sigmoid' or 'sigmoid-logits'."""
        return self._native.scores

    @property
    def preprocessing(self) -> str:
        """How images are prepared, in words."""
        return self._native.preprocessing

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, one sentence each."""
        return tuple(self._native.notes)

    @overload
    def __call__(self, images: list[Any] | tuple[Any, ...], top: int = 5) -> list[list[_pipit.Prediction]]: ...

    @overload
    def __call__(self, images: StrPath | bytes | NDArray[Any] | Any, top: int = 5) -> list[_pipit.Prediction]: ...

    def __call__(self, images: Any, top: int = 5) -> Any:
        """The `top` most probable classes, best first.

        images: the path of a JPEG, PNG, BMP or WebP file, the bytes of one, a Pillow image, or a uint8 array
        [height, width, 3] (red, green, blue) or [height, width] (grey). A list or tuple of these, or an array
        [N, height, width, 3], gives a list of answers. Files of a list are decoded with all threads of the model, and
        images run in batches of the option batch=; each gets the same bits as alone, unless the model mixes the samples
        of a batch. Raises Error, beginning with the path, for a file that cannot be read as an image; UnsupportedError
        for another format; ArgumentError for other arrays.
        """
        if is_listing(images) or getattr(images, "ndim", 0) == 4:
            return self._all(images, top)
        with self._own() as native:
            return self._one(native, images, top)

    def _one(self, native: _pipit.Classifier, image: Any, top: int) -> list[_pipit.Prediction]:
        if _is_path(image):
            return native.classify_file(image, top)
        if _is_encoded(image):
            return native.classify_bytes(bytes(image), top)
        return native.classify_pixels(self._upright(image), top)

    def _all(self, images: Any, top: int) -> list[list[_pipit.Prediction]]:
        """A few batches per call, so that Ctrl-C works in between and Pillow images are not all converted at once."""
        answers: list[list[_pipit.Prediction]] = []
        with self._own() as native:
            step = self._batches(AT_ONCE)
            for start in range(0, len(images), step):
                some = images[start : start + step]
                if all(map(_is_path, some)):
                    answers += native.classify_files(list(some), top)
                elif all(map(_is_encoded, some)):
                    answers += native.classify_all_bytes(list(map(bytes, some)), top)
                elif any(_is_path(image) or _is_encoded(image) for image in some):
                    answers += [self._one(native, image, top) for image in some]
                else:
                    answers += native.classify_all_pixels(list(map(self._upright, some)), top)
        return answers

    def classify_all(
        self, images: Iterable[Any], top: int = 5, *, at_once: int | None = None, skip_errors: bool = False
    ) -> Iterator[list[_pipit.Prediction] | Error]:
        """The answers to any number of images, in their order, as they are computed: the next images are taken from
        `images`, which may be a generator, while the previous ones are decoded and run.

        images: as __call__() takes them. at_once: images that are decoded and run together, and so the number that is
        taken before the first answer; unset: a few batches. skip_errors: an image that cannot be used has its exception
        as the answer; otherwise that is raised, after the answers to the images before it. Leaving the loop early ends
        the work.

        >>> import numpy as np, pipit
        >>> classifier = pipit.Classifier("resnet20-cifar10")
        >>> pixels = (np.full((32, 32, 3), shade, np.uint8) for shade in range(100))
        >>> sum(1 for answer in classifier.classify_all(pixels, top=1))
        100
        """
        if at_once is not None and at_once < 1:
            raise ArgumentError(f"at_once={at_once}: expected 1 or more")
        return self._streamed(images, top, at_once or self._batches(STREAMED), skip_errors)

    def _streamed(
        self, images: Iterable[Any], top: int, at_once: int, skip_errors: bool
    ) -> Iterator[list[_pipit.Prediction] | Error]:
        from concurrent.futures import ThreadPoolExecutor

        taken = iter(images)
        with ThreadPoolExecutor(1, "pipit.classify_all") as pool:
            under_way = None
            while under_way is not None or at_once:
                some = [*islice(taken, at_once)] if at_once else []
                next_way = pool.submit(self._answers, some, top, skip_errors) if some else None
                if len(some) < at_once:
                    at_once = 0
                if under_way is not None:
                    answers, error = under_way.result()
                    yield from answers
                    if error is not None:
                        raise error
                under_way = next_way

    def _answers(
        self, images: list[Any], top: int, skip_errors: bool
    ) -> tuple[list[list[_pipit.Prediction] | Error], Error | None]:
        """The answers, and the exception that ends them."""
        with suppress(Error):  # the rule: one by one only where an image cannot be used
            return [*self._all(images, top)], None
        answers: list[list[_pipit.Prediction] | Error] = []
        for image in images:
            try:
                answers += self._all([image], top)
            except Error as error:
                if not skip_errors:
                    return answers, error
                answers.append(error)
        return answers, None

    def _batches(self, images: int) -> int:
        """`images` rounded down to whole batches, at least one batch."""
        shape = self._native.model.inputs[0].shape
        batch = shape[0] if len(shape) == 4 else 1
        return batch * max(1, images // batch)

    @contextmanager
    def _own(self) -> Iterator[_pipit.Classifier]:
        """A copy that no other thread uses meanwhile."""
        try:
            native = self._free.pop()
        except IndexError:
            native = self._native.copy()
        try:
            yield native
        finally:
            self._free.append(native)

    def _upright(self, image: Any) -> Any:
        """The pixels of an array or of an image of Pillow."""
        if _is_pil(image):
            if not self._ignore_exif:
                from PIL import ImageOps

                image = ImageOps.exif_transpose(image)
            image = image.convert("RGB")
        return _pixels(image)


def _again(model: str, options: dict[str, Any]) -> Classifier:
    return Classifier(model, **options)


def _with_names(model: str, names: list[str], options: ClassifierOptions) -> _pipit.Classifier:
    """A classifier with these labels, which the library reads from a file."""
    import json
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(names, file)
        file.flush()
        return _pipit.make_classifier(model, classifier_options("Classifier", {**options, "labels": file.name}))
