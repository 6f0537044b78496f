#!/usr/bin/env python3
"""Exports torchvision and timm classifiers as ONNX test directories for `pipit verify`.

Each model gets seeded random weights (no download), perturbed batch-norm statistics so that folding them
matters, and one random input; ONNX Runtime computes the expected output. The layout is ONNX's own:

    OUTPUT/<exporter>-<library>-<name>/model.onnx
    OUTPUT/<exporter>-<library>-<name>/test_data_set_0/{input,output}_0.pb

Then: pipit verify OUTPUT

Needs: pip install torch torchvision timm onnx onnxscript onnxruntime
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

# One per family, the smallest that has every operator of the family; (library, name, input side).
ZOO: list[tuple[str, str, int]] = [
    ("torchvision", "resnet18", 224),
    ("torchvision", "resnet50", 224),
    ("torchvision", "resnext50_32x4d", 224),
    ("torchvision", "wide_resnet50_2", 224),
    ("torchvision", "regnet_x_400mf", 224),
    ("torchvision", "regnet_y_400mf", 224),
    ("torchvision", "densenet121", 224),
    ("torchvision", "vgg11_bn", 224),
    ("torchvision", "vgg16", 224),
    ("torchvision", "alexnet", 224),
    ("torchvision", "googlenet", 224),
    ("torchvision", "inception_v3", 299),
    ("torchvision", "squeezenet1_0", 224),
    ("torchvision", "squeezenet1_1", 224),
    ("torchvision", "mobilenet_v2", 224),
    ("torchvision", "mobilenet_v3_small", 224),
    ("torchvision", "mobilenet_v3_large", 224),
    ("torchvision", "mnasnet0_5", 224),
    ("torchvision", "shufflenet_v2_x0_5", 224),
    ("torchvision", "efficientnet_b0", 224),
    ("torchvision", "efficientnet_v2_s", 224),
    ("torchvision", "convnext_tiny", 224),
    ("timm", "seresnet50", 224),
    ("timm", "res2net50_26w_4s", 224),
    ("timm", "hrnet_w18_small", 224),
    ("timm", "dla34", 224),
    ("timm", "ghostnet_050", 224),
    ("timm", "mixnet_s", 224),
    ("timm", "repvgg_a0", 224),
    ("timm", "darknet53", 256),
    ("timm", "xception41", 224),
    ("timm", "legacy_xception", 299),
    ("timm", "convnext_atto", 224),
    ("timm", "efficientnet_lite0", 224),
    ("timm", "resnetv2_50", 224),
    ("timm", "skresnet18", 224),
    ("timm", "ese_vovnet19b_dw", 224),
    ("timm", "cspresnet50", 224),
    ("timm", "mobilenetv4_conv_small", 224),
    ("timm", "nfnet_l0", 224),
    ("timm", "inception_v4", 299),
]


def build(library: str, name: str) -> torch.nn.Module:
    torch.manual_seed(7)
    if library == "torchvision":
        import torchvision

        extra = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(name, weights=None, **extra)
    else:
        import timm

        model = timm.create_model(name, pretrained=False)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            torch.nn.init.normal_(module.running_mean, 0.0, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.7, 1.3)
            if module.affine:
                torch.nn.init.uniform_(module.weight, 0.7, 1.3)
                torch.nn.init.normal_(module.bias, 0.0, 0.1)
    return model.eval()


def export(model: torch.nn.Module, image: torch.Tensor, path: Path, dynamo: bool) -> None:
    names = {"input_names": ["input"], "output_names": ["logits"]}
    if dynamo:
        batch = torch.export.Dim("batch")
        program = torch.onnx.export(model, (image,), dynamo=True, dynamic_shapes=({0: batch},), verbose=False, **names)
        program.save(str(path))
    else:
        axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
        torch.onnx.export(model, (image,), str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names)


def write_tensor(path: Path, array: np.ndarray, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numpy_helper.from_array(np.ascontiguousarray(array), name).SerializeToString())


def make_directory(folder: Path, library: str, name: str, side: int, batch: int, dynamo: bool) -> None:
    model = build(library, name)
    torch.manual_seed(11)
    image = torch.randn(batch, 3, side, side)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        export(model, image, folder / "model.onnx", dynamo)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"input": image.numpy()})[0]
    write_tensor(folder / "test_data_set_0" / "input_0.pb", image.numpy(), "input")
    write_tensor(folder / "test_data_set_0" / "output_0.pb", expected, "logits")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for the test directories")
    parser.add_argument("--only", nargs="*", help="model names to export; default all")
    parser.add_argument("--exporter", choices=["torchscript", "dynamo", "both"], default="both")
    parser.add_argument("--batch", type=int, default=2, help="images in the test input (the export leaves it open)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)

    failed = []
    exporters = ["torchscript", "dynamo"] if arguments.exporter == "both" else [arguments.exporter]
    for library, name, side in ZOO:
        if arguments.only and name not in arguments.only:
            continue
        for exporter in exporters:
            folder = arguments.output / f"{exporter}-{library}-{name}"
            if (folder / "test_data_set_0" / "output_0.pb").exists():
                continue
            try:
                make_directory(folder, library, name, side, arguments.batch, exporter == "dynamo")
                print(f"exported {folder.name}", flush=True)
            except Exception as error:  # one exporter's bug must not hide the other models
                failed.append(folder.name)
                print(f"FAILED   {folder.name}: {str(error).splitlines()[0][:200]}", flush=True)
    if failed:
        print(f"{len(failed)} exports failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
