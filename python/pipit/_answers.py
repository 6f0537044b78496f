"""Answers about many images of which some cannot be used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipit._errors import Error

if TYPE_CHECKING:
    from pipit._classifier import Classifier
    from pipit._pipit import Prediction


def answers(classifier: Classifier, images: Sequence[Any], top: int, first: int = 0) -> list[list[Prediction] | Error]:
    """What the classifier says about each image, or the Error that says what is wrong with it.

    first: the index of images[0] in messages. What is wrong with the model, the device or the arguments is raised.

    >>> import numpy as np, pipit
    >>> classifier = pipit.Classifier("resnet20-cifar10")
    >>> found = answers(classifier, [np.zeros((32, 32, 3), np.uint8), b"no image"], top=1)
    >>> [type(one).__name__ for one in found], str(found[1])[:24]
    (['list', 'Error'], 'image 1 in memory: not a')
    """
    if not len(images):
        return []
    try:
        return [*classifier(list(images), top)]
    except Error as error:
        if len(images) > 1:  # the rest of each half still runs in batches
            half = len(images) // 2
            return answers(classifier, images[:half], top, first) + answers(
                classifier, images[half:], top, first + half
            )
        name, message = called(images[0], 0), str(error)
        if not message.startswith(name):
            raise
        return [type(error)(called(images[0], first) + message[len(name) :])]


def called(image: Any, index: int) -> str:
    """How a message of the library begins that is about image `index` of a list."""
    return os.fspath(image) if isinstance(image, (str, os.PathLike)) else f"image {index} in memory"
