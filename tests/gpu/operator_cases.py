#!/usr/bin/env python3
"""Fills a folder with test folders for `pipit verify`: every operator of docs/operators.md, in every place, on signals,
images and volumes, in floats and quantized, with the outputs of ONNX Runtime.

operator_cases.py FOLDER. Needs onnxruntime; exits 1 with the reason where there is none."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))

import onnx_model  # noqa: E402
from operator_table import PLACES, network, operators  # noqa: E402


def random_input(numpy, shape):
    return numpy.random.default_rng(5).uniform(-1, 1, shape).astype(numpy.float32)


def write_case(folder, model, numpy, onnxruntime):
    """What ONNX Runtime refuses becomes no case; says whether it was written."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        x = random_input(numpy, session.get_inputs()[0].shape)
        outputs = session.run(None, {"x": x})
    except Exception as e:  # its exceptions share no base
        print(f"{folder.name}: {str(e).splitlines()[0]}", file=sys.stderr)
        return False
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    (data / "input_0.pb").write_bytes(onnx_model.tensor("x", onnx_model.FLOAT, x.shape, x.tobytes()))
    for i, (output, described) in enumerate(zip(outputs, session.get_outputs())):
        (data / f"output_{i}.pb").write_bytes(
            onnx_model.tensor(described.name, onnx_model.FLOAT, output.shape, output.astype("float32").tobytes()))
    return True


def main():
    try:
        import numpy
        import onnxruntime
    except ImportError as e:
        sys.exit(f"no ONNX Runtime to compute the outputs: {e}")
    root = pathlib.Path(sys.argv[1])
    written = refused = 0
    for quantized in (False, True):
        for rank in (1, 2, 3):
            for place in PLACES:
                for operator in operators(rank):
                    name = f"{operator}-{place}-{rank}d"
                    folder = root / ("int8" if quantized else "floats") / name
                    done = write_case(folder, network([operator], place, rank, quantized), numpy, onnxruntime)
                    written, refused = written + done, refused + (not done)
    print(f"{written} cases, {refused} that ONNX Runtime refuses")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
