"""The residual networks that are trained here, and what they cost."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from images import CLASSES, IMAGE_SIZE

STUDENT_WIDTHS, STUDENT_BLOCKS = (24, 48, 80), 3
TEACHER_WIDTHS, TEACHER_BLOCKS = (64, 128, 256, 512), 2  # ResNet-18, 3x3 stem


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
