#!/usr/bin/env python3
"""Train the classifier that ships with pipit and export it as ONNX.

The network is a ResNet-20 for 32x32 images (He et al. 2016, section 4.2), a
little wider than the original and with 1x1 convolutions on the shortcuts that
change shape ("option B").  Training has two steps, both in this one run:

1. a teacher, the same family but far larger, learns from the labels;
2. the small network learns from the labels and from the teacher's outputs on
   the same augmented images (distillation, Hinton et al. 2015).

The test archive is opened once, after all training, to measure the finished
network in PyTorch and, through the exported file, in ONNX Runtime.  Settings
are to be chosen with --holdout, which never opens the test archive.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import os
import random
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# cuBLAS is reproducible only with a fixed workspace, and it reads this setting
# when it is loaded, so it has to be made before torch is imported.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
IMAGE_SIZE = 32
# Per RGB channel, in units of [0, 1]: the values in common use for CIFAR-10.  JPEG
# lowers the deviation by less than 0.002, so they serve here too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

STUDENT_WIDTHS, STUDENT_BLOCKS = (24, 48, 80), 3
TEACHER_WIDTHS, TEACHER_BLOCKS = (64, 128, 256, 512), 2  # ResNet-18, 3x3 stem

CROP_PADDING = 4
WARMUP_FRACTION = 0.05
EMA_DECAY = 0.99
EMA_EVERY = 5  # steps between updates; averaging at each step costs more than it gives


# ---------------------------------------------------------------- network


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A 3x3 stem, one stage of blocks per width, global average pool, linear."""

    def __init__(self, widths: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        stages, inputs = [], widths[0]
        for index, width in enumerate(widths):
            strides = [1 if index == 0 else 2] + [1] * (blocks - 1)
            stage = []
            for stride in strides:
                stage.append(BasicBlock(inputs, width, stride))
                inputs = width
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, len(CLASSES))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.relu(self.bn(self.conv(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def count_macs(model: nn.Module) -> int:
    """Multiply-accumulates of the convolutions and the linear layer, one image."""
    total = 0

    def add(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        # Each output position of each filter reads one filter's worth of weights.
        total += module.weight.numel() * output.numel() // output.shape[1]

    model = copy.deepcopy(model).cpu().eval()
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE))
    return total


# ------------------------------------------------------------------- data


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


def normalise(pixels: Tensor) -> Tensor:
    """uint8 pixels to the network's input: scaled to [0, 1], then standardised."""
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
        # Mean grey is zero after normalisation: the square carries no signal.
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


# --------------------------------------------------------------- training


@dataclass
class Recipe:
    """How one network is trained."""

    name: str
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    cutout: int
    mixup: float
    compiled: bool
    seed: int
    distil_weight: float = 0.0
    temperature: float = 1.0


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum; only weight matrices and filters decay.

    Biases and BatchNorm's scale and shift are left alone: they are few, and
    shrinking them does not make the function simpler.
    """
    decayed = [p for p in model.parameters() if p.ndim > 1]
    free = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    fused = next(model.parameters()).is_cuda
    return torch.optim.SGD(groups, recipe.learning_rate, momentum=0.9, nesterov=True, fused=fused)


def schedule(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to zero."""
    warmup = max(1, int(WARMUP_FRACTION * steps))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def loss_of(logits: Tensor, targets: Tensor, teacher_logits: Tensor | None, recipe: Recipe) -> Tensor:
    """Cross-entropy with the labels, mixed with divergence from the teacher."""
    hard = F.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)
    if teacher_logits is None:
        return hard
    t = recipe.temperature
    student = F.log_softmax(logits / t, dim=1)
    teacher = F.log_softmax(teacher_logits / t, dim=1)
    # The gradient of the softened divergence shrinks with 1/t^2; t^2 undoes it.
    soft = F.kl_div(student, teacher, reduction="batchmean", log_target=True) * t * t
    return (1 - recipe.distil_weight) * hard + recipe.distil_weight * soft


def train_network(model: nn.Module, data: Images, recipe: Recipe, teacher: nn.Module | None = None) -> nn.Module:
    """Train `model` and return the moving average of its weights, in eval mode."""
    device = data.pixels.device
    generator = torch.Generator(device).manual_seed(recipe.seed)
    model.to(device, memory_format=torch.channels_last).train()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY), use_buffers=True)
    optimizer = make_optimizer(model, recipe)
    batch = min(recipe.batch, len(data.labels))
    steps_per_epoch = len(data.labels) // batch
    steps = recipe.epochs * steps_per_epoch
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    forward = torch.compile(model) if recipe.compiled else model
    teach = torch.compile(teacher) if recipe.compiled and teacher is not None else teacher
    padded = F.pad(data.pixels.float(), [CROP_PADDING] * 4, mode="reflect").to(torch.uint8)
    start, step = time.monotonic(), 0
    for epoch in range(1, recipe.epochs + 1):
        order = torch.randperm(len(data.labels), generator=generator, device=device)
        pixels, labels = augment(padded, order, recipe.cutout, generator), data.labels[order]
        total = torch.zeros((), device=device)
        # An incomplete last batch is left out; each epoch leaves out other images.
        for first in range(0, steps_per_epoch * batch, batch):
            chosen = slice(first, first + batch)
            inputs, targets = normalise(pixels[chosen]), F.one_hot(labels[chosen], len(CLASSES)).float()
            if recipe.mixup > 0:
                inputs, targets = mix(inputs, targets, recipe.mixup, generator)
            inputs = inputs.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16):
                with torch.no_grad():
                    teacher_logits = teach(inputs).float() if teach is not None else None
                logits = forward(inputs).float()
            loss = loss_of(logits, targets, teacher_logits, recipe)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
            step += 1
            if step % EMA_EVERY == 0 or step == steps:
                average.update_parameters(model)
            total += loss.detach()
        if epoch % 10 == 0 or epoch in (1, 2, recipe.epochs):
            seconds = time.monotonic() - start
            mean_loss = total.item() / steps_per_epoch
            print(f"{recipe.name}: epoch {epoch:3}/{recipe.epochs}  loss {mean_loss:.4f}  {seconds:6.1f} s", flush=True)
    return average.module.eval()


