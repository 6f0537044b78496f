"""Images in, labels with probabilities out."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from pipit import _log, _pipit
from pipit._errors import ArgumentError, Error
from pipit._options import absolute, classifier_options, is_listing, model_name, recipe

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from pipit._types import ClassifierOptions, StrPath


AT_ONCE = 256  # images of a list that are prepared for the library together, rounded to whole batches
STREAMED = 32  # and of a stream, whose first answers are awaited
IN_MEMORY = "image in memory"  # how messages about an image that has no path begin


def _pixels(image: Any) -> Any:
    """The pixels [H, W, 3] of an array of bytes, which may be grey."""
    import numpy

    pixels = numpy.asarray(image)
    shaped = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != numpy.uint8 or not shaped or pixels.size == 0:
        raise ArgumentError(
            f"{IN_MEMORY}: an array of {pixels.dtype} with shape {pixels.shape}; expected uint8 with "
            "[height, width, 3] (red, green, blue) or [height, width] (grey), and at least one pixel"
        )
    if pixels.ndim == 2:
        pixels = numpy.repeat(pixels[:, :, None], 3, axis=2)
    return numpy.ascontiguousarray(pixels)


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
        mean=, std=, bgr=, ignore_exif_orientation=, scores=, threshold=. Notes go to the logger "pipit". Raises what
        load() does, and Error for a model that is not an image classifier.
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
        [height, width, 3] (red, green, blue) or [height, width] (grey). Raises Error, beginning with the path, for a
        file that cannot be read as an image; UnsupportedError for another format; ArgumentError for other arrays.

        A list or tuple of these, or an array [N, height, width, 3], gives a list of answers: those of classify_all().
        Files are decoded with all threads of the model, and images run in batches of the option batch=; each gets the
        same bits as alone, unless the model mixes the samples of a batch. If an image cannot be used, raises the
        exception of the first one: it begins with the path or "image 7 in memory", and its `index` is 7.
        """
        if is_listing(images) or getattr(images, "ndim", 0) == 4:
            _check_top(top)
            return [*self._answers(images, top, self._batches(AT_ONCE), skip_errors=False)]
        native = self._taken()
        try:
            image = self._prepared(images)
            if isinstance(image, str):
                return native.classify_file(image, top)
            if isinstance(image, bytes):
                return native.classify_bytes(image, top)
            return native.classify_pixels(image, top)
        finally:
            self._free.append(native)

    def classify_all(
        self, images: Iterable[Any], top: int = 5, *, at_once: int | None = None, skip_errors: bool = False
    ) -> Iterator[list[_pipit.Prediction] | Error]:
        """The answers to any number of images, in their order, as they are computed: the next images are taken from
        `images`, which may be a generator, while the previous ones are decoded and run.

        images: as __call__() takes them, of any kinds. at_once: images that are decoded and run together; unset: a few
        batches. Twice as many are taken before the first answer. skip_errors: an image that cannot be used has its
        exception as the answer; otherwise that is raised, after the answers to the images before it. It begins with the
        path or "image 7 in memory", and its `index` is 7, counted from 0. What is wrong with the model or the device is
        raised. Leaving the loop early ends the work.

        >>> import numpy as np, pipit
        >>> classifier = pipit.Classifier("resnet20-cifar10")
        >>> pixels = (np.full((32, 32, 3), shade, np.uint8) for shade in range(100))
        >>> sum(1 for answer in classifier.classify_all(pixels, top=1))
        100
        >>> answers = [*classifier.classify_all([np.zeros((32, 32, 3), np.uint8), b"no image"], skip_errors=True)]
        >>> answers[1].index, str(answers[1])[:24]
        (1, 'image 1 in memory: not a')
        """
        if at_once is not None and at_once < 1:
            raise ArgumentError(f"at_once={at_once}: expected 1 or more")
        _check_top(top)
        return self._answers(images, top, at_once or self._batches(STREAMED), skip_errors)

    def _answers(self, images: Iterable[Any], top: int, at_once: int, skip_errors: bool) -> Iterator[Any]:
        """classify_all(). The library works in a thread of its own while this one takes and prepares images, and waits
        so that Ctrl-C works."""
        taken = iter(images)
        native = self._taken()
        run = None
        try:
            index = 0
            part = self._prepared_part(taken, at_once, skip_errors)
            if part:
                run = native.start(_usable(part), top, skip_errors)
            while run is not None:
                following = self._prepared_part(taken, at_once, skip_errors)
                found = iter(run.wait())
                run = native.start(_usable(following), top, skip_errors) if following else None
                for image in part:
                    answer = image if isinstance(image, Error) else next(found)
                    if isinstance(answer, Error):
                        answer = _numbered(answer, image, index)
                        if not skip_errors or answer.index is None:
                            raise answer
                    yield answer
                    index += 1
                part = following
        finally:
            if run is not None:
                run.stop()
            # Interrupted work may use it for a while, also work whose `run` was lost because a signal came between the
            # call of start() and the assignment.
            if not native.busy:
                self._free.append(native)

    def _prepared_part(self, images: Iterator[Any], count: int, skip_errors: bool) -> list[Any]:
        """Up to `count` images as the library takes them, and exceptions of what is no image: without skip_errors, one
        that ends the list."""
        part: list[Any] = []
        for image in islice(images, count):
            try:
                part.append(self._prepared(image))
            except Error as error:
                part.append(error)
                if not skip_errors:
                    break
        return part

    def _prepared(self, image: Any) -> Any:
        """A path as a str, the bytes of a file, or pixels."""
        if isinstance(image, (str, os.PathLike)):
            path = os.fsdecode(image)
            if "\0" in path:
                raise ArgumentError(f"{path!r}: a path has no NUL character")
            return path
        if isinstance(image, (bytes, bytearray, memoryview)):
            return bytes(image)
        if _is_pil(image):
            return self._upright(image)
        return _pixels(image)

    def _upright(self, image: Any) -> Any:
        """The pixels of an image of Pillow, which may not have decoded it yet."""
        try:
            if not self._ignore_exif:
                from PIL import ImageOps

                image = ImageOps.exif_transpose(image)
            decoded = image.convert("RGB")
        except MemoryError:
            raise
        except Exception as error:  # each decoder of Pillow has its own types
            name = getattr(image, "filename", "") or IN_MEMORY
            raise Error(f"{name}: Pillow cannot decode it: {error}") from error
        return _pixels(decoded)

    def _batches(self, images: int) -> int:
        """`images` rounded down to whole batches, at least one batch."""
        shape = self._native.model.inputs[0].shape
        batch = shape[0] if len(shape) == 4 else 1
        return batch * max(1, images // batch)

    def _taken(self) -> _pipit.Classifier:
        """One that no other thread uses until it is in `_free` again."""
        try:
            return self._free.pop()
        except IndexError:
            return self._native.copy()


def _check_top(top: int) -> None:
    if top < 1:
        raise ArgumentError(f"top is {top}; expected at least 1")


def _usable(part: list[Any]) -> list[Any]:
    return [image for image in part if not isinstance(image, Error)]


def _numbered(error: Error, image: Any, index: int) -> Error:
    """The exception with the image's index, if it is about the image."""
    message = str(error)
    if message.startswith(IN_MEMORY):
        error = type(error)(f"image {index} in memory{message.removeprefix(IN_MEMORY)}")
    elif not (isinstance(image, Error) or (isinstance(image, str) and message.startswith(image))):
        return error
    error.index = index
    return error


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
