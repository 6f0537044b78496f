"""Runs on a GPU from Python beside the library's own, PyTorch and ONNX Runtime, as JSON. Not a test:

PYTHONPATH=build/python-package python3 python/tests/bench_gpu.py [build/tests/bench_on_device [FOLDER]]

The folder is for files: ResNet-50 as ONNX, for ONNX Runtime.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pipit
from support import onnx_model

TURNS = 5


def timed(run: Callable[[], object], runs: int) -> tuple[float, float]:
    """Runs a second, and microseconds until a run was queued: medians of turns."""
    rates, queued = [], []
    for turn in range(TURNS + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(runs):
            run()
        launched = time.perf_counter() - begin
        torch.cuda.synchronize()
        if turn > 0:
            rates.append(runs / (time.perf_counter() - begin))
            queued.append(launched / runs * 1e6)
    return statistics.median(rates), statistics.median(queued)


def of_library(program: str, model: str, batch: int, precision: str, runs: int) -> dict[str, float]:
    done = subprocess.run(
        [program, model, str(batch), precision, str(runs)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def overhead(program: str | None, folder: pathlib.Path) -> dict[str, Any]:
    """Of a model with nothing but a copy: all that is left is what a run costs the CPU."""
    file = folder / "nothing.onnx"
    file.write_bytes(onnx_model.model((1, 10), [onnx_model.node("Flatten", ["x"], "y")]))
    session = pipit.load(file, device="cuda").session()
    x, out = torch.zeros(1, 10, device="cuda"), torch.empty(1, 10, device="cuda")
    stream = torch.cuda.current_stream()
    found: dict[str, Any] = {
        "run_us": timed(lambda: session.run(x), 5000)[1],
        "run_out_us": timed(lambda: session.run(x, out=out), 5000)[1],
        "run_out_stream_us": timed(lambda: session.run(x, out=out, stream=stream), 5000)[1],
        "from_dlpack_us": timed(lambda: torch.from_dlpack(session.run(x)[0]), 5000)[1],
        "native_us": timed(lambda: session._native.run_on_device((x,), [out], 0), 5000)[1],
        "torch_relu_us": timed(lambda: torch.relu(x), 5000)[1],
    }
    if program:
        found["library_us"] = of_library(program, str(file), 1, "fp32", 5000)["queued_us"]
    return found


def throughput(program: str | None, folder: pathlib.Path, batch: int, precision: str) -> dict[str, Any]:
    runs = 100 if batch > 1 else 500
    kind = torch.float16 if precision == "fp16" else torch.float32
    session = pipit.load("resnet50", device="cuda", batch=batch, precision=precision).session()
    x, out = torch.randn(batch, 3, 224, 224, device="cuda"), torch.empty(batch, 1000, device="cuda")
    found: dict[str, Any] = {"batch": batch, "precision": precision}
    pairs = []
    for _ in range(3 if program else 1):
        python, queued = timed(lambda: session.run(x), runs)
        into, _ = timed(lambda: session.run(x, out=out), runs)
        library = of_library(program, "resnet50", batch, precision, runs)["runs_per_s"] if program else None
        pairs.append((python, into, library, queued))
    found["images_per_s"] = batch * statistics.median(pair[0] for pair in pairs)
    found["images_per_s_out"] = batch * statistics.median(pair[1] for pair in pairs)
    found["queued_us"] = statistics.median(pair[3] for pair in pairs)
    if program:
        found["library_images_per_s"] = batch * statistics.median(pair[2] for pair in pairs)
        found["ratios"] = [pair[0] / pair[2] for pair in pairs]
        found["ratios_out"] = [pair[1] / pair[2] for pair in pairs]
    try:
        import torchvision

        net = torchvision.models.resnet50().eval().cuda().to(kind, memory_format=torch.channels_last)
        given = x.to(kind, memory_format=torch.channels_last)
        with torch.inference_mode():
            for _ in range(10):
                net(given)
            found["torch_images_per_s"] = batch * timed(lambda: net(given), runs)[0]
        if batch > 1:
            found |= of_onnx_runtime(folder, batch)
    except ImportError as error:
        found["torch"] = str(error)
    return found


def of_onnx_runtime(folder: pathlib.Path, batch: int) -> dict[str, Any]:
    try:
        import onnxruntime
    except ImportError as error:
        return {"onnxruntime": str(error)}
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return {"onnxruntime": f"{onnxruntime.__version__} has {onnxruntime.get_available_providers()}"}
    import torchvision

    file, x = folder / "resnet50.onnx", torch.randn(batch, 3, 224, 224)
    torch.onnx.export(torchvision.models.resnet50().eval(), (x,), str(file), dynamo=False)
    session = onnxruntime.InferenceSession(str(file), providers=["CUDAExecutionProvider"])
    binding, given = session.io_binding(), x.cuda()
    binding.bind_input(session.get_inputs()[0].name, "cuda", 0, np.float32, tuple(given.shape), given.data_ptr())
    binding.bind_output(session.get_outputs()[0].name, "cuda")
    return {"onnxruntime_images_per_s": batch * timed(lambda: session.run_with_iobinding(binding), 50)[0]}


def fresh_addresses(batch: int) -> dict[str, float]:
    """Inputs at other addresses in every run, and all outputs kept."""
    session = pipit.load("resnet50", device="cuda", batch=batch, precision="fp16").session()
    inputs = [torch.randn(batch, 3, 224, 224, device="cuda") for _ in range(20)]
    same = timed(lambda: [session.run(inputs[0]) for _ in inputs], 5)[0]
    fresh = timed(lambda: [session.run(x) for x in inputs], 5)[0]
    return {"same": same * len(inputs) * batch, "fresh": fresh * len(inputs) * batch}


def main() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else temporary)
        found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        for name, measure in (
            ("overhead", lambda: overhead(program, folder)),
            ("fp16_32", lambda: throughput(program, folder, 32, "fp16")),
            ("fp32_32", lambda: throughput(program, folder, 32, "fp32")),
            ("fp16_1", lambda: throughput(program, folder, 1, "fp16")),
            ("fresh_32", lambda: fresh_addresses(32)),
        ):
            try:
                found[name] = measure()
            except Exception as error:  # the others count all the same
                found[name] = f"{type(error).__name__}: {error}"
            print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
