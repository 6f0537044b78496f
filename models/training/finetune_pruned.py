#!/usr/bin/env python3
"""Fine-tune a classifier for 32x32 images that pipit has pruned.

The pruned network learns to give the dense one's answers: the divergence from
its logits (distillation, Hinton et al. 2015), the squared difference of the
activations that both have under one name and in one shape (FitNets, Romero et
al. 2015, without the regressor: pruning keeps names), and a little of the
labels.  What pruning took out stays out: weights that are zero in the file
stay zero, and channels that are gone are gone.  The result is the same file
with other weights; labels and preprocessing inside it stay.

The test archive is opened once, after training.  Settings are to be chosen
with --holdout, which never opens it and writes nothing.
"""

from __future__ import annotations

import finetuning
from onnx_network import OnnxNetwork

EXAMPLES = """examples:
  pipit prune resnet20-cifar10 images --mode channel --keep-ratio 0.5 --output pruned.onnx
  choose settings without touching the test images:
    finetune_pruned.py pruned.onnx --dense resnet20-cifar10.onnx --train train.tar.gz --holdout 2500
  fine-tune and measure:
    finetune_pruned.py pruned.onnx --dense resnet20-cifar10.onnx --train train.tar.gz --test test.tar.gz \\
        --out pruned-tuned.onnx"""


def main() -> None:
    parser = finetuning.make_parser("pruned", __doc__, EXAMPLES, epochs=60, learning_rate=0.02)
    finetuning.run("pruned", finetuning.parse(parser), OnnxNetwork)


if __name__ == "__main__":
    main()
