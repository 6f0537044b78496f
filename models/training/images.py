"""Reading the image archives, and augmentation on the device that trains."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch import Tensor

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
IMAGE_SIZE = 32
# Per RGB channel, in units of [0, 1]: the values in common use for CIFAR-10.  JPEG
# lowers the deviation by less than 0.002, so they serve here too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

CROP_PADDING = 4


@dataclass
class Images:
    """RGB pixels, uint8 [N, 3, 32, 32], and class indices, int64 [N]."""

    pixels: Tensor
    labels: Tensor

    def subset(self, index: Tensor) -> Images:
        return Images(self.pixels[index], self.labels[index])


def load_archive(path: Path, device: torch.device) -> Images:
    """Decode every JPEG of a tar.gz that has one folder per class."""
    decoded: dict[str, tuple[np.ndarray, int]] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if not member.isfile() or name.suffix.lower() not in (".jpg", ".jpeg"):
                continue
            if name.parent.name not in CLASSES:
                raise SystemExit(f"{path}: {name}: the folder is not one of {', '.join(CLASSES)}")
            image = Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")
            if image.size != (IMAGE_SIZE, IMAGE_SIZE):
                raise SystemExit(f"{path}: {name}: {image.size}, expected 32x32 pixels")
            decoded[str(name)] = (np.asarray(image), CLASSES.index(name.parent.name))
    if not decoded:
        raise SystemExit(f"{path}: no JPEG images in it")
    # Sorted, so that the order of files in the archive does not change the training.
    rows = [decoded[name] for name in sorted(decoded)]
    pixels = torch.from_numpy(np.stack([pixels for pixels, _ in rows]))
    labels = torch.tensor([label for _, label in rows])
    return Images(pixels.permute(0, 3, 1, 2).contiguous().to(device), labels.to(device))


def split_holdout(images: Images, count: int, seed: int) -> tuple[Images, Images]:
    """Split off `count` images, equally many of each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = images.labels.cpu()
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(len(CLASSES)):
        members = torch.nonzero(labels == label).flatten()
        order = torch.randperm(len(members), generator=generator)
        held[members[order[: count // len(CLASSES)]]] = True
    return images.subset(~held), images.subset(held)


def normalize(pixels: Tensor) -> Tensor:
    """uint8 pixels to the network's input: scaled to [0, 1], then standardized."""
    mean = torch.tensor(MEAN, device=pixels.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=pixels.device).view(1, 3, 1, 1)
    return (pixels.float() / 255 - mean) / std


def augment(padded: Tensor, order: Tensor, cutout: int, generator: torch.Generator) -> Tensor:
    """Random crop, horizontal flip and cutout of padded images, in the given order.

    A whole epoch is made at once: one gather on the GPU costs less than the
    launches of a gather per batch.
    """
    count, device = len(order), padded.device

    def draw(high: int) -> Tensor:
        return torch.randint(high, (count, 1), generator=generator, device=device)

    steps = torch.arange(IMAGE_SIZE, device=device).view(1, -1)
    rows = draw(2 * CROP_PADDING + 1) + steps
    flipped = draw(2).bool()
    columns = draw(2 * CROP_PADDING + 1) + torch.where(flipped, steps.flip(1), steps)
    images = padded[
        order.view(-1, 1, 1, 1),
        torch.arange(3, device=device).view(1, 3, 1, 1),
        rows.view(count, 1, IMAGE_SIZE, 1),
        columns.view(count, 1, 1, IMAGE_SIZE),
    ]
    if cutout > 0:
        # The centre lies anywhere in the image, so the border may cut the square off.
        top, left = draw(IMAGE_SIZE) - cutout // 2, draw(IMAGE_SIZE) - cutout // 2
        in_rows, in_columns = (steps >= top) & (steps < top + cutout), (steps >= left) & (steps < left + cutout)
        hidden = in_rows.view(count, 1, -1, 1) & in_columns.view(count, 1, 1, -1)
        # Mean grey is zero after normalization: the square carries no signal.
        grey = (torch.tensor(MEAN, device=device) * 255).round().to(torch.uint8).view(1, 3, 1, 1)
        images = torch.where(hidden, grey, images)
    return images


def mix(inputs: Tensor, targets: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Blend a share of the images, and their targets, with the image before them.

    The batch is in random order, so the neighbour is a random image.
    """
    draws = torch.rand(2, len(inputs), generator=generator, device=inputs.device)
    keep = torch.where(draws[0] < share, 0.5 + 0.5 * draws[1], 1.0).view(-1, 1)
    targets = keep * targets + (1 - keep) * targets.roll(1, 0)
    keep = keep.view(-1, 1, 1, 1)
    return keep * inputs + (1 - keep) * inputs.roll(1, 0), targets
