#!/usr/bin/env python3
"""One peer engine, one model: the process that cpu.py starts. Prints one line of JSON.

    cpu_engines.py ENGINE MODEL SHAPE THREADS SECONDS [--precision default|fp32] [--free NAME]... [--output FILE.npy]

Every engine computes with THREADS threads in what it chooses itself, or with --precision fp32 in float32, on a standard normal input of SHAPE (1x3x224x224), seed 1. It
warms up (3 runs, and a tenth of SECONDS), then times runs until SECONDS have passed, at least 3. Peak memory is the
process's, Python and the engine's libraries included; `import_mib` is what these took before the model was opened.
`precision` is what the engine says that it computes floats in: f32, bf16, f16.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from pathlib import Path

import numpy as np


class OnnxRuntime:
    package = "onnxruntime"

    def __init__(self, model: Path, shape: list[int], threads: int, free: list[str], _precision: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        for name in free:  # the batch is all that exports leave open: with it, every shape is known at load
            options.add_free_dimension_override_by_name(name, shape[0])
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
        self.precision = "f32"  # a float32 model in any case: on x86 no option says otherwise

    def run(self, x: np.ndarray) -> np.ndarray:
        return self.session.run(None, {self.name: x})[0]


class OpenVino:
    package = "openvino"

    def __init__(self, model: Path, shape: list[int], threads: int, free: list[str], precision: str) -> None:
        import openvino

        core = openvino.Core()
        graph = core.read_model(str(model))
        if free:
            graph.reshape({graph.inputs[0]: shape})
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        if precision == "fp32":  # or bf16 where the CPU multiplies it
            options["INFERENCE_PRECISION_HINT"] = "f32"
        compiled = core.compile_model(graph, "CPU", options)
        self.precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.request = compiled.create_infer_request()

    def run(self, x: np.ndarray) -> np.ndarray:
        return self.request.infer([x], share_inputs=True, share_outputs=True)[0]


class Ncnn:
    """Takes MODEL.ncnn.param, with MODEL.ncnn.bin beside it."""

    package = "ncnn"

    def __init__(self, model: Path, _shape: list[int], threads: int, _free: list[str], precision: str) -> None:
        import ncnn

        self.mat = ncnn.Mat
        self.net = ncnn.Net()
        options = self.net.opt
        options.use_vulkan_compute = False
        if precision == "fp32":
            for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
                setattr(options, f"use_{option}", False)
        # What it may store: where the CPU lacks instructions for it, ncnn takes f32 and does not say so.
        self.precision = "bf16" if options.use_bf16_storage else "f16" if options.use_fp16_storage else "f32"
        self.net.opt.num_threads = threads
        if self.net.load_param(str(model)) != 0 or self.net.load_model(str(model.with_suffix(".bin"))) != 0:
            raise RuntimeError(f"ncnn could not load {model}")
        self.input, self.output = self.net.input_names()[0], self.net.output_names()[0]

    def run(self, x: np.ndarray) -> np.ndarray:
        extractor = self.net.create_extractor()
        extractor.input(self.input, self.mat(x, batch_index=0))
        status, y = extractor.extract(self.output)
        if status != 0:
            raise RuntimeError(f"ncnn's extract returned {status}")
        return y.numpy(batch_index=0)


ENGINES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino, "ncnn": Ncnn}


def peak_mib() -> float:
    """Not ru_maxrss, which a process inherits from the one that started it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model", type=Path)
    parser.add_argument("shape", type=lambda text: [int(extent) for extent in text.split("x")])
    parser.add_argument("threads", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--precision", choices=("default", "fp32"), default="default",
                        help="what the engine chooses itself, or float32 [default]")
    parser.add_argument("--free", action="append", default=[], help="a symbolic dimension of the model: the batch")
    parser.add_argument("--output", type=Path, help="write what the model answers here")
    a = parser.parse_args()

    engine_class = ENGINES[a.engine]
    importlib.import_module(engine_class.package)
    import_mib = peak_mib()
    x = np.random.default_rng(1).standard_normal(a.shape, dtype=np.float32)
    begin = time.perf_counter()
    engine = engine_class(a.model, a.shape, a.threads, a.free, a.precision)
    load_ms = 1e3 * (time.perf_counter() - begin)

    warm = time.perf_counter()
    runs = 0
    while runs < 3 or time.perf_counter() - warm < 0.1 * a.seconds:
        y = engine.run(x)
        runs += 1
    if a.output:
        np.save(a.output, np.asarray(y, np.float32))
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < a.seconds:
        begin = time.perf_counter()
        engine.run(x)
        times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"precision": engine.precision, "median_ms": statistics.median(times), "runs": len(times), "load_ms": load_ms,
                      "import_mib": import_mib, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main()