# ------------------------------------------------------------- evaluation


@torch.no_grad()
def predict(model: nn.Module, data: Images, batch: int = 1000) -> Tensor:
    """Logits on the CPU, computed in plain fp32 (no autocast, no TF32)."""
    return torch.cat([model(normalise(pixels)).cpu() for pixels in data.pixels.split(batch)])


def predict_onnx(path: Path, data: Images, batch: int = 500) -> Tensor:
    """Logits of the exported file, run by ONNX Runtime on the CPU."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [session.run(["logits"], {"input": normalise(p).numpy()})[0] for p in data.pixels.cpu().split(batch)]
    return torch.from_numpy(np.concatenate(outputs))


def wilson(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion, 95% by default."""
    p = correct / total
    centre = p + z * z / (2 * total)
    spread = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return (centre - spread) / (1 + z * z / total), (centre + spread) / (1 + z * z / total)


def summarise(logits: Tensor, labels: Tensor) -> dict[str, object]:
    """Top-1 and top-5 with intervals, and top-1 of each class."""
    labels = labels.cpu()
    ranked = logits.topk(5, dim=1).indices == labels[:, None]
    top1, top5, total = int(ranked[:, 0].sum()), int(ranked.any(1).sum()), len(labels)
    per_class = {name: float(ranked[labels == i, 0].float().mean()) for i, name in enumerate(CLASSES)}
    return {
        "images": total,
        "top1": top1 / total,
        "top1_interval": wilson(top1, total),
        "top5": top5 / total,
        "top5_interval": wilson(top5, total),
        "per_class": per_class,
    }


def describe(name: str, summary: dict[str, object]) -> str:
    low, high = summary["top1_interval"]
    return (
        f"{name}: top-1 {100 * summary['top1']:.2f} % ({100 * low:.2f} to {100 * high:.2f}), "
        f"top-5 {100 * summary['top5']:.2f} % on {summary['images']} images"
    )


# ----------------------------------------------------------------- export


