#!/usr/bin/env python3
"""Models without a quarter of their channels against the same models with zeros there, in pipit and in ONNX Runtime.

    test_shrink.py SHRINK_MODEL [MODEL...]

Without models: those of the catalogue that need no download, and those in PIPIT_TEST_DATA/models. A folder stands for
the model.onnx in it. The comparison in ONNX Runtime is left out where that is missing, and the last line says so.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnxruntime
except ImportError as error:
    onnxruntime = None
    missing = error

# Sums of other lengths are added up in other orders: a few roundings of f32 per layer, over a hundred layers.
TOLERANCE = 1e-4


def run(path, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def input_of(path, batch, rng):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    made = {}
    for value in session.get_inputs():
        shape = [batch if not isinstance(extent, int) else extent for extent in value.shape]
        made[value.name] = rng.standard_normal(shape).astype(numpy.float32)
    return made


def check(tool, model, seed):
    """What is wrong with this model; nothing where all is well."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([tool, model, "0.25", str(seed), folder], capture_output=True, text=True)
        if done.returncode != 0:
            return [done.stderr.strip()]
        said = json.loads(done.stdout)
        before, after = said["constants"]
        print(f"{model}: {said['removed']} of {said['groups']} groups removed ({said['removable']} can be), "
              f"weights {before} -> {after}, error {said['error']:.2g}")
        problems = []
        if not said["error"] <= TOLERANCE:
            problems.append(f"outputs differ by {said['error']}")
        if not (said["removed"] and after < before):
            problems.append(f"nothing became smaller: {said['kept_because']}")
        if onnxruntime:
            files = [pathlib.Path(folder) / name for name in ("zero.onnx", "small.onnx")]
            inputs = input_of(files[0], 2, numpy.random.default_rng(seed))
            for a, b in zip(run(files[0], inputs), run(files[1], inputs)):
                error = numpy.linalg.norm(a - b) / max(numpy.linalg.norm(a), 1e-30)
                if a.shape != b.shape or not error <= TOLERANCE:
                    problems.append(f"{b.shape} of small.onnx in ONNX Runtime differ from {a.shape} by {error}")
        return problems


def models_of(arguments):
    data = os.environ.get("PIPIT_TEST_DATA")
    stored = sorted(pathlib.Path(data, "models").glob("*.onnx")) if data else []
    for model in arguments or ["resnet20-cifar10", "resnet18", *map(str, stored)]:
        yield str(pathlib.Path(model, "model.onnx")) if pathlib.Path(model).is_dir() else model


def main(tool, *arguments):
    seed = os.environ.get("PIPIT_TEST_SEED", "1")
    seed = random.getrandbits(31) if seed == "random" else int(seed)
    failed = 0
    for model in models_of(arguments):
        for problem in check(tool, model, seed):
            print(f"FAIL {model}, PIPIT_TEST_SEED={seed}: {problem}", file=sys.stderr)
            failed += 1
    if not onnxruntime:
        print(f"not compared in ONNX Runtime: {missing}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
