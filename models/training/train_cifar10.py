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
import json
import math
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from export import export_onnx
from images import CLASSES, CROP_PADDING, Images, augment, load_archive, mix, normalize, split_holdout
from measure import describe, predict, predict_onnx, summarize
from network import (
    STUDENT_BLOCKS,
    STUDENT_WIDTHS,
    TEACHER_BLOCKS,
    TEACHER_WIDTHS,
    CifarResNet,
    count_macs,
    count_parameters,
)

WARMUP_FRACTION = 0.05
EMA_DECAY = 0.99
EMA_EVERY = 5  # steps between updates; averaging at each step costs more than it gives


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
            inputs, targets = normalize(pixels[chosen]), F.one_hot(labels[chosen], len(CLASSES)).float()
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
    # cuBLAS is reproducible only with a fixed workspace; it reads this when CUDA is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
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
        print(describe("teacher, held-out", summarize(predict(teacher, held), held.labels)), flush=True)
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
        print(describe("held-out", summarize(predict(model, held), held.labels)))
        return
    export_onnx(model, arguments.out)
    test = load_archive(arguments.test, device)
    logits, onnx_logits = predict(model, test), predict_onnx(arguments.out, test)
    report = {
        "parameters": parameters,
        "macs": macs,
        "bytes": arguments.out.stat().st_size,
        "training_seconds": round(trained, 1),
        "pytorch": summarize(logits, test.labels),
        "onnxruntime": summarize(onnx_logits, test.labels),
        "same_answers": int((logits.argmax(1) == onnx_logits.argmax(1)).sum()),
        "largest_logit_difference": float((logits - onnx_logits).abs().max()),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }
    if teacher:
        report["teacher"] = summarize(predict(teacher, test), test.labels)
        print(describe("teacher", report["teacher"]))
    print(json.dumps(report, indent=2))
    print(describe("PyTorch", report["pytorch"]))
    print(describe("ONNX Runtime", report["onnxruntime"]))
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
