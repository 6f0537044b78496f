"""Accuracy of a trained network, in PyTorch and in ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from images import CLASSES, Images, normalize


@torch.no_grad()
def predict(model: nn.Module, data: Images, batch: int = 1000) -> Tensor:
    """Logits on the CPU, computed in plain fp32 (no autocast, no TF32)."""
    return torch.cat([model(normalize(pixels)).cpu() for pixels in data.pixels.split(batch)])


def predict_onnx(path: Path, data: Images, batch: int = 500) -> Tensor:
    """Logits of the exported file, run by ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    # Without it sums of two products of 8 bits saturate on CPUs without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = [session.run(["logits"], {"input": normalize(p).numpy()})[0] for p in data.pixels.cpu().split(batch)]
    return torch.from_numpy(np.concatenate(outputs))


def wilson(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion, 95% by default."""
    p = correct / total
    centre = p + z * z / (2 * total)
    spread = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return (centre - spread) / (1 + z * z / total), (centre + spread) / (1 + z * z / total)


def summarize(logits: Tensor, labels: Tensor) -> dict[str, object]:
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