def export_onnx(model: nn.Module, path: Path) -> None:
    """Write the network, BatchNorm unfolded, with labels and preprocessing inside."""
    model = copy.deepcopy(model).cpu().float().to(memory_format=torch.contiguous_format).eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        model,
        (torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE),),
        str(path),
        input_names=["input"],
        output_names=["logits"],
        dynamic_axes={"input": {0: "N"}, "logits": {0: "N"}},
        opset_version=17,
        # PRESERVE keeps the BatchNormalization nodes: folding is pipit's own work.
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        dynamo=False,
    )
    exported = onnx.load(path)
    use_shared_weights_directly(exported.graph)
    preprocess = {
        "resize": IMAGE_SIZE,
        "crop": IMAGE_SIZE,
        "interpolation": "bilinear",
        "mean": MEAN,
        "std": STD,
        "bgr": False,
    }
    metadata = {
        "pipit.labels": "\n".join(CLASSES),
        "pipit.preprocess": preprocess_json(preprocess),
        "pipit.description": "ResNet-20 (widths 24/48/80) for CIFAR-10, trained on JPEG images.",
    }
    onnx.helper.set_model_props(exported, metadata)
    onnx.checker.check_model(exported, full_check=True)
    onnx.save(exported, path)


def use_shared_weights_directly(graph: onnx.GraphProto) -> None:
    """Drop Identity nodes that only give a weight a second name.

    The two BatchNorms that meet at an addition get the same gradient for their
    shift and end up with equal values; the exporter stores those once and adds
    an Identity, which is noise to whoever reads the graph.
    """
    weights = {initializer.name for initializer in graph.initializer}
    aliases = [n for n in graph.node if n.op_type == "Identity" and n.input[0] in weights]
    renamed = {node.output[0]: node.input[0] for node in aliases}
    for node in aliases:
        graph.node.remove(node)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)


def preprocess_json(preprocess: dict[str, object]) -> str:
    """JSON without spaces, and with four decimals so that 0.2470 stays as published."""
    fields = []
    for key, value in preprocess.items():
        if isinstance(value, tuple):
            text = "[" + ",".join(f"{number:.4f}" for number in value) + "]"
        else:
            text = json.dumps(value)
        fields.append(f'"{key}":{text}')
    return "{" + ",".join(fields) + "}"


# ------------------------------------------------------------------- main


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""examples:
  choose settings without touching the test images:
    train_cifar10.py --train train.tar.gz --holdout 2500 --epochs 60
  train the shipped model and export it:
    train_cifar10.py --train train.tar.gz --test test.tar.gz
  no teacher, labels only:
    train_cifar10.py --train train.tar.gz --test test.tar.gz --teacher-epochs 0

An archive holds 32x32 JPEGs, one folder per class, and the folders are named
airplane automobile bird cat deer dog frog horse ship truck.""",
    )
    add = parser.add_argument
    add("--train", type=Path, required=True, metavar="TAR.GZ", help="training images")
    add("--test", type=Path, metavar="TAR.GZ", help="test images; opened once, after training")
    add("--holdout", type=int, default=0, metavar="N",
        help="measure on N training images held out instead of on the test images, and export nothing (default 0)")
    add("--out", type=Path, default=Path("models/resnet20-cifar10.onnx"), metavar="FILE",
        help="where the ONNX file goes (default %(default)s)")
    add("--report", type=Path, metavar="JSON", help="also write the measured numbers to this file")
    add("--epochs", type=int, default=400, help="passes over the training images (default %(default)s)")
    add("--teacher-epochs", type=int, default=120,
        help="passes that train the teacher; 0 trains without one (default %(default)s)")
    add("--teacher-file", type=Path, metavar="FILE",
        help="keep the teacher's weights here; an existing file is used instead of training a teacher "
        "(with --holdout, only a teacher made with the same --holdout and --seed has not seen those images)")
    add("--distil-weight", type=float, default=0.9,
        help="share of the teacher in the loss, the labels have the rest (default %(default)s)")
    add("--temperature", type=float, default=4.0,
        help="softens both networks' outputs before they are compared (default %(default)s)")
    add("--batch", type=int, default=512, help="images per step (default %(default)s)")
    add("--lr", type=float, default=0.4, help="highest learning rate of the small network (default %(default)s)")
    add("--teacher-lr", type=float, default=0.4, help="highest learning rate of the teacher (default %(default)s)")
    add("--weight-decay", type=float, default=5e-4, help="of filters and the linear layer (default %(default)s)")
    add("--label-smoothing", type=float, default=0.1, help="used where no teacher takes part (default %(default)s)")
    add("--cutout", type=int, default=8, help="side of the hidden square, in pixels; 0 for none (default %(default)s)")
    add("--teacher-cutout", type=int, default=16, help="the same for the teacher (default %(default)s)")
    add("--mixup", type=float, default=0.5,
        help="share of the images blended with another one, from 0 to 1 (default %(default)s)")
    add("--teacher-mixup", type=float, default=0.0, help="the same for the teacher (default %(default)s)")
    add("--compile", action="store_true", help="let torch.compile fuse the networks: slower start, faster steps")
    add("--seed", type=int, default=20, help="of weights, order and augmentation (default %(default)s)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    arguments = parser.parse_args()
    if not arguments.holdout and not arguments.test:
        parser.error("name --test to train the model to ship, or --holdout to try settings")
    return arguments


def make_reproducible(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # TF32 would round the fp32 evaluation; the training steps are bf16 in any case.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def obtain_teacher(arguments: argparse.Namespace, data: Images) -> nn.Module:
    """Read the teacher's weights from --teacher-file, or train it."""
    teacher = CifarResNet(TEACHER_WIDTHS, TEACHER_BLOCKS)
    print(f"teacher: {count_parameters(teacher):,} parameters, {count_macs(teacher):,} MACs", flush=True)
    path: Path | None = arguments.teacher_file
    if path and path.exists():
        teacher.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return teacher.to(data.pixels.device, memory_format=torch.channels_last).eval()
    recipe = Recipe(
        "teacher", arguments.teacher_epochs, arguments.batch, arguments.teacher_lr, arguments.weight_decay,
        # Smoothed labels would wash out what the teacher knows about similar classes.
        label_smoothing=0.0, cutout=arguments.teacher_cutout, mixup=arguments.teacher_mixup,
        compiled=arguments.compile, seed=arguments.seed,
    )  # fmt: skip
    teacher = train_network(teacher, data, recipe)
    if path:
        torch.save(teacher.state_dict(), path)
    return teacher


