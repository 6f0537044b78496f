#!/usr/bin/env python3
"""Fine-tune a classifier for 32x32 images that pipit has quantized.

The file is the one that `pipit quantize` writes.  Every forward pass rounds
weights, biases and activations as the file says and computes the layers in
integers as pipit does; the network learns the dense one's answers and
activations, as in finetune_pruned.py.  The result is the same file with other
integers.  Weights that are zero in the file stay zero, so what is pruned stays
pruned.

The test archive is opened once, after training.  Settings are to be chosen
with --holdout, which never opens it and writes nothing.
"""

from __future__ import annotations

import functools

import finetuning
from quantized_network import QuantizedNetwork

EXAMPLES = """examples:
  pipit calibrate resnet20-cifar10 images --output plan.json
  pipit quantize resnet20-cifar10 --plan plan.json --output quantized.onnx
  choose settings without touching the test images:
    finetune_quantized.py quantized.onnx --dense resnet20-cifar10.onnx --train train.tar.gz --holdout 2500
  fine-tune and measure:
    finetune_quantized.py quantized.onnx --dense resnet20-cifar10.onnx --train train.tar.gz --test test.tar.gz \\
        --out quantized-tuned.onnx"""


def main() -> None:
    parser = finetuning.make_parser("quantized", __doc__, EXAMPLES, epochs=20, learning_rate=0.01)
    parser.add_argument("--scales", choices=("fixed", "learned"), default="fixed",
        help="whether the scales stay as calibrated or are trained, too (default %(default)s)")  # fmt: skip
    arguments = finetuning.parse(parser)
    read = functools.partial(QuantizedNetwork, learn_scales=arguments.scales == "learned")
    finetuning.run("quantized", arguments, read)


if __name__ == "__main__":
    main()
