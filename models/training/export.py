"""Writing a trained network as an ONNX file that carries its labels and preprocessing."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import onnx
import torch
from torch import nn

from images import CLASSES, IMAGE_SIZE, MEAN, STD


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