def main() -> None:
    arguments = parse_arguments()
    make_reproducible(arguments.seed)
    device = torch.device(arguments.device)
    began = time.monotonic()
    data = load_archive(arguments.train, device)
    held: Images | None = None
    if arguments.holdout:
        data, held = split_holdout(data, arguments.holdout, arguments.seed)
    print(f"{len(data.labels)} training images, read in {time.monotonic() - began:.1f} s", flush=True)

    teacher = obtain_teacher(arguments, data) if arguments.teacher_epochs > 0 else None
    if held and teacher:
        print(describe("teacher, held-out", summarise(predict(teacher, held), held.labels)), flush=True)
    # Seeded anew: the small network starts the same whether a teacher was trained or read.
    torch.manual_seed(arguments.seed)
    model = CifarResNet(STUDENT_WIDTHS, STUDENT_BLOCKS)
    parameters, macs = count_parameters(model), count_macs(model)
    print(f"network: {parameters:,} parameters, {macs:,} MACs", flush=True)
    recipe = Recipe(
        "network", arguments.epochs, arguments.batch, arguments.lr, arguments.weight_decay,
        label_smoothing=0.0 if teacher else arguments.label_smoothing,
        cutout=arguments.cutout, mixup=arguments.mixup, compiled=arguments.compile, seed=arguments.seed + 1,
        distil_weight=arguments.distil_weight, temperature=arguments.temperature,
    )  # fmt: skip
    model = train_network(model, data, recipe, teacher)
    trained = time.monotonic() - began

    if held:
        print(describe("held-out", summarise(predict(model, held), held.labels)))
        return
    export_onnx(model, arguments.out)
    test = load_archive(arguments.test, device)
    logits, onnx_logits = predict(model, test), predict_onnx(arguments.out, test)
    report = {
        "parameters": parameters,
        "macs": macs,
        "bytes": arguments.out.stat().st_size,
        "training_seconds": round(trained, 1),
        "pytorch": summarise(logits, test.labels),
        "onnxruntime": summarise(onnx_logits, test.labels),
        "same_answers": int((logits.argmax(1) == onnx_logits.argmax(1)).sum()),
        "largest_logit_difference": float((logits - onnx_logits).abs().max()),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }
    if teacher:
        report["teacher"] = summarise(predict(teacher, test), test.labels)
        print(describe("teacher", report["teacher"]))
    print(json.dumps(report, indent=2))
    print(describe("PyTorch", report["pytorch"]))
    print(describe("ONNX Runtime", report["onnxruntime"]))
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
