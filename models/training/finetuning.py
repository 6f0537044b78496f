"""Fine-tuning a network that was made of a dense one, with the dense one as its teacher: training, options, report."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from images import CLASSES, CROP_PADDING, Images, augment, load_archive, mix, normalize, split_holdout
from measure import describe, predict, predict_onnx, summarize
from onnx_network import OnnxNetwork
from train_cifar10 import Recipe, loss_of, make_optimizer, make_reproducible, schedule

# Batch normalization is folded in these networks and bounds nothing: the first gradients, right after pruning, are
# hundreds of times those that follow, and one step along them would end in infinities.
LARGEST_GRADIENT = 1.0


def shared_activations(network: OnnxNetwork, dense: OnnxNetwork, sample: Tensor) -> list[str]:
    """Names of activations that both networks have in one shape; the output is compared in another way."""
    outputs = {output for op, _, _, output in network.steps if op in ("Relu", "Clip", "Add", "QuantizeLinear")}
    names = outputs & {output for _, _, _, output in dense.steps} - {network.output}
    with torch.no_grad():
        ours, theirs = (of.values(sample, names) for of in (network, dense))
    return sorted(name for name in names if ours[name].shape == theirs[name].shape)


def feature_loss(ours: dict[str, Tensor], theirs: dict[str, Tensor], names: list[str]) -> Tensor:
    """Mean over the activations of the squared difference, each in units of the dense one's own square."""
    losses = [F.mse_loss(ours[name], theirs[name]) / theirs[name].square().mean().clamp_min(1e-12) for name in names]
    return torch.stack(losses).mean()


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether products on a GPU may be in TF32, which holds integers of 8 bits exactly and adds them in f32."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


class Step:
    """One step of the optimizer on a batch; called with the batch, returns its loss.

    These networks are so small that a GPU waits for launches: there the work of a step is captured once as a CUDA
    graph and replayed.
    """

    UNCAPTURED = 3  # libraries initialize themselves and the optimizer makes its state, which a capture forbids

    def __init__(self, network: OnnxNetwork, dense: OnnxNetwork, recipe: Recipe, names: list[str],
                 feature_weight: float, steps: int) -> None:  # fmt: skip
        self.network, self.dense, self.recipe = network, dense, recipe
        self.names, self.feature_weight = names, feature_weight
        self.device = next(network.parameters()).device
        self.optimizer = make_optimizer(network, recipe)
        for group in self.optimizer.param_groups:  # a tensor, so that a graph reads it anew
            group["lr"] = torch.tensor(group["lr"], device=self.device)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: schedule(step, steps))
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self.device.type != "cuda":
            loss = self._take(inputs, targets)
        elif self.taken < self.UNCAPTURED:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = self._take(inputs, targets)
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if self.graph is None:
                self.inputs, self.targets = torch.empty_like(inputs), torch.empty_like(targets)
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.loss = self._take(self.inputs, self.targets)
            self.inputs.copy_(inputs)
            self.targets.copy_(targets)
            self.graph.replay()
            loss = self.loss
        self.taken += 1
        self.scheduler.step()
        return loss

    def _take(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        mixed = self.network.MIXED_PRECISION
        with tf32(not mixed):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=mixed and self.device.type == "cuda"):
                with torch.no_grad():
                    theirs = self.dense.values(inputs, self.names)
                ours = self.network.values(inputs, self.names)
            theirs, ours = ({name: value.float() for name, value in of.items()} for of in (theirs, ours))
            loss = loss_of(ours[self.network.output], targets, theirs[self.dense.output], self.recipe)
            if self.names:
                loss = loss + self.feature_weight * feature_loss(ours, theirs, self.names)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.network.hold()
        return loss.detach()


def finetune(network: OnnxNetwork, dense: OnnxNetwork, data: Images, recipe: Recipe, feature_weight: float) -> None:
    device = data.pixels.device
    generator = torch.Generator(device).manual_seed(recipe.seed)
    steps_per_epoch = len(data.labels) // recipe.batch
    padded = F.pad(data.pixels.float(), [CROP_PADDING] * 4, mode="reflect").to(torch.uint8)
    names = shared_activations(network, dense, normalize(data.pixels[:2])) if feature_weight > 0 else []
    step = Step(network, dense, recipe, names, feature_weight, recipe.epochs * steps_per_epoch)
    print(f"{len(names)} activations are compared, {len(network.masks)} tensors have masks", flush=True)
    start = time.monotonic()
    for epoch in range(1, recipe.epochs + 1):
        order = torch.randperm(len(data.labels), generator=generator, device=device)
        pixels, labels = augment(padded, order, recipe.cutout, generator), data.labels[order]
        total = torch.zeros((), device=device)
        for first in range(0, steps_per_epoch * recipe.batch, recipe.batch):
            chosen = slice(first, first + recipe.batch)
            inputs, targets = normalize(pixels[chosen]), F.one_hot(labels[chosen], len(CLASSES)).float()
            if recipe.mixup > 0:
                inputs, targets = mix(inputs, targets, recipe.mixup, generator)
            total += step(inputs.contiguous(memory_format=torch.channels_last), targets)
        mean = total.item() / steps_per_epoch
        if not math.isfinite(mean):
            raise SystemExit(f"the loss is {mean} in epoch {epoch}; try a lower --lr")
        if epoch % 10 == 0 or epoch in (1, 2, recipe.epochs):
            print(f"epoch {epoch:3}/{recipe.epochs}  loss {mean:.4f}  {time.monotonic() - start:6.1f} s", flush=True)


def make_parser(kind: str, description: str | None, epilog: str, epochs: int,
                learning_rate: float) -> argparse.ArgumentParser:  # fmt: skip
    """The options of a script that fine-tunes a `kind` network, with its defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{epilog}\n\nArchives are those of train_cifar10.py.",
    )  # fmt: skip
    add = parser.add_argument
    add("network", type=Path, metavar="ONNX", help=f"the {kind} network")
    add("--dense", type=Path, required=True, metavar="ONNX", help="the network that it was made of")
    add("--train", type=Path, required=True, metavar="TAR.GZ", help="training images")
    add("--test", type=Path, metavar="TAR.GZ", help="test images; opened once, after training")
    add("--holdout", type=int, default=0, metavar="N",
        help="measure on N training images held out instead of on the test images, and write nothing (default 0)")
    add("--out", type=Path, metavar="ONNX", help="where the result goes")
    add("--report", type=Path, metavar="JSON", help="also write the measured numbers to this file")
    add("--epochs", type=int, default=epochs, help="passes over the training images (default %(default)s)")
    add("--batch", type=int, default=256, help="images per step (default %(default)s)")
    add("--lr", type=float, default=learning_rate, help="highest learning rate (default %(default)s)")
    add("--weight-decay", type=float, default=1e-4, help="of filters and linear layers (default %(default)s)")
    add("--feature-weight", type=float, default=1.0,
        help="of the differences of activations; 0 compares none (default %(default)s)")
    add("--distil-weight", type=float, default=0.9,
        help="share of the dense network's logits, the labels have the rest (default %(default)s)")
    add("--temperature", type=float, default=4.0,
        help="softens both networks' logits before they are compared (default %(default)s)")
    add("--cutout", type=int, default=8, help="side of the hidden square, in pixels; 0 for none (default %(default)s)")
    add("--mixup", type=float, default=0.5,
        help="share of the images blended with another one, from 0 to 1 (default %(default)s)")
    add("--seed", type=int, default=20, help="of order and augmentation (default %(default)s)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parser.parse_args()
    if not arguments.holdout and not (arguments.test and arguments.out):
        parser.error("name --test and --out to fine-tune, or --holdout to try settings")
    return arguments


def run(kind: str, arguments: argparse.Namespace, read: Callable[[Path], OnnxNetwork]) -> None:
    """Fine-tune what `read` makes of the file, write it and measure all three networks."""
    make_reproducible(arguments.seed)
    device = torch.device(arguments.device)
    data = load_archive(arguments.train, device)
    held: Images | None = None
    if arguments.holdout:
        data, held = split_holdout(data, arguments.holdout, arguments.seed)
    if len(data.labels) < arguments.batch:
        raise SystemExit(f"{len(data.labels)} training images are no batch of {arguments.batch}; try a lower --batch")
    dense, network = OnnxNetwork(arguments.dense).to(device), read(arguments.network).to(device)
    if held:
        for name, one in (("dense", dense), (kind, network)):
            print(describe(f"{name}, held-out", summarize(predict(one, held), held.labels)), flush=True)
    recipe = Recipe(
        kind, arguments.epochs, arguments.batch, arguments.lr, arguments.weight_decay, label_smoothing=0.0,
        cutout=arguments.cutout, mixup=arguments.mixup, compiled=False, seed=arguments.seed,
        distil_weight=arguments.distil_weight, temperature=arguments.temperature,
    )  # fmt: skip
    began = time.monotonic()
    finetune(network, dense, data, recipe, arguments.feature_weight)
    trained = time.monotonic() - began
    if held:
        print(describe("fine-tuned, held-out", summarize(predict(network, held), held.labels)))
        return
    network.save(arguments.out)
    test = load_archive(arguments.test, device)
    report = {"training_seconds": round(trained, 1), "epochs": arguments.epochs, "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU"}  # fmt: skip
    for name, path in (("dense", arguments.dense), (kind, arguments.network), ("fine-tuned", arguments.out)):
        report[name] = summarize(predict_onnx(path, test), test.labels)
        print(describe(name, report[name]))
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")
